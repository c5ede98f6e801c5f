"""Multinomial logistic regression run to its optimum: a linear head without a schedule, on features that are given."""

from typing import NamedTuple

import numpy as np
import scipy.optimize
import scipy.special

from hmm_jax.heads import LinearHead


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
  features, labels: np.ndarray, *, num_classes: int, ridge: float, tolerance: float, max_iterations: int
) -> Converged:
  """The linear head with the least mean cross-entropy + ridge / 2 (|weights|^2 + |bias|^2), by L-BFGS in float64.

  The start is 0. With a ridge of 1e-6, the suite's, labels that features separate are fitted with few exceptions, and
  the optimum is unique all the same.

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
  arguments = with_ones, np.eye(num_classes)[labels], ridge
  start = np.zeros(with_ones.shape[1] * num_classes)
  options = dict(maxiter=max_iterations, maxfun=2 * max_iterations, maxcor=20, gtol=tolerance, ftol=0.0)
  found = scipy.optimize.minimize(_loss, start, arguments, method='L-BFGS-B', jac=True, options=options)
  _, gradient = _loss(found.x, *arguments)
  if np.abs(gradient).max() > tolerance:
    raise ValueError(
      f'max_iterations is {max_iterations}; valid is more, or a tolerance above {np.abs(gradient).max():.2g}'
    )
  parameters = found.x.reshape(-1, num_classes)
  head = LinearHead(parameters[:-1], parameters[-1])
  return Converged(head, float(np.linalg.norm(gradient)), int(found.nit))


def _loss(parameters: np.ndarray, features: np.ndarray, targets: np.ndarray, ridge: float) -> tuple[float, np.ndarray]:
  """The loss and its gradient, both of parameters [(F + 1) C] with the bias last."""
  weights = parameters.reshape(-1, targets.shape[1])
  scores = features @ weights
  log_sums = scipy.special.logsumexp(scores, axis=1)
  residuals = np.exp(scores - log_sums[:, None]) - targets
  loss = (log_sums - (scores * targets).sum(1)).mean() + ridge / 2 * (weights**2).sum()
  return loss, (features.T @ residuals / len(features) + ridge * weights).ravel()
