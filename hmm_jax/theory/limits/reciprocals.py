"""A positive vector of a subspace whose entrywise reciprocal lies in a cone: found, or shown not to exist.

q = basis @ y > 0 and columns @ w = 1 / q with w >= 0. Both sets are convex, but entrywise reciprocals of one are not,
so that no single program decides. Successive linear programs find solutions, but may miss some. Branch and bound on log
q shows that there is none: over a box, g = 1 / q lies between its tangents and its chord, and an infeasible linear
program in y and w excludes the box.

All is up to scale, and entries of q, as those of 1 / q, are taken to be within a factor of 1e6.
"""

from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.linalg
import scipy.optimize

from hmm_jax.theory.limits.separability import PRECISE

# The largest |q (columns @ w) - 1| of a product that counts as 1.
TOLERANCE = 1e-9
# The largest ratio of two entries in the search.
_LARGEST_RATIO = 1e6
# HiGHS takes smaller coefficients for 0.
_LEAST_COEFFICIENT = 1e-9
# A status of linprog; any other but 0 is a failure.
_INFEASIBLE = 2
# Steps of the successive programs, the share of each variable that the first one moves at most, and when they end.
_NUM_STEPS = 40
_FIRST_SHARE = 0.5
_LEAST_SHARE = 1e-3
_LEAST_GAIN = 1e-3


class Pair(NamedTuple):
  """A solution: q [n] > 0; w [m] >= 0 with columns @ w = 1 / q."""

  q: np.ndarray
  w: np.ndarray


def has_positive(basis: np.ndarray) -> bool:
  """Decide whether the span of orthonormal columns [n, d] has a vector with all entries positive.

  By Gordan's theorem it has none exactly where a convex combination of the rows is 0. A positive unit vector with
  entries within a factor of 1e6 keeps these at least 1e-6 / sqrt(n) away from 0.
  """
  size, dimension = basis.shape
  if dimension == size:
    return True
  mixture = scipy.optimize.nnls(np.vstack([basis.T, np.ones(size)]), np.append(np.zeros(dimension), 1.0))
  return mixture[1] > 1 / (_LARGEST_RATIO * size)


def widest(columns: np.ndarray) -> np.ndarray:
  """w >= 0 [m] that maximises min(columns @ w) [n], the largest entry being 1; all equal if HiGHS gives up."""
  size = columns.shape[1]
  rows = np.block([[-columns, np.ones((len(columns), 1))], [columns, np.zeros((len(columns), 1))]])
  found = _minimum(np.append(np.zeros(size), -1.0), rows, np.repeat([0.0, 1.0], len(columns)), [(0, None)] * (size + 1))
  return np.ones(size) if found.status else found.x[:-1]


def found_from(basis: np.ndarray, columns: np.ndarray, w: np.ndarray) -> Pair | None:
  """The pair that successive linear programs reach from w and its nearest q; None where they fail.

  Each changes q and columns @ w by a bounded share of their entries to solve q * (columns @ w) = 1 to first order.
  """
  size, dimension, reached, share = len(basis), basis.shape[1], columns @ w, _FIRST_SHARE
  if not (reached > 0).all():
    return None
  nearest = _nearest_to_one(basis * reached[:, None])
  if nearest is None:
    return None
  q = basis @ nearest
  for _ in range(_NUM_STEPS):
    product = q * reached
    error = np.abs(product - 1).max()
    if error <= TOLERANCE / 1000 or share < _LEAST_SHARE or not (q > 0).all():
      break
    slope = np.hstack([reached[:, None] * basis, q[:, None] * columns])
    relative = scipy.linalg.block_diag(basis / q[:, None], columns / reached[:, None])
    # The last variables are the remaining error and the largest move, which is kept small.
    rows = np.hstack(
      [np.vstack([slope, -slope, relative, -relative]), -np.repeat(np.eye(2), [2 * size, 4 * size], axis=0)]
    )
    bound = np.concatenate([1 - product, product - 1, np.zeros(4 * size)])
    bounds = [(None, None)] * dimension + [(-value, None) for value in w] + [(0, None), (0, share)]
    step = _minimum(np.append(np.zeros(len(bounds) - 2), [1.0, _LEAST_GAIN * error]), rows, bound, bounds)
    if step.status or step.x[-2] > (1 - _LEAST_GAIN) * error:
      break
    moved = Pair(q + basis @ step.x[:dimension], np.maximum(w + step.x[dimension:-2], 0))
    if np.abs(moved.q * (columns @ moved.w) - 1).max() < error:
      (q, w), reached, share = moved, columns @ moved.w, min(2 * share, 0.9)
    else:
      share /= 4
  return Pair(q, w) if (q > 0).all() and np.abs(q * reached - 1).max() <= TOLERANCE else None


def decide(basis: np.ndarray, columns: np.ndarray, max_boxes: int) -> Pair | Literal[False] | None:
  """A pair; False if there is none; None if `max_boxes` boxes do not decide or HiGHS gives up on one.

  A box bounds log(q / q_0). Successive programs start from the most even columns @ w, then from the relaxed solution of
  each box. Columns are scaled to a largest entry of 1; if one still has an entry that HiGHS takes for 0, finding no
  pair decides nothing.
  """
  largest = columns.max(0)
  scales = np.where(largest > 0, largest, 1)
  pair = _decided(basis, columns / scales, max_boxes)
  if not pair:
    lost = (columns > 0) & (columns < _LEAST_COEFFICIENT * scales)
    return None if lost.any() else pair
  return Pair(pair.q, pair.w / scales)


