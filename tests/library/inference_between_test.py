"""The posterior between beginnings and ends, against inference on each pair as one sequence."""

import jax
import jax.numpy as jnp
from memory_hmm_cases import dense_hmm, float32
import numpy as np
from oracles import log_space_posterior
import pytest

from hmm_jax.distributions.memory_hmm import to_hmm
from hmm_jax.inference.pairs import probs_between
from hmm_jax.inference.posterior import forward_backward

pytestmark = pytest.mark.usefixtures('without_optimisation')


def pairs():
  """A distribution, beginnings and ends in float32, zeros and impossible pairs included."""
  rng = np.random.default_rng(0)
  hmm = dense_hmm(rng, 1)
  num_joint = hmm.joint_initial_probs.size
  before, after = rng.uniform(0.1, 1, (4, 2, num_joint)), rng.uniform(0.1, 1, (5, 12, num_joint))
  before[1, :, 0] = before[2, -1, :-1] = before[3, 0] = 0
  after[1, 0, 1:] = after[2, 1] = 0
  # Where a beginning allows only what an end makes 1e-360 as likely, logarithms must decide.
  after[3, :, 1:] = after[4, :, :-1] = 1e-30
  return float32((hmm, before, after))


def whole(before, after):
  """The rows [K, B, P + 1 + T, E] of each pair as one sequence."""
  join = lambda start, end: jnp.concatenate([start, jnp.ones_like(start[:1]), end])
  return jax.vmap(lambda start: jax.vmap(lambda end: join(start, end))(after))(before)


def test_every_pair_equals_its_whole_sequence():
  """A memory's configuration goes from a beginning to its end."""
  hmm, before, after = pairs()
  probs = probs_between(hmm, before, after)
  expected = log_space_posterior(hmm, whole(before, after)).leave_one_out_probs[:, :, 2]
  np.testing.assert_allclose(probs, expected, rtol=1e-5, atol=1e-6)
  assert not probs[3].any() and not probs[:, 2].any() and probs[:3, 3:].any(-1).all()


@pytest.mark.slow
def test_slopes_of_pairs_are_those_of_whole_sequences():
  """By the start, the beginnings and the ends."""
  hmm, before, after = pairs()

  def slopes(function):
    probs = lambda start, before, after: function(hmm.starting_from(start), before, after)
    of_sum = jax.grad(lambda *x: (probs(*x) ** 2).sum(), (0, 1, 2))
    return jax.jit(of_sum)(hmm.joint_initial_probs, before, after)

  of_whole = lambda hmm, *rows: forward_backward(to_hmm(hmm), whole(*rows)).leave_one_out_probs[:, :, 2]
  for ours, expected in zip(slopes(probs_between), slopes(of_whole), strict=True):
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)
