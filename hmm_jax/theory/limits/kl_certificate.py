"""From KL to accuracy: the accuracy on the exact G that a linear head keeps on a model near it.

A head scores class c by b_c^T p + beta_c of a distribution p over tokens. On the exact G the label y of x is ahead of c
by m_c(x) = (b_y - b_c)^T G(x) + beta_y - beta_c. With another model's G' in its place that changes by

  (b_y - b_c)^T (G' - G) = TV(x) (b_y - b_c)^T (P - Q), at most TV(x) osc(b_y - b_c) in size,

where TV is half the L1 distance, P and Q are the normalised positive and negative parts of G' - G, both distributions,
and osc is the largest entry minus the smallest. So with the relative margin rho(x) = min_c m_c(x) / osc(b_y - b_c) over
all other classes c, the label stays strictly first where rho(x) > TV(x): x is certified. To take the label from x a
model needs TV(x) >= rho(x), hence by Pinsker KL(G(x) || G'(x)) >= 2 rho(x)^2. From means alone:

  A model of mean TV t, or of mean KL k, takes at most the share of labels that the fractional knapsack does, the
  cheapest inputs first, until it has spent t, or k, at the cost rho(x), or 2 rho(x)^2, an input.

This bound is at least Markov's, P(rho >= gamma) - k / (2 gamma^2) for every gamma > 0, and the best from margins and
costs alone. Where TV is nearly the same on all inputs, KL may certify more than TV does. P and mean are over the given
inputs, such as a test set. The bounds hold for one fixed head, not for one tuned on the model itself.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
import scipy.special

from hmm_jax.float64 import float64
from hmm_jax.heads import LinearHead
from hmm_jax.theory.problems.enumeration import normalised

# Relative margins must exceed the distance by more than their rounding.
_ROUNDING = 1e-12


class Certificate(NamedTuple):
  """Accuracy of a head on a model, and bounds of it; shares of the inputs.

  Attributes:
    accuracy: inputs whose label the head puts strictly first, measured.
    certified: inputs with rho > TV, at most the accuracy.
    from_total_variation: the bound by the mean of TV, at most `certified`.
    from_kl: the bound by the mean of KL, at most `certified`.
    total_variation: mean of TV(G, model).
    kl: mean of KL(G || model), nats.
  """

  accuracy: float
  certified: float
  from_total_variation: float
  from_kl: float
  total_variation: float
  kl: float


def certify(head: LinearHead, ideal_probs: ArrayLike, model_probs: ArrayLike, labels: ArrayLike) -> Certificate:
  """Accuracy that a fixed head keeps on a model: by input, by mean TV and by mean KL.

  Args:
    head: weights [V, C] and bias [C].
    ideal_probs: the exact G [n, V].
    model_probs: the model's [n, V] on the same inputs; each row is divided by its sum.
    labels: [n] ints below C.

  >>> head, labels = LinearHead(np.eye(2), np.zeros(2)), np.array([0, 1])
  >>> found = certify(head, np.array([[0.9, 0.1], [0.4, 0.6]]), np.array([[0.8, 0.2], [0.55, 0.45]]), labels)
  >>> found.accuracy, found.certified
  (0.5, 0.5)
  """
  ideal, model = map(normalised, (ideal_probs, model_probs))
  distances = np.abs(ideal - model).sum(-1) / 2
  divergences = scipy.special.rel_entr(ideal, np.maximum(model, np.finfo(np.float32).tiny)).sum(-1)
  relative = relative_margins(head, ideal, labels)
  total_variation, kl = float(distances.mean()), max(float(divergences.mean()), 0.0)
  costs = np.where(relative > _ROUNDING, relative, 0)
  return Certificate(
    accuracy=float((_margins(head, model, labels).min(-1) > 0).mean()),
    certified=float((relative > distances + _ROUNDING).mean()),
    from_total_variation=least_kept(costs, total_variation),
    from_kl=least_kept(2 * costs**2, kl),
    total_variation=total_variation,
    kl=kl,
  )


def relative_margins(head: LinearHead, ideal_probs: ArrayLike, labels: ArrayLike) -> np.ndarray:
  """rho [n], the least over other classes c of m_c(x) / osc(b_y - b_c): the label stays first while TV(x) is below it.

  Where b_y - b_c is constant, the bias decides on every model: rho is infinite with the sign of m_c.
  """
  labels = np.asarray(labels)
  margins, columns = _margins(head, float64(ideal_probs), labels), float64(head.weights).T
  oscillation = np.ptp(columns[:, None] - columns, axis=-1)[labels]
  varies = oscillation > 0
  infinite = np.where(margins > 0, np.inf, -np.inf)
  return np.where(varies, margins / np.where(varies, oscillation, 1), infinite).min(-1)


def least_kept(costs: np.ndarray, budget: float) -> float:
  """The share of inputs that keep their label if others lose it, cheapest first, for `budget` in the mean over all.

  Args:
    costs: [n], the cost of taking the label from an input; 0 where the head is wrong already.
    budget: the mean cost spent; a part of a cost takes that part of an input.
  """
  cheapest = np.sort(costs[costs > 0])
  shares = np.arange(len(cheapest) + 1) / len(costs)
  return float(shares[-1] - np.interp(budget, np.append(0, cheapest.cumsum()) / len(costs), shares))


def _margins(head: LinearHead, probs: np.ndarray, labels: ArrayLike) -> np.ndarray:
  """m_c(x) [n, C], infinite for the label itself.

  Computed from the difference of two columns, whose common part may be large, and so its rounding.
  """
  columns, bias = float64(head.weights).T, float64(head.bias)
  labels = np.asarray(labels)
  ahead_CxCxV = columns[:, None] - columns
  margins = np.einsum('nv,ncv->nc', probs, ahead_CxCxV[labels]) + (bias[:, None] - bias)[labels]
  margins[np.arange(len(margins)), labels] = np.inf
  return margins
