"""A head that is a form of degree k in G: which labels it gives where the posterior is a point mass.

Theorem. Let w_h = P[token | state h] and suppose that the symmetric powers of degree k of the |H| vectors w_h are
linearly independent. Then for every mu some form q of degree k in G has q(w_h) = mu_h for all h. So it gives every
label of every text whose posterior is a point mass. The assumption holds for all W but a null set if and only if
|H| <= C(V + k - 1, k): 10 at k = 1, as in Theorem 3.3, and 55 at k = 2, for V = 10.

On other posteriors p the form adds products of several p_h that nobody chose. No function of G, of any degree, has
f(W p) = mu^T p for all p unless mu is orthogonal to the kernel of W, where a linear head has it too. Proofs:
docs/findings/readability.md.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hmm_jax._support.float64 import float64
from hmm_jax.tuning.heads import LinearHead
from hmm_jax.tuning.nonlinear import power_features


class Powers(NamedTuple):
  """The symmetric powers of degree k of the states' emission laws.

  Attributes:
    matrix: [|H|, C(V + k - 1, k)], a row for each state.
    singular_values: [min of both sizes], descending.
    rank: the number of singular values above `rank_threshold` of the largest.
  """

  matrix: np.ndarray
  singular_values: np.ndarray
  rank: int


def emission_powers(emission_matrix: ArrayLike, degree: int, rank_threshold: float = 1e-9) -> Powers:
  """The powers of the rows of an emission matrix [|H|, V], their singular values and their rank.

  >>> emissions = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])  # three states, two tokens
  >>> emission_powers(emissions, 1).rank, emission_powers(emissions, 2).rank
  (2, 3)
  """
  matrix = power_features(float64(emission_matrix), degree)
  singular_values = np.linalg.svd(matrix, compute_uv=False)
  return Powers(matrix, singular_values, int((singular_values > rank_threshold * singular_values[0]).sum()))


def form_head(
  emission_matrix: ArrayLike, task_weights: ArrayLike, degree: int, rank_threshold: float = 1e-9
) -> LinearHead:
  """The least form of the theorem, a head on `power_features(G, degree)` with scores mu_h where p is surely h.

  Args:
    emission_matrix: [|H|, V].
    task_weights: mu, [C, |H|].
    degree: k.
    rank_threshold: singular values up to this share of the largest count as zero.

  Raises:
    ValueError: the powers are linearly dependent.

  >>> emissions, mu = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]), np.array([[1.0, 1.0, -1.0], [0.0, 0.0, 0.0]])
  >>> head = form_head(emissions, mu, 2)
  >>> (power_features(emissions, 2) @ head.weights)[:, 0].round(6).tolist()
  [1.0, 1.0, -1.0]
  """
  powers = emission_powers(emission_matrix, degree, rank_threshold)
  if powers.rank < len(powers.matrix):
    raise ValueError(
      f'degree is {degree}, at which the {len(powers.matrix)} powers have rank {powers.rank}; valid is one at which '
      'they are linearly independent'
    )
  weights = np.linalg.pinv(powers.matrix) @ float64(task_weights).T
  return LinearHead(weights, np.zeros(weights.shape[1]))
