"""Measurements of a tuned method: accuracies, and attention against concentration."""

import dataclasses
import functools

from conftest import assert_same_bits, at
import numpy as np
from oracles import log_space_conditional, log_space_posterior, rows_of
import pytest
from run_cases import QUIET
from settings_cases import dense_settings, distribution_and_tasks

from experiments.pipeline import attention, methods, optimal_heads, tuning
from experiments.pipeline.job import FrozenModel, Job
from experiments.settings.grid import Point
from experiments.settings.methods import METHODS
from experiments.settings.trial import Trial
from hmm_jax.models.model import ExactModel
from hmm_jax.tuning import tuner as tuner_lib
from hmm_jax.tuning.optimum import whitened_head

pytestmark = pytest.mark.slow

LENGTH = 7
POINT = Point(4, 2, 2)
MODEL = ExactModel(10)


@pytest.fixture(scope='module')
def settings():
  return dense_settings()


@pytest.fixture(scope='module')
def drawn(settings):
  return distribution_and_tasks(settings, POINT)


def predictions(distribution, inputs):
  """G of inputs with [MASK]s, [n, T, V] in numpy."""
  return log_space_conditional(distribution, rows_of(distribution, inputs))


def job_of(settings, drawn, method, tasks=(1, 0)):
  distribution, downstream = drawn
  frozen = FrozenModel('exact', MODEL, distribution, distribution)
  return Job(Trial(settings, POINT, 0), frozen, method, list(tasks), downstream, QUIET)


def tune(*names):
  return tuning.tune(job_of(*names))


def changed(settings, group, **fields):
  return dataclasses.replace(settings, **{group: dataclasses.replace(getattr(settings, group), **fields)})


def assert_accuracies(one, is_right, downstream):
  for split, name in dict(train='train_accuracy', validation='validation_accuracy', test='accuracy').items():
    assert one.measured[name] == pytest.approx(is_right[downstream.splits[split]].mean())


@pytest.mark.parametrize('method', ['prompt_attention', 'attention_converged', 'head_whitened', 'head_best'])
def test_a_method_reads_the_settings_that_name_its_records(method, settings, drawn):
  """No group of settings decides what is tuned, or how, but those that are part of its fit_id."""
  read = set()

  class Watched(type(settings)):
    def __getattribute__(self, name):
      read.add(name)
      return super().__getattribute__(name)

  watched = object.__new__(Watched)
  vars(watched).update(vars(changed(settings, 'restarts', number=1, steps_factor=1)))
  tune(watched, drawn, method)
  assert read & {name for one in METHODS.values() for name in one.settings} == set(METHODS[method].settings)


@pytest.mark.parametrize(('method', 'at_a_time'), [('prompt', 2), ('oracle_prompt', 3)])
def test_bits_of_a_task_do_not_depend_on_the_tasks_beside_it(method, at_a_time, settings, drawn):
  """Trained beside the other task of its block, beside a task of another block, or without another task."""
  settings = dataclasses.replace(changed(settings, 'prompt', num_epochs=2), tasks_at_a_time=at_a_time)
  distribution, downstream = drawn
  tune_some = functools.partial(tune, settings, (distribution, downstream._replace(tasks=2 * downstream.tasks)), method)
  for one, other in zip(tune_some(range(4)), [*tune_some([0]), *tune_some([1, 2]), *tune_some([3])], strict=True):
    assert one.measured == other.measured
    assert_same_bits(one.trainable, other.trainable)


@pytest.mark.parametrize('method', ['table', 'tokens'])
def test_a_reader_without_a_model_chooses_how_many_tokens_it_reads_on_validation(method, settings, drawn, monkeypatch):
  """The fewest of those that validate best."""
  choose, fitted = optimal_heads.chosen, []
  monkeypatch.setattr(optimal_heads, 'chosen', lambda fits, *how: fitted.append(fits) or choose(fits, *how))
  for one, fits in zip(tune(settings, drawn, method), fitted, strict=True):
    best = np.argmax([fits[count].is_right[40:48].mean() for count in range(LENGTH)])
    assert one.measured['tokens_read'] == best
    assert_accuracies(one, fits[best].is_right, drawn[1])


