"""Multinomial logistic regression run to its optimum: a linear head without a schedule, on features that are given."""

import collections
from collections.abc import Callable
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hmm_jax.heads import LinearHead

# Steps whose curvature L-BFGS keeps.
_MEMORY = 20
# Directions of features whose singular value is at most this share of the largest carry rounding alone.
_LEAST_DIRECTION = 1e-13
# The share of the decrease by the slope that a step of the line search makes at least.
_DECREASE = 1e-4


class Converged(NamedTuple):
  """A head at the optimum, and how near it is.

  Attributes:
    head: float64.
    gradient_norm: g, Euclidean, at the head. The loss is at most g^2 / (2 ridge) above the least, and the head at most
      g / ridge away from the only one that has it, since the loss is strongly convex with modulus `ridge`.
    num_iterations: of L-BFGS.
  """

  head: LinearHead
  gradient_norm: float
  num_iterations: int


def converged_head(
  features: ArrayLike, labels: np.ndarray, *, num_classes: int, ridge: float, tolerance: float, max_iterations: int
) -> Converged:
  """The linear head with the least mean cross-entropy + ridge / 2 (|weights|^2 + |bias|^2), by L-BFGS in float64.

  The start is 0. The ridge makes the optimum unique, and keeps small what ill-conditioned features need large weights
  for: `whitened_head` takes that away.

  Args:
    features: [n, F]; whatever their type, the arithmetic is in float64.
    labels: [n] ints below `num_classes`.
    num_classes: C.
    ridge: above 0.
    tolerance: the largest entry of the gradient at which it ends.
    max_iterations: at which it gives up.

  Raises:
    ValueError: `ridge` is not positive, features are not finite, or the gradient is above `tolerance` after
      `max_iterations`.
  """
  features = np.asarray(features, np.float64)
  if not ridge > 0:
    raise ValueError(f'ridge is {ridge}; valid is above 0, or the optimum may not exist')
  if not np.isfinite(features).all():
    raise ValueError('features have an entry that is not finite; valid are numbers')
  with_ones = np.append(features, np.ones((len(features), 1)), axis=1)
  targets = np.eye(num_classes)[labels]
  start = np.zeros(with_ones.shape[1] * num_classes)

  def loss_and_gradient(parameters: np.ndarray) -> tuple[float, np.ndarray]:
    weights = parameters.reshape(-1, num_classes)
    scores = with_ones @ weights
    log_sums = np.logaddexp.reduce(scores, axis=1)
    residuals = np.exp(scores - log_sums[:, None]) - targets
    loss = (log_sums - (scores * targets).sum(1)).mean() + ridge / 2 * (weights**2).sum()
    return loss, (with_ones.T @ residuals / len(features) + ridge * weights).ravel()

  parameters, gradient, num_iterations = _minimum(loss_and_gradient, start, tolerance, max_iterations)
  if np.abs(gradient).max() > tolerance:
    raise ValueError(
      f'max_iterations is {max_iterations}; valid is more, or a tolerance above {np.abs(gradient).max():.2g}'
    )
  rows = parameters.reshape(-1, num_classes)
  return Converged(LinearHead(rows[:-1], rows[-1]), float(np.linalg.norm(gradient)), num_iterations)


def whitened_head(features: ArrayLike, labels: np.ndarray, **how: Any) -> Converged:
  """The `converged_head` of features in coordinates of mean 0 and covariance 1, as a head of the features themselves.

  The coordinates are singular vectors of the centred features [n, F]. Directions in which the features vary by at most
  1e-13 of the most are left out, such as that of the sum of probabilities. The ridge and the norm of the gradient are
  of the head in these coordinates.
  """
  features = np.asarray(features, np.float64)
  center = features.mean(0)
  _, sizes, directions = np.linalg.svd(features - center, full_matrices=False)
  kept = sizes > _LEAST_DIRECTION * sizes[0]
  to_coordinates = math.sqrt(len(features)) * directions[kept].T / sizes[kept]
  found = converged_head((features - center) @ to_coordinates, labels, **how)
  weights = to_coordinates @ found.head.weights
  return found._replace(head=LinearHead(weights, found.head.bias - center @ weights))


def _minimum(
  function: Callable[[np.ndarray], tuple[float, np.ndarray]], x: np.ndarray, tolerance: float, max_iterations: int
) -> tuple[np.ndarray, np.ndarray, int]:
  """The point that L-BFGS (Nocedal and Wright, algorithm 7.5) reaches, the gradient there, and the iterations.

  Of a strongly convex function of few variables, on which scipy's spends its time in threads of LAPACK. Steps are
  halved until they decrease the function enough; their curvature is positive by convexity, but for rounding.
  """
  pairs: collections.deque[tuple[np.ndarray, np.ndarray]] = collections.deque(maxlen=_MEMORY)
  value, gradient = function(x)
  for iteration in range(max_iterations):
    if np.abs(gradient).max() <= tolerance:
      return x, gradient, iteration
    direction = -_scaled(gradient, pairs)
    slope, rounding = direction @ gradient, 4 * np.finfo(np.float64).eps * abs(value)
    for step in 0.5 ** np.arange(60):
      new_value, new_gradient = function(x + step * direction)
      if new_value <= value + _DECREASE * step * slope + rounding:
        break
    if direction @ (new_gradient - gradient) > 0:
      pairs.append((step * direction, new_gradient - gradient))
    x, value, gradient = x + step * direction, new_value, new_gradient
  return x, gradient, max_iterations


def _scaled(gradient: np.ndarray, pairs: collections.deque[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
  """The gradient times the inverse Hessian that (step, change of gradient) tell of (algorithm 7.4)."""
  if not pairs:
    return gradient / max(1.0, float(np.linalg.norm(gradient)))
  q, shares = gradient, list[float]()
  for s, y in reversed(pairs):
    shares.append(s @ q / (s @ y))
    q = q - shares[-1] * y
  s, y = pairs[-1]
  q = q * (s @ y / (y @ y))
  for (s, y), share in zip(pairs, reversed(shares)):
    q = q + (share - y @ q / (s @ y)) * s
  return q
