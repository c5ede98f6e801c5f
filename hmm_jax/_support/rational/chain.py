"""One pass forward and one backward in integers: every posterior of a text, exactly.

Posteriors are normalised, so a table of `Fraction`s is kept as integers, without their common denominator. The memory
is constant: each of its configurations is a chain of H states.
"""

from collections.abc import Sequence
from fractions import Fraction
import itertools
from typing import Any, NamedTuple

import numpy as np

from hmm_jax._support.rational.algebra import as_fractions, as_integers, fraction_rows


class IntegerChain(NamedTuple):
  """A chain of H states for each of C constant memory configurations; a plain `HMM` has one.

  Attributes:
    start: integers [C, H], proportional to P[M, H_1].
    moves: integers [H, H], proportional to P[next = j | now = i].
    emissions: `Fraction`s [M, H, V], the paper's W.
    reads: [C, H], the value that each state reads in each configuration.
    likelihoods: integers [V + 1, C, H], of each token and last of [MASK], up to a common factor.
    configurations: [C, N], what each cell holds.
  """

  start: np.ndarray
  moves: np.ndarray
  emissions: np.ndarray
  reads: np.ndarray
  likelihoods: np.ndarray
  configurations: np.ndarray


def integer_chain(distribution: Any) -> IntegerChain:
  """The chain of an `HMM` or `MemoryHMM` of floats or `Fraction`s, each row divided by its exact sum."""
  emissions, configurations = fraction_rows(distribution.emission_matrix), np.zeros((1, 0), int)
  start = fraction_rows(distribution.initial_probs)
  if hasattr(distribution, 'memory_probs'):
    memory_probs = as_fractions(distribution.memory_probs)
    configurations = np.indices(memory_probs.shape).reshape(memory_probs.ndim, -1).T
    reads = configurations[:, np.asarray(distribution.cell_index)]
    start = memory_probs[..., None] * start
  else:
    emissions, reads = emissions[None], np.zeros((1, emissions.shape[0]), int)
  numerators, denominator = as_integers(emissions[reads, np.arange(reads.shape[1])])
  masked = np.full_like(numerators[..., :1], denominator)
  return IntegerChain(
    start=as_integers(start)[0].reshape(reads.shape),
    moves=as_integers(fraction_rows(distribution.transition_matrix))[0],
    emissions=emissions,
    reads=reads,
    likelihoods=np.moveaxis(np.concatenate([numerators, masked], axis=-1), -1, 0),
    configurations=configurations,
  )


def following(chain: IntegerChain, tokens: Sequence[int]) -> np.ndarray:
  """P[tokens | M, the state before them] [C, H], in integers up to a positive factor."""
  return _backward(chain, chain.likelihoods[list(tokens)])[-1]


def _backward(chain: IntegerChain, rows: Sequence[np.ndarray] | np.ndarray) -> list[np.ndarray]:
  """P[the last k rows | M, the state before them] [C, H] for k = 0, ..., T."""
  messages = [np.ones_like(chain.start)]
  for row in rows[::-1]:
    message = (messages[-1] * row) @ chain.moves.T
    messages.append(message // (np.gcd.reduce(message, axis=None) or 1))
  return messages


def leave_one_out(chain: IntegerChain, rows: Sequence[np.ndarray] | np.ndarray) -> list[np.ndarray]:
  """P[M, H_i, rows but the i-th] [C, H] at each position i, in integers up to a positive factor.

  `rows` are likelihoods [C, H] of what is seen at the T positions, in integers up to a positive factor.
  """
  forward = itertools.accumulate(rows[:-1], lambda message, row: (message * row) @ chain.moves, initial=chain.start)
  return [before * after for before, after in zip(forward, reversed(_backward(chain, rows[1:])), strict=True)]


def by_value_read(chain: IntegerChain, joint: np.ndarray) -> np.ndarray:
  """Sums [C, H] over all configurations that read the same value: [M, H]."""
  return np.array([(joint * (chain.reads == value)).sum(0) for value in range(len(chain.emissions))])


def by_cell(chain: IntegerChain, joint: np.ndarray, cell: int) -> np.ndarray:
  """Sums [C, H] over all states and all other cells: [M]."""
  held = chain.configurations[:, cell]
  return np.array([joint[held == value].sum() for value in range(len(chain.emissions))], object)


def normalised(weights: np.ndarray) -> np.ndarray:
  """Integers of any shape over their sum, as `Fraction`s; zeros if it is 0."""
  return weights * Fraction(1, weights.sum() or 1)


def token_probs(chain: IntegerChain, joint: np.ndarray) -> np.ndarray:
  """G_i = W p (Proposition C.1) [V] from `leave_one_out` at i; zeros if the evidence is impossible."""
  return normalised(np.tensordot(joint, chain.likelihoods[:-1], axes=((0, 1), (1, 2))))
