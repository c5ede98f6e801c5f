"""Multinomial logistic regression run to its optimum: a linear head on given features, without a schedule."""

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike
import scipy.special

from hmm_jax._support import arguments
from hmm_jax.tuning.heads import LinearHead

# Feature directions with a singular value of at most this share of the largest are rounding error.
_LEAST_DIRECTION = 1e-13
# A range of at most this many units in the last place of the largest number is rounding error: of a computation, and of
# storage in 16 bits.
_ROUNDING, _ROUNDING_OF_STORAGE = 32, 2
# Weights of smaller features would not be finite.
_LEAST_FEATURE = 1e-306
# The least share of the linear decrease that the line search accepts (Armijo).
_DECREASE = 1e-4


class Converged(NamedTuple):
  """A head at the optimum, and its accuracy.

  Attributes:
    head: float64.
    gradient_norm: g, Euclidean, at the head. The loss is strongly convex with modulus `ridge`: it is at most g^2 / (2
      ridge) above its minimum, and the head at most g / ridge from the minimiser.
  """

  head: LinearHead
  gradient_norm: float


def converged_head(
  features: ArrayLike, labels: np.ndarray, *, num_classes: int, ridge: float, tolerance: float, max_iterations: int
) -> Converged:
  """The linear head with the least mean cross-entropy + ridge / 2 (|weights|^2 + |bias|^2), by Newton's method.

  The start is 0, and a step is halved until it decreases the loss enough. The ridge makes the optimum unique. It also
  shrinks the large weights that ill-conditioned features need, which `whitened_head` avoids.

  Args:
    features: [n, F] of any type; the arithmetic is float64.
    labels: [n] ints below `num_classes`.
    num_classes: C.
    ridge: above 0.
    tolerance: the largest entry of a converged gradient.
    max_iterations: the limit on steps.

  Raises:
    ValueError: `ridge` is not positive, features are not finite, or the gradient is above `tolerance` after
      `max_iterations`.

  >>> features, labels = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([0, 0, 1, 1])
  >>> converged = converged_head(features, labels, num_classes=2, ridge=1e-3, tolerance=1e-9, max_iterations=50)
  >>> (features @ converged.head.weights + converged.head.bias).argmax(1).tolist()
  [0, 0, 1, 1]
  """
  if not 0 < ridge < np.inf:
    raise ValueError(f'ridge is {ridge}; valid is above 0 and finite: otherwise an optimum may not exist')
  arguments.check_size('max_iterations', max_iterations, 0)
  features, labels = arguments.labelled(features, labels, num_classes)
  with_ones = np.append(np.asarray(features, np.float64), np.ones((len(features), 1)), axis=1)
  weights = np.zeros((with_ones.shape[1], num_classes))
  loss, probs = _loss(weights, with_ones, labels, ridge)
  for _ in range(max_iterations + 1):
    gradient = with_ones.T @ (probs - np.eye(num_classes)[labels]) / len(features) + ridge * weights
    if np.abs(gradient).max() <= tolerance:
      return Converged(LinearHead(weights[:-1], weights[-1]), float(np.linalg.norm(gradient)))
    direction = -np.linalg.solve(_hessian(with_ones, probs, ridge), gradient.ravel()).reshape(gradient.shape)
    slope, rounding = (direction * gradient).sum(), 4 * np.finfo(np.float64).eps * abs(loss)
    for step in 0.5 ** np.arange(60):
      new_loss, new_probs = _loss(weights + step * direction, with_ones, labels, ridge)
      if new_loss <= loss + _DECREASE * step * slope + rounding:
        break
    weights, loss, probs = weights + step * direction, new_loss, new_probs
  raise ValueError(
    f'max_iterations is {max_iterations}, not converged; valid is more, or tolerance above {np.abs(gradient).max():.2g}'
  )


