"""Every sequence up to a length, and all texts of one length with their probabilities, labels and features.

Texts with a common end share messages, so that V^T texts cost about V^T H (H + V) products on the host. All terms of
sums are nonnegative, so that even tiny probabilities have a small relative error.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hmm_jax._support.float64 import positive_or_one
from hmm_jax.distributions.hmm import Distribution
from hmm_jax.theory import assumptions
from hmm_jax.theory.problem import StateProblem


class Texts(NamedTuple):
  """Texts x of T tokens after a masked first one, likeliest first.

  Attributes:
    tokens: [n, T] int32.
    probs: [n], P[X_{1:T} = x]; over all texts they sum to 1.
    features: [n, V], G_1 of (MASK, x).
    labels: [n], F* of P[H_0 | x]; ties go to the lower class, as in the paper's F* = 1.
    gaps: [n], distance of the label from a tie: the difference of the two best scores in units of |mu| P[H_0 | x], with
      a rounding error of about 1e-15. Infinite where mu weighs no possible state: 0 >= 0 is no near tie.
  """

  tokens: np.ndarray
  probs: np.ndarray
  features: np.ndarray
  labels: np.ndarray
  gaps: np.ndarray

  def selected(self, chosen: np.ndarray) -> 'Texts':
    """The texts of a mask or of indices."""
    return Texts(*(field[chosen] for field in self))


def all_texts(num_tokens: int, length: int) -> np.ndarray:
  """Every text of `length` tokens, [V^T, T] int32, in the order of their digits."""
  return np.indices((num_tokens,) * length, np.int32).reshape(length, -1).T


def all_sequences(num_tokens: int, longest: int, length: int) -> np.ndarray:
  """Every sequence of 1 to `longest` tokens, [n, length] int32, with [MASK] (id V) after the end.

  A [MASK] at the end is no evidence, so that posteriors and predictions at the tokens are those of the shorter
  sequence.
  """
  padded = []
  for size in range(1, longest + 1):
    tokens = all_texts(num_tokens, size)
    padded.append(np.pad(tokens, ((0, 0), (0, length - size)), constant_values=num_tokens))
  return np.concatenate(padded)


def possible_sequences(distribution: Distribution, longest: int, length: int) -> np.ndarray:
  """The sequences of `all_sequences` that have positive probability."""
  moves = np.asarray(distribution.transition_matrix)
  emissions_VxE = np.asarray(distribution.joint_emission_matrix).T
  # A [MASK] can follow any state.
  rows = np.vstack([emissions_VxE, np.ones_like(emissions_VxE[:1])]).reshape(len(emissions_VxE) + 1, -1, len(moves))
  tokens = all_sequences(len(emissions_VxE), longest, length)
  reached_CxH = np.asarray(distribution.joint_initial_probs).reshape(-1, len(moves))
  for token in tokens[:, :longest].T:
    reached_CxH = (reached_CxH * rows[token]) @ moves
  return tokens[reached_CxH.any((1, 2))]


def possible_texts(problem: StateProblem, length: int) -> Texts:
  """The texts of `length` tokens with positive probability, likeliest first.

  Rows of the HMM are divided by their sums.
  """
  mu = assumptions.contrasts(problem.task_weights)
  silent_probs, initial_probs, transition_matrix, W_HxV = map(normalised, (problem.silent_probs, *problem.hmm[:3]))
  following_nxH = _following(transition_matrix, W_HxV, length)
  probs = following_nxH @ silent_probs
  order = np.argsort(-probs, kind='stable')[: np.count_nonzero(probs)]
  states_nxH = normalised(following_nxH[order] * silent_probs)
  scores, sizes = states_nxH @ mu.T, (states_nxH @ np.abs(mu).T).max(-1)
  best = np.sort(scores, axis=-1)
  return Texts(
    all_texts(problem.hmm.num_tokens, length)[order],
    probs[order],
    normalised(following_nxH[order] * initial_probs) @ W_HxV,
    scores.argmax(-1),
    np.divide(best[:, -1] - best[:, -2], sizes, out=np.full(len(sizes), np.inf), where=sizes > 0),
  )


def _following(transition_matrix: np.ndarray, W_HxV: np.ndarray, length: int) -> np.ndarray:
  """P[X_{1:T} = x | H_0 = h] of every text, [V^T, H], in the order of `all_texts`."""
  following_nxH = np.ones((1, len(W_HxV)))
  for _ in range(length):
    # The token before all others is the first digit.
    following_nxH = ((W_HxV.T[:, None] * following_nxH) @ transition_matrix.T).reshape(-1, len(W_HxV))
  return following_nxH


def normalised(weights: ArrayLike) -> np.ndarray:
  """Rows, on the last axis, divided by their sums in float64; zero rows stay zero."""
  weights = np.asarray(weights, np.float64)
  return weights / positive_or_one(weights.sum(-1, keepdims=True))
