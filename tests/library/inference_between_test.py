"""The posterior between beginnings and ends, against inference on each pair as one sequence."""

from conftest import dirichlet_hmm
import jax
import jax.numpy as jnp
from memory_hmm_cases import dense_hmm, float32
import numpy as np
import pytest

from hmm_jax.hmm import HMM
from hmm_jax.inference import forward_backward, probs_between
from hmm_jax.memory_hmm import MemoryHMM, to_hmm

pytestmark = pytest.mark.usefixtures('without_optimisation')


def of_whole_sequences(hmm, before, after):
  """Leave-one-out probabilities at the place between, each pair one sequence of the flattened chain."""
  whole = lambda start, end: jnp.concatenate([start, jnp.ones_like(start[:1]), end])
  rows = jax.vmap(lambda start: jax.vmap(lambda end: whole(start, end))(after))(before)
  chain = to_hmm(hmm) if isinstance(hmm, MemoryHMM) else hmm
  return forward_backward(chain, rows).leave_one_out_probs[:, :, before.shape[1]]


@pytest.mark.parametrize('num_cells', [0, 1], ids=['states', 'a memory'])
def test_every_pair_equals_its_whole_sequence(num_cells):
  """Probabilities and their slopes by the start, the beginnings and the ends, zeros and impossible pairs included.

  A memory's configuration goes from a beginning to its end.
  """
  rng = np.random.default_rng(0)
  hmm = dense_hmm(rng, num_cells) if num_cells else dirichlet_hmm(rng, 3)
  num_joint = hmm.joint_initial_probs.size
  before, after = rng.uniform(0.1, 1, (4, 2, num_joint)), rng.uniform(0.1, 1, (5, 3, num_joint))
  before[1, :, 0] = before[2, -1, :-1] = before[3, 0] = 0
  after[1, 0, 1:] = after[2, 1] = 0
  # Evidence of 1e-90 of one sort and of another, so that whole messages leave the range of float32.
  after[3, :, 1:] = after[4, :, :-1] = 1e-30
  hmm, *arguments = float32((hmm, hmm.joint_initial_probs, before, after))

  def told(function):
    probs = lambda start, before, after: function(hmm.starting_from(start), before, after)
    slopes = jax.jit(jax.grad(lambda *x: (probs(*x) ** 2).sum(), (0, 1, 2)))
    return probs(*arguments), *slopes(*arguments)

  for ours, whole in zip(told(probs_between), told(of_whole_sequences), strict=True):
    np.testing.assert_allclose(ours, whole, rtol=1e-5, atol=1e-6)
  probs = probs_between(hmm, *arguments[1:])
  assert not probs[3].any() and not probs[:, 2].any() and probs[:3, 3:].any(-1).all()


def test_a_pair_that_logarithms_must_decide_equals_one_sequence():
  """Where a beginning allows only what its end makes e^-2000 as likely, the posterior is still that state's."""
  stays = HMM(np.full(3, 1 / 3, np.float32), np.eye(3, dtype=np.float32), np.eye(3))
  before = np.float32([[[1, 1, 1]], [[0, 1, 1]], [[0, 0, 1]]])
  after = np.float32([[[1, 1e-30, 1e-35]] * 30])
  np.testing.assert_array_equal(probs_between(stays, before, after)[:, 0], np.eye(3))
