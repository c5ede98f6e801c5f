"""Readers that are not linear, of tokens and of the posterior; and as few labels as one asks for."""

import numpy as np
from run_cases import job_on
from settings_cases import settings_of

from experiments.pipeline import methods, tuning
from hmm_jax.distributions.hmm import HMM

# States 0 to 3 say tokens 0 to 2 by laws on one line; the state stays.
LAWS = np.array([[1.0, 0, 0], [0.7, 0.3, 0], [0.3, 0.7, 0], [0, 1.0, 0]])
STAYS = HMM(np.full(4, 0.25), 0.96 * np.eye(4) + 0.01, 0.97 * LAWS + 0.01)
SIZES = dict(length=40, num_train=300, num_validation=100, num_test=300)


def job_of(method, name='exact', **changes):
  """On whether the state is one of the two at the ends of the line."""
  return job_on(STAYS, [1, -1, -1, 1], method, name, **SIZES | changes)


def relabelled(job, labels, **changes):
  """The job with other labels, or other inputs too."""
  task = job.downstream.tasks[0]._replace(labels=np.int32(labels))
  return job._replace(downstream=job.downstream._replace(tasks=[task, task], **changes))


def accuracy(job):
  return tuning.tune(job)[0].measured['accuracy']


def test_a_form_of_degree_two_reads_what_no_linear_head_does():
  """The ends of a line are apart from its middle by a square; the posterior has every label."""
  readers = 'head_whitened', 'quadratic', 'neighbours', 'posterior'
  linear, *others = [accuracy(job_of(reader)) for reader in readers]
  assert linear < 0.8 and min(others) > 0.95


def test_pairs_of_tokens_read_what_single_ones_do_not():
  """Whether two neighbours differ, which no sum over tokens tells."""
  job = job_of('window', name='none')
  nearest = methods.WAYS['window'].read(job)
  job = relabelled(job, nearest[:, 0] == nearest[:, 1])
  assert accuracy(job) < 0.9 and accuracy(job._replace(method='window_quadratic')) == 1


def test_a_ridge_on_all_tokens_reads_the_far_ones():
  """Which of two tokens, drawn alone, stands at position 30, which a window of eight does not see."""
  job = job_of('window', name='none')
  inputs = np.random.default_rng(0).integers(2, size=job.downstream.inputs.shape)
  inputs[:, 0] = job.downstream.inputs[:, 0]
  job = relabelled(job, inputs[:, 30], inputs=inputs)
  assert accuracy(job) < 0.7 and accuracy(job._replace(method='tokens_ridge')) > 0.95


def test_readers_see_only_the_labels_that_are_asked_for():
  """The texts, the task and the test inputs stay; labels past the first twenty change no fit."""
  few, all_ = (job_of('tokens', num_labels=number).downstream for number in (20, 0))
  np.testing.assert_array_equal(few.inputs, all_.inputs)
  assert few.splits == {'train': slice(0, 20), 'validation': slice(300, 320), 'test': all_.splits['test']}


def test_epochs_are_as_many_as_make_the_steps_that_are_asked_for():
  changes = dict(prompt__num_epochs=2, prompt__batch_size=8, prompt__min_steps=101, downstream__num_labels=20)
  assert settings_of(**changes).schedule('prompt').num_epochs == 51
  assert settings_of(**changes | dict(downstream__num_labels=0)).schedule('prompt').num_epochs == 2
