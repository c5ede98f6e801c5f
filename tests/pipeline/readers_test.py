"""Readers that are not linear, of tokens and of the posterior; and as few labels as one asks for."""

import functools

import numpy as np
import pytest
from run_cases import QUIET
from settings_cases import settings_of

from experiments.pipeline import downstream, methods, tuning
from experiments.pipeline.job import FrozenModel, Job
from experiments.settings.fields import SettingsError
from experiments.settings.grid import Point
from experiments.settings.trial import Trial
from hmm_jax.distributions.hmm import HMM
from hmm_jax.models.model import ExactModel

pytestmark = pytest.mark.usefixtures('without_optimisation')

# States 0 to 3 say tokens 0 to 2 by laws on one line; the state stays.
LAWS = np.array([[1.0, 0, 0], [0.7, 0.3, 0], [0.3, 0.7, 0], [0, 1.0, 0]])
STAYS = HMM(np.full(4, 0.25), 0.96 * np.eye(4) + 0.01, 0.97 * LAWS + 0.01)
MODEL = ExactModel(3)


@functools.cache
def drawn(weights=(1, -1, -1, 1), **changes):
  """A trial, and tasks whose label is by default whether the state is one of the two at the ends of the line."""
  sizes = dict(length=40, num_train=300, num_validation=100, num_test=300)
  changes = {f'downstream__{name}': value for name, value in (sizes | changes).items()}
  trial = Trial(settings_of('smoke', hmm__num_tokens=3, **changes), Point(4), 0)
  tasks = downstream.draw(trial.settings, STAYS, trial.keys().downstream, trial.keys().tasks)
  labels = (tasks.label_probs(tasks.inputs) @ weights < 0).astype(int)
  task = tasks.tasks[0]._replace(task_weights=np.array([weights, [0, 0, 0, 0]]), labels=labels)
  return trial, tasks._replace(tasks=[task, task])


def accuracy(method, name='exact', model=MODEL, params=STAYS, hmm=STAYS, **changes):
  trial, tasks = drawn(**changes)
  (tuned,) = tuning.tune(Job(trial, FrozenModel(name, model, params, hmm), method, [0], tasks, QUIET))
  return tuned.measured['accuracy']


def test_a_form_of_degree_two_reads_what_no_linear_head_does():
  """The ends of a line are apart from its middle by a square; the posterior has every label."""
  assert accuracy('head_whitened') < 0.8 and accuracy('quadratic') > 0.95 and accuracy('posterior') > 0.97
  assert accuracy('neighbours') > 0.95


def test_on_a_constant_g_a_head_has_the_majority_class():
  """A process without memory predicts the same law whatever the text."""
  constant = HMM(np.full(4, 0.25), np.full((4, 4), 0.25), LAWS)
  _, tasks = drawn(weights=(1, -1, -1, -1))
  labels, splits = tasks.tasks[0].labels, tasks.splits
  majority = (labels[splits['test']] == np.bincount(labels[splits['train']]).argmax()).mean()
  for method in ('quadratic', 'mlp'):
    assert accuracy(method, 'own', params=constant, weights=(1, -1, -1, -1)) == majority
  assert accuracy('neighbours', hmm=constant, weights=(1, -1, -1, -1)) <= majority


def test_pairs_of_tokens_read_what_single_ones_do_not():
  """Whether two neighbours differ, which no sum over tokens tells."""
  trial, tasks = drawn()
  nearest = methods.WAYS['window'].read(Job(trial, None, 'window', [0], tasks, QUIET), None)
  task = tasks.tasks[0]._replace(labels=(nearest[:, 0] == nearest[:, 1]).astype(int))
  right = {}
  for method in ('window', 'window_quadratic'):
    job = Job(trial, FrozenModel('none', None, None, STAYS), method, [0], tasks._replace(tasks=[task, task]), QUIET)
    right[method] = tuning.tune(job)[0].measured['accuracy']
  assert right['window_quadratic'] == 1 and right['window'] < 0.9


def test_readers_see_only_the_labels_that_are_asked_for():
  """The texts, the task and the test inputs stay; labels past the first twenty change no fit."""
  (_, few), (_, all_) = drawn(num_labels=20), drawn()
  np.testing.assert_array_equal(few.inputs, all_.inputs)
  assert few.splits == {'train': slice(0, 20), 'validation': slice(300, 320), 'test': all_.splits['test']}
  with pytest.raises(SettingsError, match='^downstream.num_labels is 301; valid is at most num_train, 300$'):
    methods.check(settings_of('smoke', downstream__num_labels=301, downstream__num_train=300))


def test_epochs_are_as_many_as_make_the_steps_that_are_asked_for():
  changes = dict(prompt__num_epochs=2, prompt__batch_size=8, prompt__min_steps=101, downstream__num_labels=20)
  assert settings_of(**changes).schedule('prompt').num_epochs == 51
  assert settings_of(**changes | dict(downstream__num_labels=0)).schedule('prompt').num_epochs == 2
