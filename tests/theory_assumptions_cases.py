"""Chains and memory HMMs that tests of assumptions share."""

from fractions import Fraction
import itertools

import numpy as np

from hmm_jax.distributions.memory_hmm import MemoryHMM
from hmm_jax.theory.assumptions import Thresholds

EXACT = Thresholds(support=0.0, rank=1e-9)
CYCLE = np.roll(np.eye(3), 1, axis=1)


def small_fractions(array):
  """The nearest `Fraction`s of denominators up to 64, which drawn rows have."""
  array = np.asarray(array)
  exact = [Fraction(value).limit_denominator(64) for value in array.ravel().tolist()]
  return np.array(exact, object).reshape(array.shape)


def subsets(items):
  return itertools.chain.from_iterable(itertools.combinations(items, size) for size in range(len(items) + 1))


def memory_hmm(emission_matrix, cell_index=None, num_cells=1):
  """A memory HMM of which only the emissions [M, H, V] and cells matter; its start is uniform and stays so."""
  memory_size, num_states, _ = emission_matrix.shape
  return MemoryHMM(
    memory_probs=np.full((memory_size,) * num_cells, memory_size**-num_cells),
    initial_probs=np.full(num_states, 1 / num_states),
    transition_matrix=np.full((num_states, num_states), 1 / num_states),
    cell_index=np.zeros(num_states, int) if cell_index is None else np.array(cell_index),
    emission_matrix=emission_matrix,
  )
