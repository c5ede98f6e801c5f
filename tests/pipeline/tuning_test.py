"""What is measured of a tuned method: accuracies, and attention against concentration."""

import dataclasses
import functools
import io
import pathlib

import jax
import numpy as np
from oracles import attention_by_the_paper, log_space_conditional
import pytest
import rich.console
import scipy.special
import scipy.stats
from settings_cases import settings_of

from experiments.pipeline import downstream as downstream_lib, optimal_heads, trial as trial_lib, tuning
from experiments.records import trial_records
from experiments.runtime.progress import Reporter
from experiments.settings.grid import Point
from experiments.settings.methods import METHODS
from hmm_jax import heads, tasks as tasks_lib
from hmm_jax.model import ExactModel
from hmm_jax.theory.limits import best_head

pytestmark = pytest.mark.usefixtures('without_optimisation')

LENGTH = 7
POINT = Point(4, 2, 2)
MODEL = ExactModel(10)


@pytest.fixture(scope='module')
def settings():
  sizes = dict(length=LENGTH, num_train=40, num_validation=8, num_test=12)
  changes = {f'downstream__{name}': size for name, size in sizes.items()}
  for method in ('head', 'attention', 'prompt'):
    changes |= {f'{method}__warmup_steps': 1, f'{method}__num_epochs': 1}
  # Dense enough that no two weights of attention are equal but for rounding, on which their ranks would hang.
  temperatures = dict(hmm__transition_temperature=0.3, hmm__emission_temperature=0.3)
  return settings_of('smoke', 'memory_cells', memory__cells=(2,), prompt__length=2, **temperatures, **changes)


@pytest.fixture(scope='module')
def drawn(settings):
  """A distribution with two cells, and its tasks."""
  distribution = trial_lib.draw_distribution(settings, POINT, jax.random.key(0))
  keys = jax.random.key(1), jax.random.key(2)
  return distribution, downstream_lib.draw(settings, POINT, settings.methods, distribution, *keys)


def predictions(distribution, inputs):
  """G of inputs with [MASK]s, [n, T, V] in numpy."""
  columns = np.asarray(distribution.joint_emission_matrix, np.float64).T
  return log_space_conditional(distribution, np.vstack([columns, np.ones((1, columns.shape[1]))])[np.asarray(inputs)])


def tune(settings, drawn, method):
  distribution, downstream = drawn
  reporter = Reporter(rich.console.Console(file=io.StringIO()))
  frozen = tuning.FrozenModel(MODEL, distribution, functools.partial(optimal_heads.exact_probs, distribution))
  trial = trial_lib.Trial(settings, POINT, 0, pathlib.Path('runs'))
  return tuning.tune(tuning.Problem(trial, frozen, method, [1, 0], downstream), reporter)


def changed(settings, group, **fields):
  return dataclasses.replace(settings, **{group: dataclasses.replace(getattr(settings, group), **fields)})


def assert_accuracies(one, is_right, downstream):
  for split, name in dict(train='train_accuracy', validation='validation_accuracy', test='accuracy').items():
    assert one.measured[name] == pytest.approx(is_right[downstream.splits[split]].mean())


@pytest.mark.parametrize(
  'method', ['head', 'prompt_attention', 'attention_converged', 'oracle_prompt', 'head_converged', 'head_best']
)
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


def test_records_of_an_attention_head_are_what_it_does(settings, drawn):
  """Accuracies and the attention profile of each task are recomputed from the arrays that were tuned."""
  distribution, downstream = drawn
  outcome = tune(settings, drawn, 'attention')
  assert [one.task for one in outcome] == [1, 0]
  token_probs, inputs = predictions(distribution, downstream.inputs), np.asarray(downstream.inputs)
  for one in outcome:
    head = one.trainable['head']
    weights, scores = zip(*(attention_by_the_paper(head, *each, 1.0) for each in zip(token_probs, inputs, strict=True)))
    assert_accuracies(one, np.argmax(scores, axis=-1) == downstream.tasks[one.task].labels, downstream)
    relative = LENGTH * np.array(weights[downstream.splits['test']]).ravel()
    rank = scipy.stats.spearmanr(downstream.concentration.ravel(), relative).statistic
    assert one.measured['attention_rank_correlation'] == pytest.approx(rank, abs=1e-3)
    assert one.measured['attention_by'] == 'read_probability'


@pytest.mark.parametrize('method', ['head', 'head_converged'])
def test_what_is_tuned_hangs_on_no_test_label(method, settings, drawn):
  """With all test labels turned round the same arrays are wrong where they were right, and so is the majority, which
  is that of training labels."""
  distribution, downstream = drawn
  train, test = downstream.splits['train'], downstream.splits['test']
  is_test = np.arange(len(downstream.inputs)) >= test.start
  tasks = [task._replace(labels=np.where(is_test, 1 - task.labels, task.labels)) for task in downstream.tasks]
  turned = tune(settings, (distribution, downstream._replace(tasks=tasks)), method)
  for one, other in zip(tune(settings, drawn, method), turned):
    jax.tree.map(np.testing.assert_array_equal, one.trainable, other.trainable)
    assert other.measured['validation_accuracy'] == one.measured['validation_accuracy']
    labels = downstream.tasks[one.task].labels
    majority = (labels[test] == np.bincount(labels[train]).argmax()).mean()
    for name, accuracy in (('accuracy', one.measured['accuracy']), ('majority_accuracy', majority)):
      assert one.measured[name] == pytest.approx(accuracy) and other.measured[name] == pytest.approx(1 - accuracy)


