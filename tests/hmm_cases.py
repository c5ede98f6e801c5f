"""HMMs that several test modules look at."""

from conftest import dirichlet_hmm
import jax
import jax.numpy as jnp
import numpy as np

from hmm_jax.hmm import HMM


def float32_hmm(seed, num_states, num_tokens):
  return jax.tree.map(jnp.float32, dirichlet_hmm(np.random.default_rng(seed), num_states, num_tokens))


def sparse_hmm():
  """Three states and four tokens, with a zero in the start, in each transition row and in each emission row."""
  return HMM(
    initial_probs=jnp.array([0.7, 0.3, 0.0]),
    transition_matrix=jnp.array([[0.0, 0.4, 0.6], [0.5, 0.5, 0.0], [0.9, 0.0, 0.1]]),
    emission_matrix=jnp.array([[0.25, 0.75, 0.0, 0.0], [0.0, 0.1, 0.2, 0.7], [0.3, 0.3, 0.0, 0.4]]),
  )
