"""The posterior beside beginnings and ends that meet, against inference on each pair as one sequence."""

import jax
import jax.numpy as jnp
from memory_hmm_cases import dense_hmm, float32
import numpy as np
from oracles import log_space_posterior
import pytest

from hmm_jax.distributions.hmm import HMM
from hmm_jax.distributions.memory_hmm import to_hmm
from hmm_jax.inference.pairs import probs_before, probs_between
from hmm_jax.inference.posterior import forward_backward

# The position that is left out of a sequence: after the first rows, or before them.
PLACES = pytest.mark.parametrize(('function', 'place'), [(probs_between, 2), (probs_before, 0)])


def pairs():
  """A distribution, first rows and ends in float32, zeros and impossible pairs included."""
  rng = np.random.default_rng(0)
  hmm = dense_hmm(rng, 1)
  num_joint = hmm.joint_initial_probs.size
  before, after = rng.uniform(0.1, 1, (4, 2, num_joint)), rng.uniform(0.1, 1, (5, 12, num_joint))
  before[1, :, 0] = before[2, -1, :-1] = before[3, 0] = 0
  after[1, 0, 1:] = after[2, 1] = 0
  # If a beginning allows only states that an end makes 1e-360 as likely, logarithms must decide.
  after[3, :, 1:] = after[4, :, :-1] = 1e-30
  return float32((hmm, before, after))


def whole(before, after, place):
  """The rows [K, B, P + 1 + T, E] of each pair as one sequence."""
  join = lambda start, end: jnp.concatenate([start[:place], jnp.ones_like(start[:1]), start[place:], end])
  return jax.vmap(lambda start: jax.vmap(lambda end: join(start, end))(after))(before)


@PLACES
def test_every_pair_equals_its_whole_sequence(function, place):
  """A memory's configuration goes from a beginning to its end."""
  hmm, before, after = pairs()
  probs = function(hmm, before, after)
  expected = log_space_posterior(hmm, whole(before, after, place)).leave_one_out_probs[:, :, place]
  np.testing.assert_allclose(probs, expected, rtol=1e-5, atol=1e-6)
  assert not probs[3].any() and not probs[:, 2].any() and probs[:3, 3:].any(-1).all()


@PLACES
def test_a_state_that_late_rows_all_but_refute_comes_back(function, place):
  """Of two states that are never left, late rows favour one by 1e420 and those before them the other by 1e600.

  A scaled message loses the second, and its sum does not show it: the evidence does.
  """
  hmm, late, early = HMM(*map(np.float32, ([0.5, 0.5], np.eye(2), np.eye(2)))), [1, 1e-30], [1e-30, 1]
  first, end = ([early] * 20, [late] * 14) if place == 0 else ([[1, 1]] * place, [early] * 20 + [late] * 14)
  np.testing.assert_array_equal(function(hmm, np.float32([first]), np.float32([end])), [[[0, 1]]])


@pytest.mark.slow
@PLACES
def test_slopes_of_pairs_are_those_of_whole_sequences(function, place):
  """By the start, the first rows and the ends."""
  hmm, before, after = pairs()

  def slopes(function):
    probs = lambda start, before, after: function(hmm.starting_from(start), before, after)
    of_sum = jax.grad(lambda *x: (probs(*x) ** 2).sum(), (0, 1, 2))
    return jax.jit(of_sum)(hmm.joint_initial_probs, before, after)

  of_whole = lambda hmm, *rows: forward_backward(to_hmm(hmm), whole(*rows, place)).leave_one_out_probs[:, :, place]
  for x, ours, expected in zip((hmm.joint_initial_probs, before, after), slopes(function), slopes(of_whole)):
    # By the logarithm of an entry: by one of 1e-30 itself the slope is rounding error times 1e30.
    unit = np.where(x == 0, 1, x)
    np.testing.assert_allclose(unit * ours, unit * expected, rtol=1e-5, atol=1e-6)