def whitened_head(features: ArrayLike, labels: np.ndarray, num_classes: int, **how: Any) -> Converged:
  """The `converged_head` of whitened features (mean 0, covariance 1), as a head on the features themselves.

  The coordinates are singular vectors of the `standardised` features [n, F], without those whose singular value is at
  most 1e-13 of the largest, such as the sum of probabilities. Ridge and gradient norm refer to these coordinates.

  >>> features, labels = np.array([[0.0], [1e-6], [2e-6], [3e-6]]), np.array([0, 0, 1, 1])
  >>> converged = whitened_head(features, labels, num_classes=2, ridge=1e-3, tolerance=1e-9, max_iterations=50)
  >>> (features @ converged.head.weights + converged.head.bias).argmax(1).tolist()
  [0, 0, 1, 1]
  """
  features, labels = arguments.labelled(features, labels, num_classes)
  rows, means, deviations = standardised(features)
  _, sizes, directions = principal_directions(rows)
  kept = sizes > _LEAST_DIRECTION * sizes.max(initial=0)
  to_coordinates = math.sqrt(len(rows)) * directions[kept].T / sizes[kept]
  converged = converged_head(rows @ to_coordinates, labels, num_classes=num_classes, **how)
  return _on_features(converged, to_coordinates @ converged.head.weights, means, deviations)


def standardised_head(features: ArrayLike, labels: np.ndarray, num_classes: int, **how: Any) -> Converged:
  """The `converged_head` of the `standardised` features [n, F], as a head on the features themselves.

  Unlike `whitened_head` it does not inflate directions of little variance, which with fewer labels than features hold
  nothing. Ridge and gradient norm refer to the standardised features.

  >>> features, labels = np.array([[0.0], [1e-6], [2e-6], [3e-6]]), np.array([0, 0, 1, 1])
  >>> converged = standardised_head(features, labels, num_classes=2, ridge=1e-3, tolerance=1e-9, max_iterations=50)
  >>> (features @ converged.head.weights + converged.head.bias).argmax(1).tolist()
  [0, 0, 1, 1]
  """
  features, labels = arguments.labelled(features, labels, num_classes)
  rows, means, deviations = standardised(features)
  converged = converged_head(rows, labels, num_classes=num_classes, **how)
  return _on_features(converged, converged.head.weights, means, deviations)


def _on_features(converged: Converged, weights: Any, means: np.ndarray, deviations: np.ndarray) -> Converged:
  """The head with these weights of `standardised` features, as a head on the features themselves."""
  return converged._replace(head=LinearHead(weights / deviations[:, None], converged.head.bias - means @ weights))


def are_constant(array: np.ndarray, dtype: Any) -> np.ndarray:
  """Mask [F] of the columns of an array [n, F] that are constant but for rounding in `dtype`, in which it came."""
  info = jnp.finfo(dtype if jnp.issubdtype(dtype, jnp.floating) else np.float64)
  most = (_ROUNDING_OF_STORAGE if info.bits < 32 else _ROUNDING) * float(info.eps)
  return np.ptp(array, axis=0) <= most * np.abs(array).max(0)


def standardised(features: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Features [n, F] in float64 with mean 0 and variance 1, their means in units of deviations, and the deviations [F].

  A feature that is constant but for rounding becomes 0, and its deviation is infinite: it gets no weight.

  >>> rows, means, deviations = standardised(np.array([[1e200, 0.1], [3e200, 0.1]]))
  >>> rows.tolist(), means.tolist(), deviations.tolist()
  ([[-1.0, 0.0], [1.0, 0.0]], [2.0, 0.0], [1e+200, inf])
  """
  dtype, features = features.dtype, np.asarray(features, np.float64)
  # The squares of numbers at the ends of float64's range would be 0 or infinite.
  units = np.abs(features).max(0)
  units[units < _LEAST_FEATURE] = np.inf
  features = features / units
  deviations = features.std(0)
  deviations[are_constant(features, dtype)] = np.inf
  means = features.mean(0) / deviations
  return features / deviations - means, means, deviations * units


def principal_directions(features: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """The mean [F] of features [n, F], and the singular values [R] and right singular vectors [R, F] about it."""
  center = features.mean(0)
  _, sizes, directions = np.linalg.svd(features - center, full_matrices=False)
  return center, sizes, directions


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
