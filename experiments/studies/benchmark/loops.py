"""The fair rivals on a CPU: what one would write by hand as loops, compiled by numba for all cores. Needs numba."""

import numba
import numpy as np


@numba.njit(parallel=True)
def forward_backward(initial_probs, transition_matrix, rows):
  """Scaled messages in float64, a sequence a thread: `(filtered, predicted, smoothed, loglik)` of rows [B, T, H]."""
  num_sequences, length, num_states = rows.shape
  filtered = np.empty(rows.shape)
  predicted = np.empty(rows.shape)
  smoothed = np.empty(rows.shape)
  loglik = np.empty(num_sequences)
  for b in numba.prange(num_sequences):
    loglik[b] = 0.0
    message = initial_probs.copy()
    for t in range(length):
      predicted[b, t] = message
      message = message * rows[b, t]
      total = message.sum()
      message /= total
      loglik[b] += np.log(total)
      filtered[b, t] = message
      message = np.dot(message, transition_matrix)
    future = np.ones(num_states)
    for t in range(length - 1, -1, -1):
      joint = filtered[b, t] * future
      smoothed[b, t] = joint / joint.sum()
      future = np.dot(transition_matrix, future * rows[b, t])
      future /= future.sum()
  return filtered, predicted, smoothed, loglik


@numba.njit(parallel=True)
def smooth(initial_probs, transition_matrix, rows):
  """Of the same P[H_t | x_{1:T}] alone."""
  num_sequences, length, num_states = rows.shape
  smoothed = np.empty(rows.shape)
  for b in numba.prange(num_sequences):
    message = initial_probs.copy()
    for t in range(length):
      message = message * rows[b, t]
      message /= message.sum()
      smoothed[b, t] = message
      message = np.dot(message, transition_matrix)
    future = np.ones(num_states)
    for t in range(length - 1, -1, -1):
      joint = smoothed[b, t] * future
      smoothed[b, t] = joint / joint.sum()
      future = np.dot(transition_matrix, future * rows[b, t])
      future /= future.sum()
  return smoothed


@numba.njit
def _draw(threshold, alias):
  """Walker's alias method from one uniform number, as ours."""
  scaled = np.random.random() * len(threshold)
  column = int(scaled)
  return column if scaled - column < threshold[column] else alias[column]


@numba.njit(parallel=True)
def sample(initial, transition, emission, num_documents, length, seed):
  """Tokens [S, T] of an HMM, uint8, a document a thread, of tables `(threshold, alias)`."""
  tokens = np.empty((num_documents, length), np.uint8)
  for d in numba.prange(num_documents):
    np.random.seed(seed + d)
    state = _draw(initial[0], initial[1])
    for t in range(length):
      tokens[d, t] = _draw(emission[0][state], emission[1][state])
      state = _draw(transition[0][state], transition[1][state])
  return tokens
