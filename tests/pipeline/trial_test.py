"""Draws of a trial, and their device."""

import hashlib

from forked import run_on_devices
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from run_cases import any_tokens, pretraining_settings, QUIET
from settings_cases import settings_of

from experiments.pipeline import pretraining, trial as trial_lib
from experiments.records.trials import TrialFolder
from experiments.settings.grid import Point
from experiments.settings.trial import Trial
from hmm_jax.distributions.sampling import sample_corpus
from hmm_jax.tuning.tasks import draw_task_weights


def test_an_untrained_bert_is_the_start_of_its_pretraining(tmp_path, monkeypatch):
  """The very parameters that the pretraining of the same trial is at before its first step."""
  trial = Trial(pretraining_settings(), Point(4), 0)
  monkeypatch.setattr(pretraining, 'chunked_corpus', any_tokens)
  folder, drawn = TrialFolder(trial, tmp_path), trial_lib.Drawn(None, None, None)
  ((_, start),) = pretraining.params_along(trial_lib._home(folder, drawn).run, (0,), QUIET)
  _, params = trial_lib._model(folder, drawn, 'untrained', None, QUIET)
  jax.tree.map(np.testing.assert_array_equal, params, start)


@pytest.mark.parametrize(('number', 'other'), [(0, 1), (1, 0), (2, 1)])
def test_another_bert_is_that_of_another_trial(number, other, tmp_path, monkeypatch):
  """Pretrained with all that is the other's: its distribution, what it is measured on, its key and its directory."""
  one, another = (TrialFolder(Trial(settings_of('smoke'), Point(4), at), tmp_path) for at in (number, other))
  monkeypatch.setattr(trial_lib, '_drawn', lambda trial, _: trial_lib.Drawn(trial, None, 'ideals'))
  monkeypatch.setattr(pretraining, 'pretrained_params', lambda *given: given)
  _, (home, *_) = trial_lib._model(one, None, 'other_bert', None, QUIET)
  assert (home.run.text, home.ideals, home.directory) == (another.trial, 'ideals', another.pretrained_directory)
  assert home.run.key == another.trial.keys().pretraining


# With seed 0. If one of these changes, the ids of models and trials name other bits than they did: then
# `_PRETRAINING_VERSION` is raised. Values are rounded, or reduced to signs, to what unlike CPUs agree on.
_DRAWN = {
  'documents': '8bea94cd290269d9',
  'task weights': '1f0f988d08bd314f',
  'parameters': '9ff9b1afb3500c24',
}


@pytest.mark.slow
def test_draws_of_seed_0_have_not_changed():
  """A new JAX or flax that draws other documents, tasks or parameters from the same keys is seen here."""
  trial = Trial(settings_of('smoke'), Point(4), 0)
  settings, keys = trial.settings, trial.keys()
  hmm = trial_lib.draw_distribution(settings, trial.point, keys.distribution)
  params = jax.jit(settings.bert_module().init)(keys.pretraining, jnp.zeros((1, 1), jnp.int32))
  drawn = {
    'documents': np.asarray(sample_corpus(keys.downstream, hmm, 4, 256), np.uint8),
    'task weights': np.int32(np.round(100 * draw_task_weights(keys.tasks, 10))),
    'parameters': np.concatenate([np.int8(np.sign(leaf)).ravel() for leaf in jax.tree.leaves(params)]),
  }
  assert {name: hashlib.sha256(np.asarray(x).tobytes()).hexdigest()[:16] for name, x in drawn.items()} == _DRAWN


@pytest.mark.slow
def test_all_that_is_exact_stays_on_its_device():
  """If `float64_device` is not the first, as on a TPU's host, the distribution and the texts are on it."""
  run_on_devices(
    2,
    """
import jax
from experiments.pipeline import downstream, trial
from experiments.settings.grid import Point
from experiments.settings.trial import Trial
from hmm_jax.models import sharding
from hmm_jax.tuning import tasks
from settings_cases import settings_of

exact = jax.devices()[1]
sharding.float64_device = lambda: exact
downstream.draw = lambda settings, distribution, key, *_: tasks.draw_texts(key, distribution, 2, 2, 3)
one = Trial(settings_of('smoke'), Point(4), 0)
hmm = trial.distribution_of(one)
drawn = hmm, trial.tasks_of(one, hmm)
assert all(leaf.devices() == {exact} for leaf in jax.tree.leaves(drawn))
""",
  )