def _decided(basis: np.ndarray, columns: np.ndarray, max_boxes: int) -> Pair | Literal[False] | None:
  """`decide` for scaled columns."""
  pair = found_from(basis, columns, widest(columns))
  if pair is not None:
    return pair
  size = len(basis)
  whole = np.tile(np.log([1 / _LARGEST_RATIO, _LARGEST_RATIO]), (size, 1))
  whole[0] = 0
  # Tightened by the span alone, then by the cone.
  of_span = _bounds(basis, whole, [(None, None)] * basis.shape[1])
  of_cone = None if of_span is None else _bounds(columns, -of_span[:, ::-1], [(0, None)] * columns.shape[1])
  boxes = [] if of_cone is None else [-of_cone[:, ::-1]]
  for _ in range(max_boxes):
    if not boxes:
      return False
    box = boxes.pop()
    relaxed = _relaxed(basis, columns, box)
    if relaxed is None:
      return None
    if relaxed is False:
      continue
    pair = found_from(basis, columns, relaxed.w)
    if pair is not None:
      return pair
    # Where the chord is furthest from the reciprocal, or the box is widest.
    off = np.abs(np.log(np.maximum(relaxed.q * (columns @ relaxed.w), 1 / _LARGEST_RATIO)))
    split = int((off * (np.diff(box)[:, 0] > TOLERANCE)).argmax())
    for side in range(2):
      half = box.copy()
      half[split, side] = box[split].mean()
      boxes.append(half)
  return None if boxes else False


def _nearest_to_one(matrix: np.ndarray) -> np.ndarray | None:
  """y with the least largest |matrix @ y - 1|; None where HiGHS gives up."""
  ones = np.ones((len(matrix), 1))
  rows, bound = np.block([[matrix, -ones], [-matrix, -ones]]), np.repeat([1.0, -1.0], len(matrix))
  bounds = [(None, None)] * matrix.shape[1] + [(0, None)]
  found = _minimum(np.append(np.zeros(matrix.shape[1]), 1.0), rows, bound, bounds)
  return None if found.status else found.x[:-1]


def _relaxed(basis: np.ndarray, columns: np.ndarray, box: np.ndarray) -> Pair | Literal[False] | None:
  """q and w with q_0 = 1 = (columns @ w)_0 and columns @ w between tangents and chord of 1 / q.

  False if there are none, None where HiGHS gives up.

  In units of the box's middle q lies between 1 / r and r: the chord is r + 1 / r - q, the tangent at p 2 / p - q / p^2.
  """
  middle, r = np.exp(box[1:].mean(1)), np.exp(np.diff(box[1:])[:, 0] / 2) * (1 + TOLERANCE)
  q_rows, g_rows = basis[1:] / middle[:, None], columns[1:] * middle[:, None]
  tangents = [np.hstack([-q_rows / p[:, None] ** 2, -g_rows]) for p in (1 / r, np.ones_like(r), r)]
  alone = np.pad(q_rows, ((0, 0), (0, columns.shape[1])))
  rows = np.vstack([np.hstack([q_rows, g_rows]), *tangents, alone, -alone])
  bound = np.concatenate([r + 1 / r, -2 * r, np.full_like(r, -2), -2 / r, r, -1 / r])
  dimension = basis.shape[1]
  bounds = [(None, None)] * dimension + [(0, None)] * columns.shape[1]
  # The cone's equation and the span's.
  equations = scipy.linalg.block_diag(basis[:1], columns[:1])
  found = _minimum(np.zeros(len(bounds)), rows, bound, bounds, A_eq=equations, b_eq=np.ones(2))
  if found.status:
    return False if found.status == _INFEASIBLE else None
  return Pair(basis @ found.x[:dimension], np.maximum(found.x[dimension:], 0))


def _bounds(matrix: np.ndarray, box: np.ndarray, bounds: list) -> np.ndarray | None:
  """The logarithmic bounds of matrix @ y, its entry 0 being 1, within a box; None where there is no y."""
  low, high = np.exp(box[1:] + [-TOLERANCE, TOLERANCE]).T
  rows, bound, tight = np.vstack([matrix[1:], -matrix[1:]]), np.concatenate([high, -low]), box.copy()
  for entry in range(1, len(matrix)):
    for side, (sign, tighter) in enumerate(((1, max), (-1, min))):
      found = _minimum(sign * matrix[entry], rows, bound, bounds, A_eq=matrix[:1], b_eq=np.ones(1))
      if found.status == _INFEASIBLE:
        return None
      if not found.status and sign * found.fun > 0:
        tight[entry, side] = tighter(box[entry, side], np.log(sign * found.fun))
  return np.sort(tight)


def _minimum(
  objective: np.ndarray, rows: np.ndarray, bound: np.ndarray, bounds: Any, **equations: np.ndarray
) -> scipy.optimize.OptimizeResult:
  return scipy.optimize.linprog(objective, A_ub=rows, b_ub=bound, bounds=bounds, options=PRECISE, **equations)
