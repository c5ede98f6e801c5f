"""Evidence and comparisons that the tests of inference share."""

from conftest import compiling_fast
import jax
import jax.numpy as jnp
import numpy as np

from hmm_jax import hmm as hmm_lib, sampling
from hmm_jax.hmm import HMM


def assert_posteriors_close(actual, expected, atol, loglik_rtol=None):
  for field, x, y in zip(actual._fields, actual, expected, strict=True):
    rtol = (loglik_rtol or atol) if field == 'marginal_loglik' else 0
    np.testing.assert_allclose(x, y, rtol=rtol, atol=atol, err_msg=field)


def at(tree, index):
  return jax.tree.map(lambda x: x[index], tree)


def stacked(cases):
  """Trees of arrays of one shape as a tree of arrays with a leading axis, float32."""
  return jax.tree.map(lambda *leaves: np.stack(leaves).astype(np.float32), *cases)


def paper_draw(num_states, seed=0):
  with compiling_fast():
    return hmm_lib.random_hmm(jax.random.key(seed), num_states, 10)


def sampled_tokens(hmm, batch_size, length):
  with compiling_fast():
    return np.asarray(sampling.sample_corpus(jax.random.key(1), hmm, batch_size, length))


def uniform_tokens(hmm, batch_size, length):
  return np.random.default_rng(2).integers(hmm.num_tokens, size=(batch_size, length))


def likelihood_rows(hmm, tokens):
  return np.asarray(hmm.emission_matrix).T[tokens]


# One chain of two states that never leaves its state, and evidence for the state that it is almost never in:
# the only path left has probability 1e-120, and no product of two float32 messages can hold it.
def surviving_path_case(power=-30):
  chain = HMM(jnp.array([1, 10.0**power]), jnp.eye(2), jnp.eye(2))
  alive = [1.0, 10.0**power]
  return chain, jnp.array([alive, alive, alive, [0.0, 1.0], [1.0, 1.0]])


def random_rows(rng, length, num_states):
  """Likelihood rows: one in three all ones, and half the entries of one in three exact zeros."""
  rows = rng.uniform(size=(length, num_states))
  rows[1::3] = 1
  rows[2::3, ::2] = 0
  return rows
