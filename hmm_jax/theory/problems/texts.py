"""Token sequences that claims are checked on: every one up to a length, those that can occur, and sampled ones."""

from typing import NamedTuple

import jax
from jax import Array
import numpy as np

from hmm_jax.hmm import Distribution
from hmm_jax.sampling import sample_corpus


def all_sequences(num_tokens: int, max_length: int) -> np.ndarray:
  """Every sequence of 1 to `max_length` tokens, [n, T] int32, with [MASK] (id V) after the end.

  A [MASK] at the end says nothing, so that posteriors and predictions at the tokens are those of the shorter sequence.
  """
  all_of_length = lambda length: np.indices((num_tokens,) * length, np.int32).reshape(length, -1).T
  padded = [
    np.pad(all_of_length(length), ((0, 0), (0, max_length - length)), constant_values=num_tokens)
    for length in range(1, max_length + 1)
  ]
  return np.concatenate(padded)


class Supports(NamedTuple):
  """What of a distribution is possible.

  Attributes:
    start: [C, H], of each configuration of the memory; C = 1 without one.
    moves: [H, H], from state to state.
    emits: [V + 1, C, H], with a row of all for [MASK].
  """

  start: np.ndarray
  moves: np.ndarray
  emits: np.ndarray


def supports(distribution: Distribution) -> Supports:
  """Where the probabilities are positive."""
  moves = np.asarray(distribution.transition_matrix) > 0
  emits_VxE = np.asarray(distribution.joint_emission_matrix).T > 0
  emits_VxCxH = np.concatenate([emits_VxE, np.ones_like(emits_VxE[:1])]).reshape(len(emits_VxE) + 1, -1, len(moves))
  return Supports((np.asarray(distribution.joint_initial_probs) > 0).reshape(-1, len(moves)), moves, emits_VxCxH)


def possible_sequences(found: Supports, max_length: int, most: int | None = None) -> np.ndarray:
  """The sequences of `all_sequences` that have positive probability, shortest first, [n, max_length].

  With `most`, those up to the largest length that has no more of them.
  """
  mask, chain = len(found.emits) - 1, _in_bits(found)
  alive, tokens, every = chain.start[None], np.zeros((1, 0), np.int32), list[np.ndarray]()
  for length in range(1, max_length + 1):
    alive = _moved(alive, chain.moves) if length > 1 else alive
    extended = alive[:, None] & chain.emits[:-1]
    before, token = np.nonzero(extended.any(-1))
    if most is not None and len(before) > most and every:
      break
    tokens, alive = np.column_stack([tokens[before], token.astype(np.int32)]), extended[before, token]
    every.append(np.pad(tokens, ((0, 0), (0, max_length - length)), constant_values=mask))
  return np.concatenate(every)


def possible(found: Supports, tokens: np.ndarray) -> np.ndarray:
  """Which sequences [n, T], ended by [MASK]s, have positive probability, [n]."""
  chain = _in_bits(found)
  alive = np.broadcast_to(chain.start, (len(tokens), len(chain.start)))
  for now in tokens.T:
    alive = _moved(alive & chain.emits[now], chain.moves)
  return np.asarray(alive.any(1))


def holding(found: Supports, configurations: np.ndarray) -> Supports:
  """What is possible if the memory is one of these configurations, [C] of truth values."""
  return found._replace(start=found.start & configurations[:, None])


def after_silent(found: Supports, states: np.ndarray) -> Supports:
  """What is possible one step after a silent state that is one of these, [H] of truth values."""
  return found._replace(start=states[None] @ found.moves)


def in_region(found: Supports, states: np.ndarray, tokens: np.ndarray) -> np.ndarray:
  """Which sequences [n, T], ended by [MASK]s, are in R (4.3) for H* = `states`: [n].

  Those that can occur and have a position whose state surely lies in H*, given all other tokens.
  """
  chain, back = _in_bits(found), _successors(found.moves.T)
  before, arrivals = np.broadcast_to(chain.start, (len(tokens), len(chain.start))), []
  for now in tokens.T:
    arrivals.append(before)
    before = _moved(before & chain.emits[now], chain.moves)
  possible = before.any(1)
  elsewhere = _bits(~np.isin(np.arange(len(found.moves)), states))
  after, certain = np.full_like(before, _bits(np.ones(len(found.moves), bool))), np.zeros(len(tokens), bool)
  for arrival, now in zip(reversed(arrivals), tokens.T[::-1]):
    state_possible = np.bitwise_or.reduce(arrival & after, axis=1)
    certain |= (state_possible > 0) & (state_possible & elsewhere == 0) & (now < len(found.emits) - 1)
    after = _moved(after & chain.emits[now], back)
  return certain & possible


class _InBits(NamedTuple):
  """`Supports` with each set of states as one integer: start [C], emits [V + 1, C], and moves of `_successors`."""

  start: np.ndarray
  moves: np.ndarray
  emits: np.ndarray


def _in_bits(found: Supports) -> _InBits:
  return _InBits(_bits(found.start), _successors(found.moves), _bits(found.emits))


def _bits(states: np.ndarray) -> np.ndarray:
  """Sets of at most 62 states, [..., H] of truth values, as integers [...]."""
  return states @ (1 << np.arange(states.shape[-1]))


def _successors(moves: np.ndarray) -> np.ndarray:
  """What every set of states can move to, eight neighbouring ones at a time: [ceil(H / 8), 256], to be looked up."""
  size = len(moves)
  padded = np.pad(moves, ((0, -size % 8), (0, 0)))
  members = (np.arange(256)[:, None] >> np.arange(8) & 1).astype(bool)
  return np.array([_bits(members.astype(int) @ rows > 0) for rows in padded.reshape(-1, 8, size).astype(int)])


def _moved(alive: np.ndarray, successors: np.ndarray) -> np.ndarray:
  """Where states [...] can be after a move."""
  return np.bitwise_or.reduce([table[alive >> 8 * byte & 255] for byte, table in enumerate(successors)])


def sampled(distribution: Distribution, key: Array, count: int, length: int) -> np.ndarray:
  """Texts [count, length] int32 of a distribution with float64 parameters, drawn in float32."""
  as_float32 = jax.tree.map(lambda x: x.astype(np.float32) if x.dtype == np.float64 else x, distribution)
  return np.asarray(sample_corpus(key, as_float32, count, length), np.int32)
