"""Linear heads that are right on all inputs: the linear program, and a proof if there is none.

A head scores class c by b_c^T G. On finitely many inputs with labels, either some b puts every label strictly first,
or weights lambda >= 0 exist that prove the opposite (Motzkin's transposition theorem): with lambda_{i,c} on the pair
of input i and a class c other than its label y_i, sum_{i,c} lambda_{i,c} (e_{y_i} - e_c) (x) G_i = 0, sum lambda = 1.
With two classes: a mixture of the G of one class equals a mixture of the G of the other, and no half-space separates a
point from itself. A bias adds nothing, since the entries of G sum to 1.
"""

from fractions import Fraction
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
import scipy.optimize
import scipy.sparse

from hmm_jax._support import arguments
from hmm_jax._support.float64 import float64, positive_or_one
from hmm_jax._support.rational.algebra import as_integers, modular_pivots, row_reduced

# The tolerances of all linear programs: the least that HiGHS accepts.
_PRECISE = dict(primal_feasibility_tolerance=1e-10, dual_feasibility_tolerance=1e-10)
# Rounding errors of a score b^T G, as a share of |b|^T G.
_ROUNDING = 1e-12


class Separation(NamedTuple):
  """Result of the linear program.

  Attributes:
    separable: whether a head with a margin above the tolerance was found.
    margin: the least gap between the score of the label and any other, maximised over heads with entries in [-1, 1]; at
      least 0, which the head 0 has.
    head: [V, C], one that attains it.
    pairs: [n, 2] int, the (input, other class) with a positive weight, where not separable. That no margin is above 0
      is proven by `exact_certificate` of them alone.
  """

  separable: bool
  margin: float
  head: np.ndarray
  pairs: np.ndarray


def linear_separation(features: ArrayLike, labels: ArrayLike, num_classes: int, tolerance: float) -> Separation:
  """Decide whether a linear head on `features` gives every label, as Theorem 3.3 promises under Assumption 3.1.

  Maximises t subject to (b_{y_i} - b_c)^T G_i >= t for all i and c other than y_i, with b in [-1, 1], by HiGHS. The
  duals of these constraints are lambda. The margin is that of the head that HiGHS returns, perhaps less than its t.

  Args:
    features: G [n, V].
    labels: [n] integers below C.
    num_classes: C.
    tolerance: margins up to this count as none; HiGHS is asked for 1e-10.

  Raises:
    ValueError: features are not finite, labels are no integers below C, or their shapes do not fit.
    RuntimeError: HiGHS gave up.

  >>> features = np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]])
  >>> linear_separation(features, [0, 0, 1], 2, tolerance=1e-9).separable
  True
  >>> linear_separation(features, [0, 1, 0], 2, tolerance=1e-9).separable
  False
  """
  features, labels = arguments.labelled(features, labels, num_classes)
  features = float64(features)
  pairs = all_pairs(labels, num_classes)
  rows = scipy.sparse.csr_array(differences(features, labels, pairs, num_classes))
  flat_head, weights = _largest_margin(rows)
  margin, head = float((rows @ flat_head).min()), flat_head.reshape(num_classes, -1).T
  if margin > tolerance:
    return Separation(True, margin, head, np.zeros((0, 2), int))
  # HiGHS' head may lie below the head 0 by rounding.
  margin, head = (margin, head) if margin > 0 else (0.0, np.zeros_like(head))
  return Separation(False, margin, head, pairs[weights > tolerance * weights.max()])


def separation_on(
  kept: np.ndarray, features: np.ndarray, labels: np.ndarray, num_classes: int, tolerance: float
) -> Separation:
  """`linear_separation` of the inputs `kept` alone; pairs have their numbers among all."""
  found = linear_separation(features[kept], labels[kept], num_classes, tolerance)
  numbers, others = found.pairs.T
  return found._replace(pairs=np.stack([kept[numbers], others], axis=1))


