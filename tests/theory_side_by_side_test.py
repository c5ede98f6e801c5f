"""Tuning many problems at once is tuning each alone."""

import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rich.console

from experiments.progress import Reporter
from experiments.theory import side_by_side
from hmm_jax import tuning
from hmm_jax.hmm import random_hmm
from hmm_jax.model import exact_model

MODEL = exact_model(4)
SCHEDULE = tuning.Schedule(0.05, 2, 4, 2, 0.0, 1.0)
KEY = jax.random.key(3)


@pytest.fixture(scope='module')
def data():
  """Two chains with inputs and labels: (stacked chains, inputs [2, n, T], labels [2, n])."""
  hmms = [random_hmm(jax.random.key(seed), 3, 4, transition_temperature=0.3) for seed in (0, 1)]
  inputs = jax.random.randint(KEY, (2, 12, 5), 0, 4).at[:, :, 0].set(4)
  return side_by_side.stacked(hmms), np.asarray(inputs), np.asarray(inputs[:, :, 1] % 2, np.int32)


@pytest.mark.parametrize('method', ['head', 'prompt'])
def test_training_side_by_side_is_training_alone(method, data):
  """The start and every epoch of each problem are those of `tuning` on that problem alone."""
  frozen, inputs, labels = data
  tuner = side_by_side.tuners(MODEL, 2, 0.5)[method]
  features = inputs
  if method == 'head':
    features = np.asarray(side_by_side.predicted_at_mask(MODEL, frozen, inputs, np.zeros((2, 0, 3), np.float32)))
  reporter = Reporter(rich.console.Console(file=io.StringIO()))
  history = list(side_by_side.train(tuner, SCHEDULE, frozen, features, labels, KEY, reporter, 'test'))
  assert len(history) == SCHEDULE.num_epochs + 1
  for problem in (0, 1):
    hmm = jax.tree.map(lambda leaf, problem=problem: leaf[problem], frozen)
    own = tuning.frozen_features(tuner, hmm, inputs[problem], batch_size=12)
    state = tuning.init_tuning(KEY, tuner, SCHEDULE, hmm, tasks=jnp.zeros(1, jnp.int32), num_inputs=12)
    for trained in history:
      for one, other in zip(jax.tree.leaves(trained), jax.tree.leaves(state.trainable), strict=True):
        np.testing.assert_allclose(one[problem], other[0], rtol=1e-4, atol=1e-5)
      order = jax.random.fold_in(KEY, 1)
      state, _ = tuning.tune_epoch(state, order, tuner, SCHEDULE, hmm, own, labels[problem][None])


def test_predictions_behind_a_prompt_are_those_of_the_model(data):
  """The row at the [MASK], shifted by the prompt, problem by problem."""
  frozen, inputs, _ = data
  prompts = np.asarray(jax.random.uniform(KEY, (2, 2, 3)))
  found = side_by_side.predicted_at_mask(MODEL, frozen, inputs, prompts)
  for problem in (0, 1):
    hmm = jax.tree.map(lambda leaf, problem=problem: leaf[problem], frozen)
    embeddings = tuning.prepend(jnp.asarray(prompts[problem]), MODEL.embed(hmm, inputs[problem]))
    np.testing.assert_allclose(found[problem], jax.jit(MODEL.predict)(hmm, embeddings)[:, 2], atol=1e-6)