def test_labels_change_if_the_posterior_of_fewer_tokens_gives_another(settings):
  """The share of test labels, by sums of logarithms with rows of ones for what is not kept."""
  distribution, downstream = distribution_and_tasks(settings, Point(4))
  kept = [np.where(np.arange(LENGTH) <= count, downstream.inputs[48:], 10) for count in range(LENGTH)]
  probs = log_space_posterior(distribution, rows_of(distribution, np.stack(kept))).smoothed_probs[:, :, 0]
  for one in tune(settings, (distribution, downstream), 'table'):
    task = downstream.tasks[one.task]
    labels = (probs @ np.float64(task.task_weights).T).argmax(-1)
    assert one.measured['changed_shares'] == (labels != task.labels[48:]).mean(1).tolist()
  assert one.measured['changed_shares'][0] > one.measured['changed_shares'][-1] == 0


def test_tuned_arrays_do_not_depend_on_test_labels(settings, drawn):
  """With all test labels turned round, the same arrays are wrong where they were right.

  So is the majority, which is that of training labels. Scores that differ by less than 1e-6 are no clear ones.
  """
  distribution, downstream = drawn
  train, test = downstream.splits['train'], downstream.splits['test']
  is_test = np.arange(len(downstream.inputs)) >= test.start
  margins = np.where(np.arange(len(is_test)) % 3, 2e-6, 9e-7)
  tasks = [task._replace(labels=task.labels ^ is_test, margins=margins) for task in downstream.tasks]
  turned = tune(settings, (distribution, downstream._replace(tasks=tasks)), 'head')
  probs, is_clear = predictions(distribution, downstream.inputs[test])[:, 0], margins[test] > 1e-6
  for one, other in zip(tune(settings, drawn, 'head'), turned):
    assert_same_bits(one.trainable, other.trainable)
    head, labels = one.trainable['head'], tasks[one.task].labels
    answers = (probs @ head.weights + head.bias).argmax(-1)
    is_right = answers == labels[test]
    expected = dict(
      accuracy=is_right,
      clear_accuracy=is_right[is_clear],
      near_tie_share=~is_clear,
      majority_accuracy=labels[test] == np.bincount(labels[train]).argmax(),
      other_task_accuracy=answers == tasks[1 - one.task].labels[test],
    )
    for name, shares in expected.items():
      assert other.measured[name] == pytest.approx(shares.mean())


def test_the_profile_bins_weights_by_concentration():
  """Ten bins of equal width hold the means of both and the share of positions; the last one holds the largest value."""
  concentration = np.array([[0.0, 0.08, 0.62, 2.0]])
  weights = np.array([[0.4, 0.3, 0.1, 0.2]])
  profile = attention.profile(weights, concentration, 2.0)['attention_profile']
  empty = [None, None, 0]
  expected = [[0.04, 1.4, 0.5], empty, empty, [0.62, 0.4, 0.25], *5 * [empty], [2.0, 0.8, 0.25]]
  assert [pytest.approx(row) for row in expected] == profile
  # Spearman's; there is no correlation with weights that are all equal.
  correlations = [
    attention.profile(some, concentration, 2.0)['attention_rank_correlation'] for some in (weights, 0 * weights)
  ]
  assert correlations == [pytest.approx(-0.8), None]


@pytest.mark.parametrize('method', ['head_converged', 'head_whitened'])
def test_accuracies_of_a_converged_head_are_those_of_its_arrays(method, settings, drawn):
  """By G in float64; its size is that of its entries by those of mu."""
  distribution, downstream = drawn
  probs = predictions(distribution, downstream.inputs)[:, 0]
  for one in tune(settings, drawn, method):
    head, task = one.trainable['head'], downstream.tasks[one.task]
    assert_accuracies(one, (probs @ head.weights + head.bias).argmax(-1) == task.labels, downstream)
    sizes = [np.ptp(rows[1] - rows[0]) for rows in (head.weights.T, np.asarray(task.task_weights))]
    assert one.measured['head_size'] == pytest.approx(sizes[0] / sizes[1], rel=1e-5)


def test_a_head_is_fitted_anew_behind_a_trained_prompt(settings, drawn):
  """The prompt is that of `prompt`; the head reads what the tuner's heads read behind it."""
  distribution, downstream = drawn
  job = job_of(settings, drawn, 'prompt_refit')
  tuner, seen = methods.tuner_of('prompt_refit', job.trial, MODEL), job.inputs
  for plain, one in zip(tune(settings, drawn, 'prompt'), tune(settings, drawn, 'prompt_refit')):
    np.testing.assert_array_equal(one.trainable['prompt'], plain.trainable['prompt'])
    (read,) = tuner_lib.inputs_of_heads(tuner, at(plain.trainable, None), distribution, seen, batch_size=20)
    head, labels = one.trainable['head'], downstream.tasks[one.task].labels
    assert_accuracies(one, (np.float64(read) @ head.weights + head.bias).argmax(-1) == labels, downstream)
    assert one.measured['train_accuracy'] > plain.measured['train_accuracy']


