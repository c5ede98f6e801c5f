"""Token sequences that claims are checked on: every one up to a length, those that can occur, and sampled ones."""

import jax
from jax import Array
import numpy as np

from hmm_jax.hmm import Distribution
from hmm_jax.sampling import sample_corpus


def all_sequences(num_tokens: int, max_length: int) -> np.ndarray:
  """Every sequence of 1 to `max_length` tokens, [n, T] int32, with [MASK] (id V) after the end.

  A [MASK] at the end says nothing, so that posteriors and predictions at the tokens are those of the shorter sequence.
  """
  of_length = lambda length: np.indices((num_tokens,) * length, np.int32).reshape(length, -1).T
  padded = [
    np.pad(of_length(length), ((0, 0), (0, max_length - length)), constant_values=num_tokens)
    for length in range(1, max_length + 1)
  ]
  return np.concatenate(padded)


def possible_sequences(distribution: Distribution, max_length: int) -> np.ndarray:
  """The sequences of `all_sequences` that have positive probability, by the supports alone, shortest first."""
  moves = np.asarray(distribution.transition_matrix) > 0
  emits_VxE = np.asarray(distribution.joint_emission_matrix).T > 0
  alive = np.asarray(distribution.joint_initial_probs)[None] > 0
  tokens, found = np.zeros((1, 0), np.int32), []
  for length in range(1, max_length + 1):
    if length > 1:
      alive = (alive.reshape(len(alive), -1, len(moves)) @ moves).reshape(alive.shape)
    extended = alive[:, None] & emits_VxE
    before, token = np.nonzero(extended.any(-1))
    tokens, alive = np.column_stack([tokens[before], token.astype(np.int32)]), extended[before, token]
    found.append(np.pad(tokens, ((0, 0), (0, max_length - length)), constant_values=len(emits_VxE)))
  return np.concatenate(found)


def sampled(distribution: Distribution, key: Array, count: int, length: int) -> np.ndarray:
  """Texts [count, length] int32 of a distribution with float64 parameters, drawn in float32."""
  as_float32 = jax.tree.map(lambda x: x.astype(np.float32) if x.dtype == np.float64 else x, distribution)
  return np.asarray(sample_corpus(key, as_float32, count, length), np.int32)