def test_near_ties_are_told_apart(settings, drawn):
  """Inputs whose class scores differ by less than 1e-6 are counted, and left out of the accuracy on clear ones."""
  distribution, downstream = drawn
  test = downstream.splits['test']
  is_tie = np.arange(test.stop - test.start) % 3 == 0
  margins = np.ones(len(downstream.inputs))
  margins[test] = np.where(is_tie, 9e-7, 2e-6)
  tasks = [task._replace(margins=margins) for task in downstream.tasks]
  for one in tune(settings, (distribution, downstream._replace(tasks=tasks)), 'head'):
    head, measured = one.trainable['head'], one.measured
    scores = predictions(distribution, downstream.inputs[test])[:, 0] @ head.weights + head.bias
    correct = scores.argmax(-1) == downstream.tasks[one.task].labels[test]
    assert measured['near_tie_share'] == pytest.approx(1 / 3)
    assert measured['clear_accuracy'] == pytest.approx(correct[~is_tie].mean())
    assert measured['attention_by'] is measured['attention_profile'] is None


def test_the_profile_bins_weights_by_concentration(drawn):
  """Ten bins of equal width hold the means of both and the share of positions; the last one holds the largest value."""
  draws = np.random.default_rng(0)
  concentration = draws.choice([0.0, 0.04, 0.31, 0.39, 0.76, 1.0], (12, LENGTH)).astype(np.float32) * 2
  weights = draws.dirichlet(np.ones(LENGTH), 12)
  downstream = drawn[1]._replace(concentration=concentration, most_concentration=2.0)
  profile = tuning.attention_profile(weights, downstream)['attention_profile']
  # There is no correlation with weights that are all equal.
  assert tuning.attention_profile(np.ones((12, LENGTH)), downstream)['attention_rank_correlation'] is None
  # The bin of each of the values above.
  for index, values in ((0, (0, 0.08)), (3, (0.62, 0.78)), (7, (1.52,)), (9, (2,))):
    within = np.isclose(concentration[..., None], values).any(-1)
    expected = [concentration[within].mean(), LENGTH * weights[within].mean(), within.mean()]
    assert profile[index] == pytest.approx(expected)
  assert [profile[index] for index in (1, 2, 4, 5, 6, 8)] == [[None, None, 0]] * 6 and len(profile) == 10


def test_a_converged_head_is_what_it_does(settings, drawn):
  """Accuracies and loss are those of its arrays, by G in float64; where it ends the loss has next to no slope."""
  distribution, downstream = drawn
  probs, train = predictions(distribution, downstream.inputs)[:, 0], downstream.splits['train']
  for one in tune(settings, drawn, 'head_converged'):
    head, measured, labels = one.trainable['head'], one.measured, downstream.tasks[one.task].labels
    scores = probs @ head.weights + head.bias
    assert_accuracies(one, scores.argmax(-1) == labels, downstream)
    log_probs = scipy.special.log_softmax(scores, axis=1)[train]
    assert measured['train_loss'] == pytest.approx(-log_probs[np.arange(40), labels[train]].mean(), rel=1e-3)
    residuals = np.exp(log_probs) - np.eye(2)[labels[train]]
    slope = probs[train].T @ residuals / 40 + settings.converged.ridge * head.weights
    assert np.abs(slope).max() < 1e-6 and 0 < measured['gradient_norm'] < 1e-6
    exact = optimal_heads.exact_probs(distribution, downstream.inputs)
    expected = optimal_heads.converged_head(settings, exact, labels, downstream.splits).trainable['head']
    np.testing.assert_array_equal(head.weights, expected.weights)


def test_the_best_head_is_fitted_to_the_test_inputs(settings, drawn):
  """No head that training finds is above it, nor it above what certificates leave."""
  distribution, downstream = drawn
  test, probs = downstream.splits['test'], predictions(distribution, downstream.inputs)[:, 0]
  for one, converged in zip(tune(settings, drawn, 'head_best'), tune(settings, drawn, 'head_converged')):
    measured, head = one.measured, one.trainable['head']
    is_right = (probs @ head.weights).argmax(-1) == downstream.tasks[one.task].labels
    assert measured['accuracy'] == pytest.approx(is_right[test].mean()) and not head.bias.any()
    assert converged.measured['accuracy'] <= measured['accuracy'] <= measured['accuracy_at_most'] <= 1
    assert measured['separable'] is (measured['accuracy'] == 1)


