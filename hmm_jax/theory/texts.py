"""Token sequences that claims are checked on: every one up to a length, and sampled ones."""

from jax import Array
import numpy as np

from hmm_jax.distributions.hmm import Distribution
from hmm_jax.theory.enumeration import all_texts
from hmm_jax.tuning.tasks import draw_texts


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


def sampled(distribution: Distribution, key: Array, count: int, length: int) -> np.ndarray:
  """Texts [count, length] int32 of a distribution, drawn in float32."""
  return np.asarray(draw_texts(key, distribution, 0, count, length)[1])
