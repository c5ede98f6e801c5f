"""HMMs that several test modules look at."""

from conftest import dirichlet_hmm
import jax
import jax.numpy as jnp
import numpy as np


def float32_hmm(seed, num_states, num_tokens):
  return jax.tree.map(jnp.float32, dirichlet_hmm(np.random.default_rng(seed), num_states, num_tokens))
