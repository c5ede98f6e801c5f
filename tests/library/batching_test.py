"""`jax.vmap` of exact inference, over sequences, over HMMs and over both: what a loop over them says."""

from conftest import at, dirichlet_hmm
import jax
import jax.numpy as jnp
import numpy as np
from oracles import log_space_posterior
import pytest

from hmm_jax import forward_backward, random_hmm

N, B, T, H = 3, 20, 4, 3
RNG = np.random.default_rng(0)
WEIGHTS = np.float32(RNG.normal(size=(4, T, H)))
ROWS = np.float32(RNG.uniform(0.1, 1, (N, B, T, H)))
HMMS = jax.tree.map(lambda *x: np.float32(np.stack(x)), *(dirichlet_hmm(RNG, H) for _ in range(N)))
ONE = at(HMMS, 0)


def objective(hmm, rows):
  posterior = forward_backward(hmm, rows)
  return (WEIGHTS * jnp.stack(posterior[:4])).sum() + posterior.marginal_loglik


def assert_close(found, expected):
  """Within a rounding of float32 of the largest entry of each array."""
  for one, other in zip(jax.tree.leaves(found), map(np.asarray, jax.tree.leaves(expected)), strict=True):
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-6 * max(1, np.abs(other[np.isfinite(other)]).max()))


def test_a_sequence_has_its_own_results():
  """Under `vmap`, and in a batch that is cut into blocks, the last overlapping.

  Some companions are impossible or need logarithms: of the others every bit is as without them.
  """
  rows = np.float32(RNG.uniform(0.1, 1, (N, 1100, 40, H)))
  plain = jax.vmap(forward_backward)(HMMS, rows)
  rows[:, 3::11, 2] = 0
  rows[:, 4::11, ::2, 1:] = rows[:, 4::11, 1::2, :-1] = 1e-30
  mapped = jax.vmap(forward_backward)(HMMS, rows)
  assert_close(mapped, log_space_posterior(jax.tree.map(lambda x: x[:, None], HMMS), rows))
  assert np.isneginf(mapped.marginal_loglik).sum() == 100 * N
  np.testing.assert_array_equal(mapped.smoothed_probs[:, ::11], plain.smoothed_probs[:, ::11])
  batch = forward_backward(ONE, rows[0].reshape(2, 550, 40, H))
  assert_close(jax.tree.map(lambda x: x.reshape(1100, *x.shape[2:]), batch), at(mapped, 0))
  over_hmms = jax.vmap(forward_backward, (0, None))
  assert_close(jax.vmap(over_hmms, (None, 0), 1)(HMMS, rows[0, :5]), over_hmms(HMMS, rows[0, :5]))


@pytest.mark.slow
def test_slopes_by_a_shared_hmm_are_the_sum_of_those_of_its_copies():
  """So many sequences that batches follow each other."""
  shared = jax.grad(lambda hmm: jax.vmap(objective, (None, 0))(hmm, ROWS[0]).sum())(ONE)
  copies = jax.tree.map(lambda x: jnp.stack([x] * B), ONE)
  assert_close(shared, jax.tree.map(lambda x: x.sum(0), jax.vmap(jax.grad(objective))(copies, ROWS[0])))


@pytest.mark.slow
def test_states_past_those_written_out():
  """Above `_UNROLLED` states the products of a matrix for each sequence are summed, not written out."""
  big = random_hmm(jax.random.key(1), 70, 5, transition_temperature=0.5)
  hmms, rows = jax.tree.map(lambda x: jnp.stack([x, x]), big), np.float32(RNG.uniform(0.1, 1, (2, 3, 70)))
  assert_close(jax.vmap(forward_backward)(hmms, rows), forward_backward(big, rows))


def test_second_derivatives_are_refused():
  with pytest.raises(TypeError, match='one reverse-mode derivative'):
    jax.hessian(lambda rows: objective(ONE, rows))(ROWS[0, 0])
