"""`jax.vmap` of exact inference, over sequences, over HMMs and over both: what a loop over them says."""

from conftest import at
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hmm_jax import forward_backward, random_hmm
from hmm_jax.inference import last_filtered_probs, probs_between

pytestmark = pytest.mark.usefixtures('without_optimisation')

N, B, T, H = 3, 20, 4, 3
RNG = np.random.default_rng(0)
WEIGHTS = np.float32(RNG.normal(size=(4, T, H)))
ROWS = np.float32(RNG.uniform(0.1, 1, (N, B, T, H)))
HMMS = jax.vmap(lambda key: random_hmm(key, H, 5, transition_temperature=0.5))(jax.random.split(jax.random.key(0), N))
ONE = at(HMMS, 0)


def objective(hmm, rows):
  posterior = forward_backward(hmm, rows)
  return (WEIGHTS * jnp.stack(posterior[:4])).sum() + posterior.marginal_loglik


slopes = jax.jit(jax.grad(objective, (0, 1)))
FUNCTIONS = {'posteriors': forward_backward, 'the last one': last_filtered_probs, 'slopes': slopes}


def of_each(function, *batches):
  """`function` of the first of each batch, of the second, and so on, by a loop."""
  return jax.tree.map(lambda *x: jnp.stack(x), *(function(*one) for one in zip(*batches)))


def unstacked(hmms):
  return [type(hmms)(*leaves) for leaves in zip(*hmms)]


def assert_close(found, expected):
  """Within a rounding of float32 of the largest entry of each array."""
  for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-6 * max(1, np.abs(other).max()))


@pytest.mark.parametrize('name', FUNCTIONS)
def test_mapping_is_a_loop(name):
  """Over sequences, HMMs, both at once, and one inside of the other, whichever is outside."""
  function, hmms, rows = FUNCTIONS[name], unstacked(HMMS), ROWS[:, 0]
  over_rows, over_hmms = jax.vmap(function, (None, 0)), jax.vmap(function, (0, None))
  assert_close(over_rows(ONE, rows), of_each(lambda x: function(ONE, x), rows))
  assert_close(over_hmms(HMMS, rows[0]), of_each(lambda hmm: function(hmm, rows[0]), hmms))
  assert_close(jax.jit(jax.vmap(function))(HMMS, rows), of_each(function, hmms, rows))
  for_all = of_each(lambda hmm: of_each(lambda x: function(hmm, x), rows), hmms)
  assert_close(jax.vmap(over_rows, (0, None))(HMMS, rows), for_all)
  assert_close(jax.vmap(over_hmms, (None, 0), 1)(HMMS, rows), for_all)


@pytest.mark.slow
@pytest.mark.parametrize('count', [2, B])
def test_slopes_are_those_of_each_batch(count):
  """Of a few sequences, which are put beside others, and of so many that one batch comes after another."""
  batches = ROWS[:, :count]
  of_mapped = jax.grad(lambda hmm: jax.vmap(objective, (None, 0))(hmm, batches[0]).sum())
  assert_close(of_mapped(ONE), jax.tree.map(lambda x: x.sum(0), of_each(lambda x: slopes(ONE, x)[0], batches[0])))
  of_batch = jax.grad(lambda hmm, rows: sum((w * p).sum() for w, p in zip(WEIGHTS, forward_backward(hmm, rows))))
  assert_close(jax.vmap(of_batch)(HMMS, batches), of_each(of_batch, unstacked(HMMS), batches))
  assert_close(jax.vmap(of_batch, (None, 0))(ONE, batches), of_each(lambda rows: of_batch(ONE, rows), batches))


@pytest.mark.slow
@pytest.mark.parametrize('function', [probs_between, jax.grad(lambda *x: (probs_between(*x) ** 2).sum(), (0, 1, 2))])
def test_pairs_are_mapped_over(function):
  """Over all that they are of, and over beginnings alone, with slopes."""
  before, after = ROWS[:, :2, :2], ROWS[:, :3, 2:]
  assert_close(jax.vmap(function)(HMMS, before, after), of_each(function, unstacked(HMMS), before, after))
  of_beginnings = jax.vmap(function, (None, 0, None))(ONE, before, after[0])
  assert_close(of_beginnings, of_each(lambda x: function(ONE, x, after[0]), before))


def test_improbable_evidence_is_exact_beside_probable():
  """A sequence that needs logarithms has them, under `vmap` over HMMs too; of the others every bit is as without it."""
  rows = np.tile(ROWS[:, :1, :1], (1, 1, 300, 1))
  rows[1, :, ::2, 1:], rows[1, :, 1::2, :-1] = 1e-30, 1e-30
  batches = rows[:, 0]
  np.testing.assert_array_equal(
    jax.vmap(forward_backward)(HMMS, batches).smoothed_probs,
    of_each(forward_backward, unstacked(HMMS), batches).smoothed_probs,
  )


def test_states_past_those_written_out():
  """Above `_UNROLLED` states the products of a matrix for each sequence are summed, not written out."""
  big = random_hmm(jax.random.key(1), 70, 5, transition_temperature=0.5)
  hmms, rows = jax.tree.map(lambda x: jnp.stack([x, x]), big), np.float32(RNG.uniform(0.1, 1, (2, 3, 70)))
  assert_close(jax.vmap(forward_backward)(hmms, rows), forward_backward(big, rows))


def test_second_derivatives_are_refused():
  with pytest.raises(TypeError, match='one reverse-mode derivative'):
    jax.hessian(lambda rows: objective(ONE, rows))(ROWS[0, 0])
