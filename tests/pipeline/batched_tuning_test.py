"""Tuning many problems at once, as in the study of degradation, equals tuning each by itself."""

import functools

from conftest import at
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from run_cases import QUIET

from experiments.pipeline import batched_tuning
from hmm_jax.distributions.hmm import random_hmm
from hmm_jax.models.model import ExactModel
from hmm_jax.tuning import tuner as tuner_lib
from hmm_jax.tuning.heads import Linear

pytestmark = pytest.mark.slow

SCHEDULE = tuner_lib.Schedule(0.05, 2, 4, 2, 0.0, 1.0)
KEY = jax.random.key(3)


@pytest.mark.parametrize('prompt', [None, tuner_lib.Prompt(2, 0.5)])
def test_training_side_by_side_equals_training_one_by_one(prompt):
  """The start and the end of each of two chains."""
  frozen = jax.vmap(lambda key: random_hmm(key, 3, 4))(jax.random.split(KEY))
  inputs = np.random.default_rng(0).integers(4, size=(2, 12, 5), dtype=np.int32)
  inputs[:, :, 0] = 4
  tuner, labels = tuner_lib.Tuner(ExactModel(4), Linear(2), prompt), inputs[:, :, 1] % 2
  features = np.asarray(batched_tuning.features(tuner, frozen, inputs))
  together = batched_tuning.train(tuner, SCHEDULE, frozen, features, labels, KEY, 'test', QUIET)
  close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
  for problem in (0, 1):
    key, data = jax.random.fold_in(KEY, problem), (at(frozen, problem), features[problem])
    end = tuner_lib.init_tuning(key, tuner, SCHEDULE, *data, jnp.zeros(1, jnp.int32))
    # An epoch takes the buffers of its state.
    start = jax.tree.map(np.array, end.trainable)
    for _ in range(SCHEDULE.num_epochs):
      end, _ = tuner_lib.tune_epoch(end, jax.random.fold_in(key, 1), tuner, SCHEDULE, *data, labels[problem][None])
    for found, alone in zip(together, (start, end.trainable)):
      jax.tree.map(lambda x, y: close(x[problem], y[0]), found, alone)  # noqa: B023
