"""Problems of different sizes padded to one size, so that they share a program, without a change of results.

Added states and values have probability 0, other states never emit added tokens, and added weights are 0.
"""

from typing import Any, NamedTuple

import numpy as np

from hmm_jax.distributions.hmm import HMM
from hmm_jax.distributions.memory_hmm import MemoryHMM
from hmm_jax.tuning.heads import AttentionHead, LinearHead


class PaddedSizes(NamedTuple):
  """The sizes to pad to.

  Attributes:
    num_states: H.
    num_tokens: V.
    memory_size: M.
    num_outputs: columns of a head.
  """

  num_states: int
  num_tokens: int
  memory_size: int
  num_outputs: int


def zero_pad(array: Any, *shape: int) -> np.ndarray:
  """The array with zeros after the last entry of each axis."""
  array = np.asarray(array)
  return np.pad(array, [(0, size - have) for size, have in zip(shape, array.shape)])


def remasked(tokens: np.ndarray, num_tokens: int, padded: PaddedSizes) -> np.ndarray:
  """The tokens with the id of [MASK] in the larger vocabulary."""
  return np.where(tokens == num_tokens, padded.num_tokens, tokens).astype(np.int32)


def chain(hmm: Any, padded: PaddedSizes) -> Any:
  """An `HMM` or `MemoryHMM` with added states, tokens and values of probability 0; added states stay and emit 0."""
  H, V, M = padded.num_states, padded.num_tokens, padded.memory_size
  transition_matrix = zero_pad(hmm.transition_matrix, H, H)
  added = np.arange(hmm.num_states, H)
  transition_matrix[added, added] = 1
  # With a memory, emissions have an axis of its values, and first laws may have one for each cell.
  emission_matrix = zero_pad(hmm.emission_matrix, *[M] * (np.ndim(hmm.emission_matrix) - 2), H, V)
  emission_matrix[emission_matrix.sum(-1) == 0, 0] = 1
  first_probs = zero_pad(hmm.initial_probs, *[M] * (np.ndim(hmm.initial_probs) - 1), H)
  first_probs[first_probs.sum(-1) == 0, 0] = 1
  hmm = hmm._replace(initial_probs=first_probs, transition_matrix=transition_matrix, emission_matrix=emission_matrix)
  if isinstance(hmm, HMM):
    return hmm
  memory_probs = zero_pad(hmm.memory_probs, *[M] * hmm.num_cells)
  return hmm._replace(memory_probs=memory_probs, cell_index=zero_pad(hmm.cell_index, H))


def prompt_of(hmm: HMM | MemoryHMM, prompt: np.ndarray, padded: PaddedSizes) -> np.ndarray:
  """The rows [P, E] over the joint states of the padded distribution."""
  if isinstance(hmm, HMM):
    return zero_pad(prompt, len(prompt), padded.num_states)
  by_cell = prompt.reshape((len(prompt),) + hmm.memory_probs.shape + (hmm.num_states,))
  rows = zero_pad(by_cell, len(prompt), *[padded.memory_size] * hmm.num_cells, padded.num_states)
  return rows.reshape(len(prompt), padded.memory_size**hmm.num_cells * padded.num_states)


def head(params: Any, padded: PaddedSizes) -> Any:
  """The attention head with added keys, values, tokens and outputs of weight 0; the row of [MASK] stays last.

  A linear head stays as it is: it reads the tokens that it has weights for.
  """
  if isinstance(params, LinearHead):
    return params
  Q, F, V = padded.num_states + 1, padded.num_states * padded.memory_size, padded.num_tokens
  of_tokens, of_mask = params.token_embeddings[:-1], params.token_embeddings[-1:]
  return AttentionHead(
    query=zero_pad(params.query, Q),
    key_weights=zero_pad(params.key_weights, Q, V),
    positions=zero_pad(params.positions, len(params.positions), Q),
    value_weights=zero_pad(params.value_weights, F, V),
    token_embeddings=np.vstack([zero_pad(of_tokens, V, F), zero_pad(of_mask, 1, F)]),
    prompt_embeddings=zero_pad(params.prompt_embeddings, len(params.prompt_embeddings), F),
    output=zero_pad(params.output, F, padded.num_outputs),
  )
