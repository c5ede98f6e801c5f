"""Chains, HMMs and ranks that tests of assumptions share."""

import itertools

import numpy as np

from hmm_jax.hmm import HMM
from hmm_jax.memory_hmm import MemoryHMM
from hmm_jax.theory.theorems.assumptions import Thresholds

EXACT = Thresholds(support=0.0, rank=1e-9)
CYCLE = np.roll(np.eye(3), 1, axis=1)
MIXING = np.full((3, 3), 1 / 3)


def sparse_rows(rng, num_rows, size, density):
  """Distributions with exact zeros, none of them empty."""
  kept = rng.random((num_rows, size)) < density
  kept[np.arange(num_rows), rng.integers(size, size=num_rows)] = True
  weights = kept * rng.uniform(0.2, 1, (num_rows, size))
  return weights / weights.sum(-1, keepdims=True)


def sparse_hmm(rng, num_states, num_tokens, density=0.35):
  start = rng.dirichlet(np.ones(num_states))
  transitions = sparse_rows(rng, num_states, num_states, density)
  return HMM(start, transitions, rng.dirichlet(np.ones(num_tokens), num_states))


def chain_of(transition_matrix, initial_probs=None):
  """An HMM of which only the chain matters."""
  num_states = len(transition_matrix)
  uniform = np.full(num_states, 1 / num_states)
  return HMM(uniform if initial_probs is None else np.array(initial_probs), transition_matrix, np.eye(num_states))


def subsets(items):
  return itertools.chain.from_iterable(itertools.combinations(items, size) for size in range(len(items) + 1))


def reachable(edges):
  """Whether state j can be reached from i in any number of steps, 0 included, by powers."""
  size = len(edges)
  return np.linalg.matrix_power((edges + np.eye(size)) > 0, size).astype(bool)


def classes_by_powers(edges):
  mutual = reachable(edges) & reachable(edges).T
  return {frozenset(np.flatnonzero(row).tolist()) for row in mutual}


def is_ergodic_by_powers(edges):
  """Whether some power of the matrix is positive throughout; Wielandt's H^2 - 2H + 2 is enough."""
  size, walks = len(edges), np.eye(len(edges), dtype=int)
  for _ in range(size**2 - 2 * size + 2):
    walks = ((walks @ edges.astype(int)) > 0).astype(int)
  return bool(walks.all())


def memory_hmm(emission_matrix, cell_index=None, num_cells=1, initial_probs=None):
  """A memory HMM of which only the emissions [M, H, V] and cells matter."""
  memory_size, num_states, _ = emission_matrix.shape
  return MemoryHMM(
    memory_probs=np.full((memory_size,) * num_cells, memory_size**-num_cells),
    initial_probs=np.full(num_states, 1 / num_states) if initial_probs is None else initial_probs,
    transition_matrix=np.full((num_states, num_states), 1 / num_states),
    cell_index=np.zeros(num_states, int) if cell_index is None else np.array(cell_index),
    emission_matrix=emission_matrix,
  )


def stationary_by_powers(transition_matrix):
  """The limit of the lazy chain, which has the same stationary law and no period."""
  lazy = (transition_matrix + np.eye(len(transition_matrix))) / 2
  return np.linalg.matrix_power(lazy, 2**14)[0]