def _largest_margin(rows: scipy.sparse.csr_array) -> tuple[np.ndarray, np.ndarray]:
  """The b in [-1, 1]^m with the largest t <= rows @ b, t <= 2, and the duals [n] of these n constraints.

  The duals show that t is largest. Raises RuntimeError if HiGHS gives up.
  """
  num_rows, size = rows.shape
  bound = scipy.sparse.hstack([-rows, np.ones((num_rows, 1))], format='csr')
  bounds, objective = [(-1, 1)] * size + [(None, 2)], np.append(np.zeros(size), -1.0)
  for presolve in (True, False):
    # On some CPUs presolve ends without a status; the program is then solved without it.
    options = {**_PRECISE, 'presolve': presolve}
    result = scipy.optimize.linprog(
      objective, bound, np.zeros(num_rows), bounds=bounds, method='highs-ds', options=options
    )
    if not result.status:
      return result.x[:-1], np.maximum(-result.ineqlin.marginals, 0)
  raise RuntimeError(f'HiGHS failed: {result.message}')


def surely_right(features: np.ndarray, labels: np.ndarray, head: np.ndarray) -> np.ndarray:
  """Mask [n] of inputs whose label a head [V, C] scores first by more than rounding error."""
  own_nxV = head.T[labels]
  is_right = np.ones(len(own_nxV), bool)
  for other, column in enumerate(head.T):
    terms_nxV = features * (own_nxV - column)
    sizes_nxV = np.abs(features) * (np.abs(own_nxV) + np.abs(column))
    is_first = terms_nxV.sum(-1) > _ROUNDING * sizes_nxV.sum(-1)
    is_right &= is_first | (labels == other)
  return is_right


def whitening(features: np.ndarray) -> np.ndarray:
  """M [V, V] with features @ M of unit covariance (about 0), 0 in directions that rounding decides.

  A linear head on one is a linear head on the other; its margin does not depend on how rare a token is.
  """
  scales = positive_or_one(features.max(0))
  _, values, rows = np.linalg.svd(features / scales, full_matrices=False)
  kept = values > _ROUNDING * values[0]
  inverse = np.where(kept, math.sqrt(len(features)) / np.where(kept, values, 1), 0)
  return rows.T * inverse / scales[:, None]


def exact_certificate(
  features: ArrayLike, labels: ArrayLike, pairs: np.ndarray, num_classes: int
) -> list[Fraction] | None:
  """The weights lambda of a proof that no linear head exists, in exact rational arithmetic; None if there is no proof.

  Args:
    features: [n][V] `Fraction`s (or integers), the exact G of the inputs that `pairs` speaks of.
    labels: [n].
    pairs: [k, 2], from `Separation.pairs`, or by hand: (input, other class).
    num_classes: C.

  Returns:
    Positive weights with sum 1, one per pair, that solve the equations exactly. None unless the pairs have exactly one
    solution up to scale and it is positive.

  >>> features, labels = np.array([[0.75, 0.25], [0.5, 0.5], [0.25, 0.75]]), np.array([0, 1, 0])
  >>> print(*exact_certificate(features, labels, np.array([[0, 1], [1, 0], [2, 1]]), num_classes=2))
  1/4 1/2 1/4
  """
  if not len(pairs):
    return None
  rows = differences(np.array(features, object), np.asarray(labels), pairs, num_classes)
  system = np.array([as_integers(equation)[0] for equation in rows.T], object)
  if len(modular_pivots(system)) == len(pairs):
    return None
  reduced, pivots = row_reduced(system)
  free = np.setdiff1d(np.arange(len(pairs)), pivots)
  if len(free) != 1:
    return None
  solution = np.full(len(pairs), Fraction(1), object)
  solution[pivots] = -reduced[: len(pivots), free[0]]
  return list(solution / solution.sum()) if (solution > 0).all() else None


def all_pairs(labels: np.ndarray, num_classes: int) -> np.ndarray:
  """(input, other class) of all inputs, [n (C - 1), 2], input after input."""
  return np.argwhere(np.arange(num_classes) != labels[:, None])


def differences(features: np.ndarray, labels: np.ndarray, pairs: np.ndarray, num_classes: int) -> np.ndarray:
  """(e_{y_i} - e_c) (x) G_i of each pair (i, c), [n, C V]."""
  rows = np.zeros((len(pairs), num_classes, features.shape[1]), features.dtype)
  for row, (index, other) in zip(rows, pairs):
    row[labels[index]] = features[index]
    row[other] = -features[index]
  return rows.reshape(len(pairs), -1)
