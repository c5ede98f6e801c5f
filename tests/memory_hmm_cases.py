"""Memory HMMs for tests."""

import jax
import jax.numpy as jnp
import numpy as np

from hmm_jax.distributions.memory_hmm import MemoryHMM

# Which cell each of three states reads, by the number of cells; with three cells it is no sorted order.
CELLS = {1: [0, 0, 0], 2: [0, 1, 0], 3: [2, 0, 1]}


def dense_hmm(rng, num_cells, *, per_memory=False, memory_size=2, num_tokens=4):
  """A numpy memory HMM of three states without small probabilities, float64.

  The first state depends on the memory if `per_memory`.
  """
  memory_shape = (memory_size,) * num_cells
  dirichlet = lambda size, *shape: rng.dirichlet(np.ones(size), shape)
  return MemoryHMM(
    memory_probs=dirichlet(memory_size**num_cells).reshape(memory_shape),
    initial_probs=dirichlet(3, *(memory_shape if per_memory else ())),
    transition_matrix=dirichlet(3, 3),
    cell_index=np.array(CELLS[num_cells]),
    emission_matrix=dirichlet(num_tokens, memory_size, 3),
  )


def memory_without_full_support():
  """Two cells of two values each, of which the last pair has probability 0."""
  hmm = dense_hmm(np.random.default_rng(0), 2, per_memory=True)
  return hmm._replace(memory_probs=np.array([[0.2, 0.5], [0.3, 0]]))


def float32(tree):
  return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32 if np.asarray(x).dtype.kind == 'f' else jnp.int32), tree)
