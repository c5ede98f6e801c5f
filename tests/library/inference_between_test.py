"""The posterior between beginnings and ends, against enumeration and against inference on each pair as one sequence."""

import itertools

from conftest import dirichlet_hmm, enumerated_posterior
import jax
import jax.numpy as jnp
from memory_hmm_cases import dense_hmm
import numpy as np
import pytest

from hmm_jax.hmm import HMM
from hmm_jax.inference import forward_backward, probs_between

pytestmark = pytest.mark.usefixtures('without_optimisation')

H, P, T = 3, 2, 3
RNG = np.random.default_rng(0)
CHAIN = dirichlet_hmm(RNG, H)
# Beginnings that say little, that rule states out, that leave one state alone, and that nothing can follow.
BEFORE = np.float32(RNG.uniform(0.1, 1, (4, P, H)))
BEFORE[1, :, 0] = 0
BEFORE[2, -1] = [0, 0, 1]
BEFORE[3, 0] = 0
AFTER = np.float32(RNG.uniform(0.1, 1, (5, T, H)))
AFTER[1, 0, 1:] = 0
AFTER[2, 1] = 0
# Evidence of 1e-90 of one sort and of another, so that whole messages leave the range of float32.
AFTER[3] = [[1, 1e-30, 1e-30]] * T
AFTER[4] = [[1e-30, 1e-30, 1]] * T


def of_whole_sequences(hmm, before, after):
  """Leave-one-out probabilities at the place between, each pair one sequence [P + 1 + T, E]."""
  whole = lambda start, end: jnp.concatenate([start, jnp.ones_like(start[:1]), end])
  rows = jax.vmap(lambda start: jax.vmap(lambda end: whole(start, end))(after))(before)
  return forward_backward(hmm, rows).leave_one_out_probs[:, :, before.shape[1]]


def test_every_pair_equals_enumeration():
  """Sums over all hidden paths, zeros and impossible evidence included."""
  probs = probs_between(CHAIN, BEFORE, AFTER)
  assert probs.shape == (4, 5, H)
  for k, b in itertools.product(range(4), range(5)):
    rows = np.float64(np.concatenate([BEFORE[k], np.ones((1, H)), AFTER[b]]))
    expected = enumerated_posterior(CHAIN, rows).leave_one_out_probs[P]
    np.testing.assert_allclose(probs[k, b], expected, atol=1e-7)
  assert not probs[3].any() and not probs[:, 2].any() and probs[:3, 3:].any(-1).all()


def test_a_pair_that_logarithms_must_decide_equals_one_sequence():
  """Where a beginning allows only what its end makes e^-2000 as likely, the posterior is still that state's."""
  stays = HMM(np.full(H, 1 / H, np.float32), np.float32(np.eye(H)), CHAIN.emission_matrix)
  before = np.float32([[[1, 1, 1]], [[0, 1, 1]], [[0, 0, 1]]])
  after = np.float32([[[1, 1e-30, 1e-35]] * 30])
  probs = probs_between(stays, before, after)
  np.testing.assert_array_equal(probs[:, 0], np.eye(H))
  np.testing.assert_array_equal(probs, of_whole_sequences(stays, before, after))


def test_pairs_of_a_memory_equal_whole_sequences():
  """The configuration that never moves goes from a beginning to its end."""
  hmm = dense_hmm(RNG, memory_size=2, num_states=3, num_tokens=4, num_cells=1)
  joint = hmm.joint_initial_probs.size
  before, after = (np.float32(RNG.uniform(0.01, 1, (count, length, joint))) for count, length in ((2, 3), (3, 4)))
  np.testing.assert_allclose(probs_between(hmm, before, after), of_whole_sequences(hmm, before, after), atol=1e-7)


def test_slopes_equal_those_of_whole_sequences():
  """By the chain, the beginnings and the ends, at exact zeros too, as far as evidence is possible."""
  weights = np.float32(RNG.normal(size=(3, 4, H)))

  def slopes(function):
    total = lambda hmm, before, after: (function(hmm, before, after) * weights).sum()
    return jax.jit(jax.grad(total, argnums=(0, 1, 2)))(CHAIN_32, BEFORE[:3], AFTER[[0, 1, 3, 4]])

  between, expected = map(slopes, (probs_between, of_whole_sequences))
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), between, expected)
  assert np.abs(between[1][1, :, 0]).max() > 1e-3


CHAIN_32 = jax.tree.map(np.float32, CHAIN)