RNG = np.random.default_rng(0)
PROBS = RNG.dirichlet(np.ones(4), 90)
SPLITS = dict(train=slice(30), validation=slice(30, 60), test=slice(60, 90))
NOISY_LABELS = np.int32(PROBS[:, 0] + RNG.normal(scale=0.2, size=90) > 0.25)


@pytest.fixture(scope='module')
def job(settings, drawn):
  """A job whose splits are those of PROBS."""
  return job_of(settings, (drawn[0], drawn[1]._replace(splits=SPLITS)), 'head_whitened')


def test_validation_chooses_the_ridge_of_a_model(job):
  """Ties on validation go to the largest ridge, unless one is given."""
  train, validation, test = SPLITS.values()
  how = dict(num_classes=2, tolerance=1e-8, max_iterations=1000)
  heads = {
    ridge: whitened_head(PROBS[train], NOISY_LABELS[train], ridge=ridge, **how).head
    for ridge in sorted(optimal_heads._RIDGES)
  }
  right = {ridge: (PROBS @ head.weights + head.bias).argmax(1) == NOISY_LABELS for ridge, head in heads.items()}
  best = max(right, key=lambda ridge: (right[ridge][validation].mean(), ridge))
  found = optimal_heads.whitened_head(job, PROBS, NOISY_LABELS)
  assert found.fields['ridge'] == best != 1e-9
  np.testing.assert_array_equal(found.is_right, right[best])
  assert found.fields['ridge_accuracies'] == [(ridge, one[test].mean()) for ridge, one in right.items()]
  assert optimal_heads.whitened_head(job, PROBS, NOISY_LABELS, 1e-9).fields['ridge'] == 1e-9


def test_a_standardised_head_needs_fewer_labels_than_features(job):
  """Features in groups that agree hold the label; the units of features do not matter."""
  rng = np.random.default_rng(1)
  groups = rng.standard_normal((2000, 3)).repeat(20, axis=1)
  labels, test = np.int32(groups[:, 0] > 0), slice(60, 2000)
  features = groups + 0.3 * rng.standard_normal(groups.shape)
  few = job._replace(downstream=job.downstream._replace(splits=SPLITS | dict(test=test)))
  found = optimal_heads.standardised_head(few, features, labels)
  whitened = optimal_heads.whitened_head(few, features, labels)
  assert found.is_right[test].mean() > whitened.is_right[test].mean() + 0.05
  units = np.geomspace(1e-3, 1e3, 60)
  np.testing.assert_array_equal(optimal_heads.standardised_head(few, units * features, labels).is_right, found.is_right)


def test_noise_is_the_error_of_another_input(job):
  """Labels that the exact G decides are lost in noise, although the model shows them in its error; not in little."""
  labels = np.int32(PROBS[:, 0] > np.median(PROBS[:, 0]))
  model = PROBS + 20 * np.outer(labels - 0.5, [1, -1, 0, 0])
  along = dict(optimal_heads.noise_accuracies(job, model, PROBS, labels))
  clean = optimal_heads.whitened_head(job, PROBS, labels).is_right[60:].mean()
  assert along[1e-8] == clean > along[1.0]


def test_the_start_of_best_validation_accuracy_is_kept(settings, drawn, monkeypatch):
  """Start 0 is the start of the method without restarts."""
  plain = tune(settings, drawn, 'head')
  monkeypatch.setitem(METHODS, 'head', METHODS['head']._replace(settings=('head', 'restarts')))
  monkeypatch.setitem(
    methods.WAYS, 'head', methods.WAYS['attention_converged']._replace(head=methods.WAYS['head'].head)
  )
  several = tune(changed(settings, 'restarts', number=4, steps_factor=1), drawn, 'head')
  for one, alone in zip(several, plain):
    accuracies = one.measured['restart_accuracies']
    assert len(accuracies) == 4 and accuracies[0] == alone.measured['validation_accuracy']
    assert one.measured['validation_accuracy'] == max(accuracies) == accuracies[one.measured['restart']]
  assert any(one.measured['restart'] for one in several)


def test_a_prompt_takes_its_positions_of_the_text(settings, drawn):
  """A model of 8 positions sees 6 of the 7 tokens after a prompt of 2; the head reads all 8."""
  one, _ = tune(changed(settings, 'restarts', number=1, steps_factor=1), drawn, 'prompt_attention')
  assert one.trainable['head'].positions.shape == (8, 5)
