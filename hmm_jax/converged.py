"""Multinomial logistic regression run to its optimum: a linear head without a schedule, on features that are given."""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
import scipy.special

from hmm_jax.heads import LinearHead

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
    num_iterations: steps of Newton's method.
  """

  head: LinearHead
  gradient_norm: float
  num_iterations: int


def converged_head(
  features: ArrayLike, labels: np.ndarray, *, num_classes: int, ridge: float, tolerance: float, max_iterations: int
) -> Converged:
  """The linear head with the least mean cross-entropy + ridge / 2 (|weights|^2 + |bias|^2), by Newton's method.

  The start is 0, and a step is halved until it decreases the loss enough. The ridge makes the optimum unique, and keeps
  small what ill-conditioned features need large weights for: `whitened_head` takes that away.

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
  weights = np.zeros((with_ones.shape[1], num_classes))
  loss, probs = _loss(weights, with_ones, labels, ridge)
  for iteration in range(max_iterations + 1):
    gradient = with_ones.T @ (probs - np.eye(num_classes)[labels]) / len(features) + ridge * weights
    if np.abs(gradient).max() <= tolerance:
      return Converged(LinearHead(weights[:-1], weights[-1]), float(np.linalg.norm(gradient)), iteration)
    direction = -np.linalg.solve(_hessian(with_ones, probs, ridge), gradient.ravel()).reshape(gradient.shape)
    slope, rounding = (direction * gradient).sum(), 4 * np.finfo(np.float64).eps * abs(loss)
    for step in 0.5 ** np.arange(60):
      new_loss, new_probs = _loss(weights + step * direction, with_ones, labels, ridge)
      if new_loss <= loss + _DECREASE * step * slope + rounding:
        break
    weights, loss, probs = weights + step * direction, new_loss, new_probs
  raise ValueError(
    f'max_iterations is {max_iterations}; valid is more, or a tolerance above {np.abs(gradient).max():.2g}'
  )


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


def _loss(weights: np.ndarray, with_ones: np.ndarray, labels: np.ndarray, ridge: float) -> tuple[float, np.ndarray]:
  """The penalised cross-entropy of weights [F, C], and the probabilities of classes [n, C]."""
  log_probs = scipy.special.log_softmax(with_ones @ weights, axis=1)
  loss = -log_probs[np.arange(len(labels)), labels].mean() + ridge / 2 * (weights**2).sum()
  return loss, np.exp(log_probs)


def _hessian(with_ones: np.ndarray, probs: np.ndarray, ridge: float) -> np.ndarray:
  """The second derivative [F C, F C] of the penalised cross-entropy, whose weights are in the order [F, C]."""
  (n, num_features), num_classes = with_ones.shape, probs.shape[1]
  curvature = np.empty((num_features, num_classes, num_features, num_classes))
  for c in range(num_classes):
    for d in range(num_classes):
      shares = probs[:, c] * ((c == d) - probs[:, d]) / n
      curvature[:, c, :, d] = (with_ones * shares[:, None]).T @ with_ones
  flat = curvature.reshape(num_features * num_classes, -1)
  flat[np.diag_indices_from(flat)] += ridge
  return flat
