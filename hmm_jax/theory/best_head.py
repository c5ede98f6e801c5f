"""How many of finitely many inputs any linear head can get right: the best head found, and float64 certificates.

The largest number is found exactly where all labels are separable. Elsewhere finding it is NP-hard (Johnson and
Preparata 1978), and it is put between two numbers. Below is a head, found by turns: along a line of heads the best is
known from where each input's label comes first and goes; and a linear program on the inputs that a head gets right or
nearly so minimises their hinge losses, which is a step of the concave-convex procedure on the ramp loss. Above are
disjoint certificates of inseparability (`separability`), of whose inputs every head has one wrong each.

All is computed in coordinates in which the features have unit covariance. A head counts on inputs whose label it puts
first by more than rounding could; a certificate counts where its weights are recomputed from the inputs alone and are
what makes the sum vanish but for rounding. It is a certificate of the float64 features without the directions that
`separability.whitening` leaves out, and no proof: labels may be separable by a head that needs those directions.
`separability.exact_certificate` decides where exact features are at hand.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import scipy.optimize
import scipy.sparse
import scipy.special
import scipy.stats

from hmm_jax.theory import separability

# Lines of heads that are searched at a time, 2^9.
_LOG_LINES = 9
# Scales of the ramp loss, in units of the median margin of a head, and steps of the procedure at each.
_RAMPS = (1.0, 0.3, 0.1)
_STEPS = 3
# The largest sum, and the least weight as a share of the largest, of a certificate's recomputed weights.
_RESIDUAL, _LEAST_WEIGHT = 1e-11, 1e-6


class BestHead(NamedTuple):
  """What is known of the best linear head on n inputs.

  Attributes:
    head: [V, C], without a bias, the best that was found.
    accuracy: the share of inputs whose label it puts first by more than rounding could.
    accuracy_at_most: 1 - k / n for the k certificates; no head has more.
    certificates: the inputs of each, in order; no input is in two of them.
    residual: the largest entry of any certificate's sum of lambda (e_y - e_c) (x) G, in coordinates of unit covariance.
  """

  head: np.ndarray
  accuracy: float
  accuracy_at_most: float
  certificates: list[np.ndarray]
  residual: float

  @property
  def separable(self) -> bool | None:
    """Whether a head is right on all inputs; None where neither that nor its opposite is shown."""
    return True if self.accuracy == 1 else False if self.certificates else None


def best_head(
  features: np.ndarray,
  labels: np.ndarray,
  num_classes: int,
  starts: Sequence[np.ndarray],
  *,
  tolerance: float,
  max_rounds: int,
  max_certificates: int,
) -> BestHead:
  """The best linear head on `features` themselves that a search finds, and a bound on every head.

  Nothing in it is random or hangs on a clock.

  Args:
    features: G [n, V], whose rows sum to 1, so that a bias adds nothing.
    labels: [n] ints below C.
    num_classes: C.
    starts: class scores [n, C] on the inputs of linear heads, from the best of which the search starts as well.
    tolerance: margins up to this count as none, in coordinates of unit covariance.
    max_rounds: of lines and linear programs from each of the two; a round without a gain is the last.
    max_certificates: that are looked for.

  Raises:
    RuntimeError: HiGHS gave up on the linear program of separability.
  """
  to_coordinates = separability.whitening(features)
  coordinates, everything = features @ to_coordinates, np.arange(len(labels))
  found = separability.linear_separation(coordinates, labels, num_classes, tolerance)
  rows = separability.differences(coordinates, labels, _pairs(labels, num_classes), num_classes)
  rows_nxOxF = rows.reshape(len(labels), num_classes - 1, -1)
  heads = [found.head.T.ravel()]
  if not found.separable:
    # Of unit covariance, so that least squares are a product.
    given = [(coordinates.T @ scores / len(labels)).T.ravel() for scores in starts]
    best_given = sorted(given, key=lambda head: _num_right(rows_nxOxF, head))[-1:]
    heads += [_searched(rows_nxOxF, start, max_rounds) for start in [_ramp(rows_nxOxF, everything, 1.0), *best_given]]
  heads = [to_coordinates @ head.reshape(num_classes, -1).T for head in heads]
  shares = [float(separability.surely_right(features, labels, head).mean()) for head in heads]
  certificates, residuals = list[np.ndarray](), [0.0]
  for inputs, residual in _certificates(coordinates, labels, num_classes, tolerance):
    if len(certificates) == max_certificates:
      break
    certificates.append(inputs)
    residuals.append(residual)
  best = int(np.argmax(shares))
  return BestHead(heads[best], shares[best], 1 - len(certificates) / len(labels), certificates, max(residuals))


def _pairs(labels: np.ndarray, num_classes: int) -> np.ndarray:
  """(input, other class) of all inputs, [n (C - 1), 2], input after input."""
  return np.argwhere(np.arange(num_classes) != labels[:, None])


def _certificates(
  coordinates: np.ndarray, labels: np.ndarray, num_classes: int, tolerance: float
) -> Iterator[tuple[np.ndarray, float]]:
  """The inputs and the residual of one certificate after another, each without the inputs of those before."""
  kept = np.arange(len(labels))
  while len(kept):
    found = separability.linear_separation(coordinates[kept], labels[kept], num_classes, tolerance)
    if found.separable:
      return
    inputs = kept[np.unique(found.pairs[:, 0])]
    pairs = np.stack([kept[found.pairs[:, 0]], found.pairs[:, 1]], axis=1)
    residual = _residual(separability.differences(coordinates, labels, pairs, num_classes))
    if residual is not None:
      yield inputs, residual
    # What rounding leaves open is no proof: one of its inputs goes, and the others may be in another.
    kept = np.setdiff1d(kept, inputs if residual is not None else inputs[-1:])


def _residual(rows: np.ndarray) -> float | None:
  """The largest entry of lambda @ rows, for positive weights that sum to 1; None where that is not 0 but for rounding.

  Of rows of length 1, since a rare token makes long ones, which tiny weights go with.
  """
  rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
  *_, right = np.linalg.svd(rows.T)
  weights = right[-1] / right[-1].sum()
  if not (weights > _LEAST_WEIGHT * np.abs(weights).max()).all():
    return None
  residual = float(np.abs(weights @ rows).max())
  return residual if residual <= _RESIDUAL else None


def _num_right(rows_nxOxF: np.ndarray, head: np.ndarray) -> int:
  return int((rows_nxOxF @ head > 0).all(1).sum())


def _searched(rows_nxOxF: np.ndarray, head: np.ndarray, max_rounds: int) -> np.ndarray:
  """The best head that rounds of lines and linear programs come to from `head`."""
  best = _num_right(rows_nxOxF, head)
  directions = scipy.stats.qmc.Sobol(head.size, scramble=False, bits=_LOG_LINES + max_rounds.bit_length() + 1)
  directions.fast_forward(2**_LOG_LINES)
  for _ in range(max_rounds):
    before = best
    for direction in scipy.special.ndtri(directions.random(2**_LOG_LINES)):
      along, count = _best_on_line(rows_nxOxF @ head, rows_nxOxF @ direction)
      if count > best:
        head, best = head + along * direction, count
        head = head / np.abs(head).max()
    for scale in _RAMPS:
      at = head
      for _ in range(_STEPS):
        margins = (rows_nxOxF @ at).min(1)
        ramp = scale * float(np.median(np.abs(margins)))
        at = _ramp(rows_nxOxF, np.flatnonzero(margins > -ramp), ramp)
        count = _num_right(rows_nxOxF, at)
        if count > best:
          head, best = at, count
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
  if np.isinf(low) or np.isinf(high):
    finite = [end for end in (low, high) if np.isfinite(end)]
    return (finite[0] + (1.0 if np.isinf(high) else -1.0) * max(1.0, abs(finite[0])) if finite else 0.0), int(
      counts[first]
    )
  return float(low + high) / 2, int(counts[first])


def _ramp(rows_nxOxF: np.ndarray, kept: np.ndarray, margin: float) -> np.ndarray:
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
