"""Token sequences that claims are checked on: every one up to a length, those that can occur, and sampled ones."""

from typing import NamedTuple

import jax
from jax import Array
import numpy as np

from hmm_jax._support import compilation
from hmm_jax.distributions.hmm import Distribution
from hmm_jax.distributions.sampling import sample_corpus
from hmm_jax.theory.enumeration import all_texts
from hmm_jax.theory.problem import Problem, StateProblem


def all_sequences(num_tokens: int, max_length: int) -> np.ndarray:
  """Every sequence of 1 to `max_length` tokens, [n, T] int32, with [MASK] (id V) after the end.

  A [MASK] at the end is no evidence, so that posteriors and predictions at the tokens are those of the shorter
  sequence.
  """
  padded = [
    np.pad(all_texts(num_tokens, length), ((0, 0), (0, max_length - length)), constant_values=num_tokens)
    for length in range(1, max_length + 1)
  ]
  return np.concatenate(padded)


class Supports(NamedTuple):
  """Supports of a distribution.

  Attributes:
    start: [C, H], of each configuration of the memory; C = 1 without one.
    moves: [H, H], from state to state.
    emits: [V + 1, C, H], with a row of all for [MASK].
  """

  start: np.ndarray
  moves: np.ndarray
  emits: np.ndarray


def supports(distribution: Distribution) -> Supports:
  """The supports of the probabilities."""
  moves = np.asarray(distribution.transition_matrix) > 0
  emits_VxE = np.asarray(distribution.joint_emission_matrix).T > 0
  emits_VxCxH = np.concatenate([emits_VxE, np.ones_like(emits_VxE[:1])]).reshape(len(emits_VxE) + 1, -1, len(moves))
  return Supports((np.asarray(distribution.joint_initial_probs) > 0).reshape(-1, len(moves)), moves, emits_VxCxH)


def possible_sequences(support: Supports, max_length: int, most: float = np.inf) -> np.ndarray:
  """The sequences of `all_sequences` that have positive probability, shortest first, [n, max_length].

  `most` ends before the first length with more of them.
  """
  alive, tokens, every = support.start[None], np.zeros((1, 0), np.int32), list[np.ndarray]()
  for length in range(1, max_length + 1):
    extended = alive[:, None] & support.emits[:-1]
    before, token = np.nonzero(extended.any((2, 3)))
    if len(before) > most and every:
      break
    tokens, alive = np.column_stack([tokens[before], token.astype(np.int32)]), extended[before, token] @ support.moves
    every.append(np.pad(tokens, ((0, 0), (0, max_length - length)), constant_values=len(support.emits) - 1))
  return np.concatenate(every)


def possible(support: Supports, tokens: np.ndarray) -> np.ndarray:
  """Mask [n] of the sequences [n, T], ended by [MASK]s, with positive probability."""
  return np.asarray(_reached(support, tokens)[-1].any(0))


def reaching(support: Supports, problem: Problem, recovered: np.ndarray) -> Supports:
  """Supports if H_0 is one of the states `recovered`, or if the task's cell holds one of those values."""
  if isinstance(problem, StateProblem):
    states = np.zeros(len(support.moves), bool)
    states[recovered] = problem.silent_probs[recovered] > 0
    return support._replace(start=states[None] @ support.moves)
  num_cells = problem.hmm.num_cells
  size = round(len(support.start) ** (1 / num_cells))
  values = np.indices((size,) * num_cells).reshape(num_cells, -1)[problem.cell]
  return support._replace(start=support.start & np.isin(values, recovered)[:, None])


def in_region(support: Supports, states: np.ndarray, tokens: np.ndarray) -> np.ndarray:
  """Mask [n] of the sequences [n, T], ended by [MASK]s, in R (4.3) for H* = `states`.

  These can occur and have a position whose state surely lies in H*, given all other tokens.
  """
  inside, certain = sum(1 << state for state in states), np.zeros(len(tokens), bool)
  *before, end = _reached(support, tokens)
  backwards = support._replace(start=np.ones_like(support.start), moves=support.moves.T)
  after = _reached(backwards, tokens[:, :0:-1])
  for arrival, later, now in zip(before, reversed(after), tokens.T, strict=True):
    possible_states = np.bitwise_or.reduce(arrival & later)
    certain |= (possible_states > 0) & (possible_states & ~inside == 0) & (now < len(support.emits) - 1)
  return certain & np.asarray(end.any(0))


def _reached(support: Supports, tokens: np.ndarray) -> list[np.ndarray]:
  """The set of states [C, n] that is possible before each token of sequences [n, T], and after the last one.

  A set is an integer with a bit for each state, so that a step is a look-up among the 2^H sets.
  """
  bit = 1 << np.arange(len(support.moves))
  as_set = lambda has_state: has_state @ bit
  every_set = np.arange(2 ** len(bit))[:, None] & bit
  moved, emits_CxV = as_set(every_set @ support.moves > 0), as_set(support.emits).T
  reached = [np.broadcast_to(as_set(support.start)[:, None], (len(support.start), len(tokens)))]
  for now in tokens.T:
    reached.append(moved.take(reached[-1] & emits_CxV.take(now, axis=1)))
  return reached


def sampled(distribution: Distribution, key: Array, count: int, length: int) -> np.ndarray:
  """Texts [count, length] int32 of a distribution with float64 parameters, drawn in float32."""
  return np.asarray(_sampled(key, distribution, count, length), np.int32)


# Each size of a distribution compiles a program that draws little: optimising it costs more than it saves.
_sampled = jax.jit(sample_corpus, static_argnums=(2, 3), compiler_options=compilation.ONCE)
