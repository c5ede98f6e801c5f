"""The fair rivals on a CPU: what one would write by hand as loops, compiled by numba for all cores. Needs numba."""

import numba
import numpy as np


@numba.njit(parallel=True)
def forward_backward(
  initial_probs: np.ndarray, transition_matrix: np.ndarray, rows: np.ndarray, everything: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
  """Scaled messages in float64, a sequence a thread: `(smoothed, filtered, predicted, loglik)` of rows [B, T, H].

  Unless `everything` is asked for, only the first means anything, and takes memory.
  """
  num_sequences, length, num_states = rows.shape
  smoothed = np.empty(rows.shape)
  # Without a need for it, what was filtered is overwritten step by step, as one would by hand.
  filtered = np.empty(rows.shape) if everything else smoothed
  predicted = np.empty(rows.shape) if everything else smoothed
  loglik = np.zeros(num_sequences)
  for b in numba.prange(num_sequences):
    message = initial_probs.copy()
    for t in range(length):
      if everything:
        predicted[b, t] = message
      message = message * rows[b, t]
      total = message.sum()
      message /= total
      if everything:
        loglik[b] += np.log(total)
      filtered[b, t] = message
      message = np.dot(message, transition_matrix)
    future = np.ones(num_states)
    for t in range(length - 1, -1, -1):
      joint = filtered[b, t] * future
      smoothed[b, t] = joint / joint.sum()
      future = np.dot(transition_matrix, future * rows[b, t])
      future /= future.sum()
  return smoothed, filtered, predicted, loglik


@numba.njit
def _draw(threshold: np.ndarray, alias: np.ndarray) -> int:
  """Walker's alias method from one uniform number, as ours."""
  scaled = np.random.random() * len(threshold)
  column = int(scaled)
  return column if scaled - column < threshold[column] else alias[column]


@numba.njit(parallel=True)
def sample(
  initial: tuple[np.ndarray, ...],
  transition: tuple[np.ndarray, ...],
  emission: tuple[np.ndarray, ...],
  num_documents: int,
  length: int,
  seed: int,
) -> np.ndarray:
  """Tokens [S, T] of an HMM, uint8, a document a thread, of tables `(threshold, alias)`."""
  tokens = np.empty((num_documents, length), np.uint8)
  for d in numba.prange(num_documents):
    # Numba's generators are one a thread, which may take any documents.
    np.random.seed(seed + d)
    state = _draw(initial[0], initial[1])
    for t in range(length):
      tokens[d, t] = _draw(emission[0][state], emission[1][state])
      state = _draw(transition[0][state], transition[1][state])
  return tokens
