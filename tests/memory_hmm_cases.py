"""Memory HMMs for tests, and what they are by definition."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from hmm_jax import hmm as hmm_lib, inference, memory_hmm as memory_lib
from hmm_jax.memory_hmm import MemoryHMM

MASK = -1
# (N, M, H) of the paper's draw in several tests, since each shape costs seconds to compile.
DRAWN = [(1, 5, 4), (2, 3, 4)]
# Which cell each of three states reads, by the number of cells; with three cells it is no sorted order.
CELLS = {1: [0, 0, 0], 2: [0, 1, 0], 3: [2, 0, 1]}


def dense_hmm(rng, num_cells, *, per_memory=False, memory_size=2, num_states=3, num_tokens=4):
  """A numpy memory HMM without small probabilities, float64; the first state depends on the memory if `per_memory`."""
  memory_shape = (memory_size,) * num_cells
  dirichlet = lambda size, *shape: rng.dirichlet(np.ones(size), shape)
  return MemoryHMM(
    memory_probs=dirichlet(memory_size**num_cells).reshape(memory_shape),
    initial_probs=dirichlet(num_states, *(memory_shape if per_memory else ())),
    transition_matrix=dirichlet(num_states, num_states),
    cell_index=np.array(CELLS[num_cells][:num_states]),
    emission_matrix=dirichlet(num_tokens, memory_size, num_states),
  )


def configurations(num_cells, memory_size):
  """All memories (m_1, ..., m_N) in the order of their numbers, [C, N]."""
  return np.array(list(itertools.product(range(memory_size), repeat=num_cells)))


def emissions(hmm):
  """P[X = v | memory c, state h] = W[m_{J(h)}, h, v], [C, H, V]: the definition in section 4."""
  memory_size, num_states, _ = hmm.emission_matrix.shape
  memories = configurations(hmm.memory_probs.ndim, memory_size)
  read = [[memory[hmm.cell_index[h]] for h in range(num_states)] for memory in memories]
  return hmm.emission_matrix[np.array(read), np.arange(num_states)]


def rows_of(hmm, tokens):
  """Likelihood rows [T, C H] of tokens by definition, ones where a token is MASK."""
  by_memory = emissions(hmm)
  rows = [np.ones(by_memory.shape[:2]) if v == MASK else by_memory[..., v] for v in tokens]
  return np.stack(rows).reshape(len(tokens), -1)


def float32(tree):
  return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32 if np.asarray(x).dtype.kind == 'f' else jnp.int32), tree)


@jax.jit
def inferred(hmm, rows):
  """All that inference tells, in one compilation."""
  return (
    memory_lib.memory_forward_backward(hmm, rows),
    memory_lib.cell_posterior(hmm, rows),
    inference.forward_backward(hmm, rows).marginal_loglik,
    hmm_lib.conditional_token_probs(hmm, rows),
  )


def assert_trees_close(actual, expected, atol):
  jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=atol, atol=atol), actual, expected)
