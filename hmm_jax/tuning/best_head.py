"""The best accuracy of a linear head on finitely many inputs: a head that a search finds, and a proven upper bound.

The best accuracy is known exactly if all labels are separable. Otherwise finding it is NP-hard (Johnson and Preparata
1978), and it is bounded. The lower bound is a head, found by alternating two steps. Along a line of heads, the best
follows from the interval on which each input's label comes first. A linear program on the inputs that a head gets
right, or nearly, minimises their hinge losses: a step of the concave-convex procedure on the ramp loss. The upper bound
is by disjoint certificates of inseparability (`separability`): every head gets an input of each wrong.

The search works in coordinates in which the features have unit covariance. A certificate is a proof for the exact G,
whose float64 entries have a known relative error (`relative_error`). With (C - 1) V + 1 pairs of an input and another
class, some weights make the sum vanish, whatever G is. An enclosure shows that they are positive for every G within
that error. A certificate of fewer pairs is not counted: only exact arithmetic decides whether its sum vanishes
(`separability.exact_certificate`).
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import scipy

from hmm_jax.distributions.hmm import Distribution
from hmm_jax.tuning import separability

# Rounds of the search from each start, and lines of heads in a round: 2^9.
_ROUNDS, _LOG_LINES = 4, 9
# Scales of the ramp loss, in units of the median margin of a head, and steps of the procedure at each.
_RAMPS = (1.0, 0.3, 0.1)
_STEPS = 3
# The unit roundoff of float64.
_ROUNDOFF = np.finfo(np.float64).eps / 2


class BestHead(NamedTuple):
  """The best linear head on n inputs, as far as it is known.

  Attributes:
    head: [V, C], without a bias, the best that was found.
    accuracy_at_most: 1 - k / n for the k certificates; no head has more.
    certificates: the inputs of each, in order; no input is in two of them.
    residual: the largest entry of any certificate's sum of lambda (e_y - e_c) (x) G in float64, with rows of length 1.
    separable: whether a head is right on all inputs by more than rounding error; None where neither answer is proven.
  """

  head: np.ndarray
  accuracy_at_most: float
  certificates: list[np.ndarray]
  residual: float
  separable: bool | None


def best_head(
  features: np.ndarray,
  labels: np.ndarray,
  num_classes: int,
  starts: Sequence[np.ndarray],
  *,
  error: float,
  tolerance: float,
) -> BestHead:
  """The best linear head on `features` themselves that a search finds, and a bound on every head.

  The search is deterministic.

  Args:
    features: G [n, V], whose rows sum to 1, so that a bias adds nothing.
    labels: [n] ints below C.
    num_classes: C.
    starts: further candidate heads [V, C]; the search also starts from the best of them.
    error: bound on the relative error of `features`, as a share of each entry of the exact G.
    tolerance: margins up to this count as none, in coordinates of unit covariance.

  Raises:
    RuntimeError: HiGHS gave up on the linear program of separability.

  >>> features, labels = np.array([[0.75, 0.25], [0.5, 0.5], [0.25, 0.75]]), np.array([0, 1, 0])
  >>> best_head(features, labels, 2, [], error=1e-12, tolerance=1e-9).separable
  False
  """
  heads = [*_searched_heads(features, labels, num_classes, starts, tolerance), *starts]
  best = int(np.argmax([((features @ head).argmax(1) == labels).sum() for head in heads]))
  proven = list(proven_certificates(features, labels, num_classes, error, tolerance))
  separable = False if proven else None
  if separability.surely_right(features, labels, heads[best]).all():
    separable = True
  residual = max((residual for _, residual in proven), default=0.0)
  return BestHead(heads[best], 1 - len(proven) / len(labels), [inputs for inputs, _ in proven], residual, separable)


def relative_error(distribution: Distribution, length: int) -> float:
  """A bound on |computed - exact| / exact for every entry of a float64 G or posterior of texts of `length` positions.

  Products and sums of nonnegative terms do not cancel: m operations in a row have relative error at most m u / (1 - m
  u), u = 2^-53 (Higham 2002, section 3.1), in any order of summation. Each pass takes one contraction and one scaling a
  position; one of each and W p remain. The bound is for the scaled arithmetic of `inference`, whose underflow is
  negligible (`arithmetic.SCALED`).
  """
  num_joint, num_states = distribution.joint_initial_probs.shape[-1], distribution.transition_matrix.shape[-1]
  operations = 2 * (length + 1) * (num_joint + num_states + 10)
  return operations * _ROUNDOFF / (1 - operations * _ROUNDOFF)


def _searched_heads(
  features: np.ndarray,
  labels: np.ndarray,
  num_classes: int,
  starts: Sequence[np.ndarray],
  tolerance: float,
) -> list[np.ndarray]:
  """The head [V, C] of the linear program, and unless it is right on all, those at which two searches end."""
  to_coordinates = separability.whitening(features)
  coordinates = features @ to_coordinates
  separation = separability.linear_separation(coordinates, labels, num_classes, tolerance)
  rows = separability.differences(coordinates, labels, separability.all_pairs(labels, num_classes), num_classes)
  rows_nxOxF = rows.reshape(len(labels), num_classes - 1, -1)
  in_coordinates = [separation.head.T.ravel()]
  if not separation.separable:
    # Coordinates have unit covariance, so least squares are a product.
    given = [(coordinates.T @ (features @ start) / len(labels)).T.ravel() for start in starts]
    best_given = sorted(given, key=lambda head: _num_right(rows_nxOxF, head))[-1:]
    both_starts = _hinge_head(rows_nxOxF, np.arange(len(labels)), 1.0), *best_given
    in_coordinates += [_searched(rows_nxOxF, start) for start in both_starts]
  return [to_coordinates @ head.reshape(num_classes, -1).T for head in in_coordinates]


def proven_certificates(
  features: np.ndarray, labels: np.ndarray, num_classes: int, error: float, tolerance: float
) -> Iterator[tuple[np.ndarray, float]]:
  """Yield the inputs and residual of one certificate after another, on disjoint inputs.

  Arguments are those of `best_head`.
  """
  to_coordinates = separability.whitening(features)
  coordinates = features @ to_coordinates
  if not to_coordinates.any(0).all():
    # In fewer dimensions no certificate has enough pairs for a proof.
    return
  kept = np.arange(len(labels))
  while len(kept):
    separation = separability.separation_on(kept, coordinates, labels, num_classes, tolerance)
    if separation.separable:
      return
    pairs = separation.pairs
    inputs = np.unique(pairs[:, 0])
    residual = _proof(separability.differences(features, labels, pairs, num_classes)[:, features.shape[1] :], error)
    if residual is not None:
      yield inputs, residual
    # Without a proof, only one input is dropped: the others may be in another certificate.
    kept = np.setdiff1d(kept, inputs if residual is not None else inputs[-1:])


def _proof(rows: np.ndarray, error: float) -> float | None:
  """The residual of weights lambda with lambda^T rows = 0, if they are proven to be positive; else None.

  The blocks of a row (e_y - e_c) (x) G, one for each class, sum to 0, so the first is redundant. k rows of length k - 1
  are dependent. Weights with sum 1 solve a square system M lambda = e. Let R be near its inverse, and |I - R M| + |R| D
  have infinity norm a < 1. For all M' with |M' - M| <= D every solution lies within |R (e - M lambda)| + |R| D |lambda|
  over 1 - a, in that norm, of lambda (Rump 2010, section 10). D includes rounding.

  Args:
    rows: [k, (C - 1) V].
    error: a share of each entry.
  """
  size = len(rows)
  if rows.shape[1] != size - 1:
    return None
  rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
  system, last = np.vstack([rows.T, np.ones(size)]), np.eye(size)[-1]
  # Solutions that are not unique make the system nearly singular.
  if np.linalg.cond(system) > 0.1 / _ROUNDOFF:
    return None
  inverse = np.linalg.inv(system)
  weights, magnitude = inverse[:, -1], np.abs(inverse)
  # The factors cover the rounding of this bound itself.
  spread = (error + 2 * (size + 4) * _ROUNDOFF) * 1.01 * np.abs(system)
  contraction = (np.abs(np.eye(size) - inverse @ system) + magnitude @ spread).sum(1).max()
  if contraction >= 0.5:
    return None
  rest = last - system @ weights
  radius = (np.abs(inverse @ rest) + magnitude @ (spread @ np.abs(weights))).max() / (1 - contraction)
  return float(np.abs(weights @ rows).max()) if (weights > 1.01 * radius).all() else None


def _num_right(rows_nxOxF: np.ndarray, head: np.ndarray) -> int:
  return int((rows_nxOxF @ head > 0).all(1).sum())


def _searched(rows_nxOxF: np.ndarray, head: np.ndarray) -> np.ndarray:
  """The best head that at most _ROUNDS rounds reach from `head`; the last of fewer found none better.

  A round goes along lines in normal directions, of a Sobol sequence, then descends ramp losses of falling widths.
  A descent is a few linear programs, each without the inputs that the head before has wrong by more than the ramp.
  """
  best = _num_right(rows_nxOxF, head)
  directions = scipy.stats.qmc.Sobol(head.size, scramble=False, bits=_LOG_LINES + _ROUNDS.bit_length() + 1)
  directions.fast_forward(2**_LOG_LINES)
  for _ in range(_ROUNDS):
    before = best
    for direction in scipy.special.ndtri(directions.random(2**_LOG_LINES)):
      along, count = _best_on_line(rows_nxOxF @ head, rows_nxOxF @ direction)
      if count > best:
        head, best = head + along * direction, count
        head = head / np.abs(head).max()
    for scale in _RAMPS:
      descended = head
      for _ in range(_STEPS):
        margins = (rows_nxOxF @ descended).min(1)
        ramp = scale * float(np.median(np.abs(margins)))
        descended = _hinge_head(rows_nxOxF, np.flatnonzero(margins > -ramp), ramp)
        count = _num_right(rows_nxOxF, descended)
        if count > best:
          head, best = descended, count
    if best == before:
      break
  return head


def _best_on_line(margins_nxO: np.ndarray, slopes_nxO: np.ndarray) -> tuple[float, int]:
  """The t at which most inputs have all of margins + t slopes above 0, and how many."""
  with np.errstate(divide='ignore', invalid='ignore'):
    crossings = -margins_nxO / slopes_nxO
  begins = np.where(slopes_nxO > 0, crossings, np.where((slopes_nxO == 0) & (margins_nxO <= 0), np.inf, -np.inf)).max(1)
  ends = np.where(slopes_nxO < 0, crossings, np.inf).min(1)
  ever = begins < ends
  places = np.concatenate([begins[ever], ends[ever]])
  order = np.argsort(places, kind='stable')
  places = np.append(places[order], np.inf)
  counts = np.cumsum(np.where(order < ever.sum(), 1, -1))
  counts = np.where(places[1:] > places[:-1], counts, -1)
  if not counts.size or counts.max() <= 0:
    return 0.0, 0
  first = int(counts.argmax())
  low, high = places[first], places[first + 1]
  if np.isinf(low) and np.isinf(high):
    along = 0.0
  elif np.isinf(low):
    along = high - max(1.0, abs(high))
  elif np.isinf(high):
    along = low + max(1.0, abs(low))
  else:
    along = (low + high) / 2
  return float(along), int(counts[first])


def _hinge_head(rows_nxOxF: np.ndarray, kept: np.ndarray, margin: float) -> np.ndarray:
  """The head with the least sum of hinge losses at `margin` over the inputs `kept`; 0 where HiGHS gives up."""
  rows = rows_nxOxF[kept]
  count, others, size = rows.shape
  slacks = scipy.sparse.kron(scipy.sparse.eye_array(count), np.ones((others, 1)))
  bound = scipy.sparse.hstack([scipy.sparse.csr_array(-rows.reshape(-1, size)), -slacks], format='csr')
  objective = np.append(np.zeros(size), np.ones(count))
  bounds = [(None, None)] * size + [(0, None)] * count
  result = scipy.optimize.linprog(
    objective, A_ub=bound, b_ub=np.full(count * others, -margin), bounds=bounds, method='highs-ds'
  )
  return np.zeros(size) if result.x is None else result.x[:size]
