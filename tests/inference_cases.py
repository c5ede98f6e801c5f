"""Evidence and comparisons that the tests of inference share."""

import jax
import jax.numpy as jnp
import numpy as np

from hmm_jax import hmm as hmm_lib
from hmm_jax import inference
from hmm_jax.hmm import HMM

forward_backward = jax.jit(inference.forward_backward)
batched_forward_backward = jax.jit(inference.batched_forward_backward)


def assert_posteriors_close(actual, expected, atol, loglik_rtol=None):
  for field, x, y in zip(actual._fields, actual, expected, strict=True):
    rtol = (loglik_rtol or atol) if field == 'marginal_loglik' else 0
    np.testing.assert_allclose(x, y, rtol=rtol, atol=atol, err_msg=field)


def at(tree, index):
  return jax.tree.map(lambda x: x[index], tree)


def paper_draw(num_states, seed=0):
  return hmm_lib.random_hmm(jax.random.key(seed), num_states, 10)


def sampled_tokens(hmm, batch_size, length):
  keys = jax.random.split(jax.random.key(1), batch_size)
  return jax.vmap(lambda key: hmm_lib.sample(key, hmm, length)[1])(keys)


def uniform_tokens(hmm, batch_size, length):
  return jax.random.randint(jax.random.key(2), (batch_size, length), 0, hmm.num_tokens)


def likelihood_rows(hmm, tokens):
  return hmm_lib.token_likelihoods(hmm, tokens, jnp.ones(tokens.shape, bool))


# One chain of two states that never leaves its state, and evidence for the state that it is almost never in:
# the only path left has probability 1e-120, and no product of two float32 messages can hold it.
def surviving_path_case(power=-30):
  chain = HMM(jnp.array([1, 10.0**power]), jnp.eye(2), jnp.eye(2))
  alive = [1.0, 10.0**power]
  return chain, jnp.array([alive, alive, alive, [0.0, 1.0], [1.0, 1.0]])