def test_the_head_of_a_linear_score_is_right_whatever_a_search_finds(settings, monkeypatch):
  """A cell of two values beside four states are fewer joint states than tokens: what mu asks of the cell is linear."""
  distribution = trial_lib.draw_distribution(settings, Point(4, 2, 1), jax.random.key(0))
  inputs, mu = np.random.default_rng(0).integers(10, size=(60, LENGTH)), np.float32([[0.7, 0.1], [-0.2, 0.9]])
  inputs[:, 0] = 10
  labels = (tasks_lib.memory_probs(distribution, inputs)[:, 0] @ np.float64(mu).T).argmax(1).astype(np.int32)
  splits = dict.fromkeys(('train', 'validation', 'test'), slice(60))
  task = tasks_lib.Task(mu, labels, 0, np.ones(60))
  downstream = downstream_lib.Downstream(inputs, [task], splits, inputs, None, 'entropy', 1.0)
  nothing = best_head.BestHead(np.zeros((10, 2)), 0.9, [], 0.0, None)
  monkeypatch.setattr(best_head, 'best_head', lambda *_, **how: nothing)
  (found,) = optimal_heads.heads_on_test(settings, distribution, downstream, [0])
  assert found.is_right.all() and found.fields['separable'] is True
  probs = optimal_heads.exact_probs(distribution, inputs)
  assert ((probs @ found.trainable['head'].weights).argmax(1) == labels).all() and 0.2 < labels.mean() < 0.8


def test_of_restarts_validation_chooses(settings, drawn, monkeypatch):
  """Start 0 is the one without restarts, and of all the best on validation is kept; `steps_factor` is of its epochs."""
  plain = tune(settings, drawn, 'head')
  three_epochs = tune(changed(settings, 'head', num_epochs=3), drawn, 'head')
  monkeypatch.setitem(METHODS, 'head', METHODS['head']._replace(fit='restarts'))
  several = tune(changed(settings, 'restarts', number=4, steps_factor=1), drawn, 'head')
  for one, alone in zip(several, plain):
    accuracies = one.measured['restart_accuracies']
    assert len(accuracies) == 4 and accuracies[0] == alone.measured['validation_accuracy']
    assert one.measured['validation_accuracy'] == max(accuracies) == accuracies[one.measured['restart']]
  assert any(one.measured['restart'] for one in several)
  longer = tune(changed(settings, 'restarts', number=1, steps_factor=3), drawn, 'head')
  for one, other in zip(longer, three_epochs):
    jax.tree.map(np.testing.assert_array_equal, one.trainable, other.trainable)


def test_of_starts_that_are_equally_good_the_one_of_less_loss_is_kept():
  """A column is a task; of equal losses too the first start is kept."""
  accuracies = np.array([[0.8, 0.9, 0.9, 0.9], [0.8, 0.9, 0.9, 0.9], [-0.8, -0.9, -0.9, -0.9]]).T
  losses = np.array([[0.1, 0.4, 0.3, 0.3], np.zeros(4), np.zeros(4)]).T
  np.testing.assert_array_equal(tuning.best_starts(accuracies, losses), [2, 1, 0])


def test_a_control_reads_a_part_of_what_attention_reads(settings):
  """Their heads are those of the attention method but for what they read; `attention.form` chooses the released one."""
  whole, blind, constant = (
    tuning.build(settings, POINT, MODEL, name).head for name in ('attention', 'attention_blind', 'attention_constant')
  )
  # The paper's sizes: |H| + 1 for keys, |M||H| for values.
  assert whole == heads.Attention(2, 5, 8, settings.attention.temperature)
  assert blind == dataclasses.replace(whole, reads_tokens=False)
  assert constant == dataclasses.replace(whole, reads_probs=False)
  official = changed(settings, 'attention', form='official')
  assert tuning.build(official, POINT, MODEL, 'attention').head == heads.OfficialAttention(2)


def test_a_prompt_takes_its_positions_of_the_text(settings, drawn):
  """With 6 positions 4 tokens are seen after a prompt of 2: those past them change nothing tuned."""
  distribution, downstream = drawn
  settings = changed(settings, 'downstream', num_positions=6)
  texts = np.where(np.arange(LENGTH) < 4, downstream.inputs, (downstream.inputs + 1) % 10)
  one, other = (
    tune(settings, (distribution, downstream._replace(inputs=x)), 'prompt_attention')[0]
    for x in (downstream.inputs, texts)
  )
  jax.tree.map(np.testing.assert_array_equal, one.trainable, other.trainable)
  assert one.measured == other.measured and one.trainable['head'].positions.shape == (6, 5)


def test_saved_arrays_are_those_tuned(tmp_path):
  """The npz holds every tuned array under its path in the tree, and nothing else."""
  head = heads.LinearHead(np.ones((3, 2)), np.zeros(2))
  trial_records.save_arrays(tmp_path / 'arrays.npz', {'head': head, 'prompt': np.ones(4)})
  with np.load(tmp_path / 'arrays.npz', allow_pickle=False) as arrays:
    jax.tree.map(
      np.testing.assert_array_equal, dict(arrays), {'head/weights': head[0], 'head/bias': head[1], 'prompt': np.ones(4)}
    )
