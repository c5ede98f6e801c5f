"""Tuning many problems at once, as in the study of degradation, equals tuning each by itself."""

from conftest import at
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from run_cases import QUIET

from experiments.pipeline import batched_tuning
from hmm_jax.distributions.hmm import HMM
from hmm_jax.models.model import ExactModel
from hmm_jax.tuning import tuner as tuner_lib
from hmm_jax.tuning.heads import Linear

pytestmark = [pytest.mark.usefixtures('without_optimisation'), pytest.mark.slow]

SCHEDULE = tuner_lib.Schedule(0.05, 2, 4, 2, 0.0, 1.0)
KEY = jax.random.key(3)


@pytest.fixture(scope='module')
def data():
  """Two chains with inputs and labels: (stacked chains, inputs [2, n, T], labels [2, n])."""
  rng = np.random.default_rng(0)
  dirichlet = lambda *shape: rng.dirichlet(np.ones(shape[-1]), shape[:-1]).astype(np.float32)
  inputs = rng.integers(4, size=(2, 12, 5), dtype=np.int32)
  inputs[:, :, 0] = 4
  return HMM(dirichlet(2, 3), dirichlet(2, 3, 3), dirichlet(2, 3, 4)), inputs, inputs[:, :, 1] % 2


@pytest.mark.parametrize('prompt', [None, tuner_lib.Prompt(2, 0.5)])
def test_training_side_by_side_equals_training_one_by_one(prompt, data):
  """The start and the end of each problem are those of `tuning` on only that problem."""
  frozen, inputs, labels = data
  tuner = tuner_lib.Tuner(ExactModel(4), Linear(2), prompt)
  features = np.asarray(batched_tuning.features(tuner, frozen, inputs))
  start, end = batched_tuning.train(tuner, SCHEDULE, frozen, features, labels, KEY, 'test', QUIET)
  for problem in (0, 1):
    hmm = at(frozen, problem)
    key = jax.random.fold_in(KEY, problem)
    alone = tuner_lib.init_tuning(key, tuner, SCHEDULE, hmm, features[problem], jnp.zeros(1, jnp.int32))
    assert_near(start, problem, alone)
    order = jax.random.fold_in(key, 1)
    for _ in range(SCHEDULE.num_epochs):
      alone, _ = tuner_lib.tune_epoch(alone, order, tuner, SCHEDULE, hmm, features[problem], labels[problem][None])
    assert_near(end, problem, alone)


def assert_near(trained, problem, state):
  for one, other in zip(jax.tree.leaves(trained), jax.tree.leaves(state.trainable), strict=True):
    np.testing.assert_allclose(one[problem], other[0], rtol=1e-4, atol=1e-5)
