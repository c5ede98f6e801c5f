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

from configs import memory_cells
from experiments.pipeline import downstream as downstream_lib, optimal_heads, trial as trial_lib, tuning
from experiments.records import trial_records
from experiments.runtime.progress import Reporter
from experiments.settings.fields import SettingsError
from experiments.settings.grid import Point
from experiments.settings.methods import METHODS
from experiments.studies import registry
from hmm_jax import tasks as tasks_lib
from hmm_jax.model import ExactModel
from hmm_jax.theory.limits import best_head

pytestmark = pytest.mark.usefixtures('without_optimisation')

LENGTH = 7
POINT = Point(4, 2, 2)
MODEL = ExactModel(10)


@pytest.fixture(scope='module')
def settings():
  config = memory_cells.get_config('smoke')
  config.memory.cells = (2,)
  config.downstream.update(length=LENGTH, num_train=40, num_validation=8, num_test=12)
  config.prompt.length = 2
  # Dense enough that no two weights of attention are equal but for rounding, on which their ranks would hang.
  config.hmm.update(transition_temperature=0.3, emission_temperature=0.3)
  for method in ('head', 'attention', 'prompt'):
    config[method].update(warmup_steps=1, num_epochs=1)
  return registry.from_config(config)


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


@pytest.mark.parametrize('method', [name for name, method in METHODS.items() if 'exact' in method.models])
def test_a_method_reads_the_settings_that_name_its_records(method, settings, drawn):
  """No group of settings decides what is tuned, or how, but those that are part of its fit_id."""
  read = set()

  class Watched(type(settings)):
    def __getattribute__(self, name):
      read.add(name)
      return super().__getattribute__(name)

  watched = object.__new__(Watched)
  vars(watched).update(vars(settings))
  tune(watched, drawn, method)
  assert read & {name for one in METHODS.values() for name in one.settings} == set(METHODS[method].settings)


def test_records_of_an_attention_head_are_what_it_does(settings, drawn):
  """Accuracies and the attention profile of each task are recomputed from the arrays that were tuned."""
  distribution, downstream = drawn
  outcome = tune(settings, drawn, 'attention')
  assert [one.task for one in outcome] == [1, 0]
  token_probs, inputs = predictions(distribution, downstream.inputs), np.asarray(downstream.inputs)
  for one in outcome:
    # The paper's sizes: |H| + 1 for keys, |M||H| for values.
    assert one.trainable['head'].positions.shape == (LENGTH, 5)
    assert one.trainable['head'].token_embeddings.shape == (11, 8)
    head = one.trainable['head']
    weights, scores = zip(*(attention_by_the_paper(head, *each, 1.0) for each in zip(token_probs, inputs, strict=True)))
    predicted = np.argmax(scores, axis=-1)
    labels = downstream.tasks[one.task].labels
    names = {'train': 'train_accuracy', 'validation': 'validation_accuracy', 'test': 'accuracy'}
    for split, name in names.items():
      where = downstream.splits[split]
      assert one.measured[name] == pytest.approx(float((predicted == labels)[where].mean()), abs=1e-6)
    test = downstream.splits['test']
    relative = LENGTH * np.array(weights[test]).ravel()
    rank = scipy.stats.spearmanr(downstream.concentration.ravel(), relative).statistic
    assert one.measured['attention_rank_correlation'] == pytest.approx(rank, abs=1e-3)
    assert one.measured['attention_by'] == 'read_probability'
    profile = one.measured['attention_profile']
    assert sum(row[1] * row[2] for row in profile if row[2]) == pytest.approx(relative.mean(), abs=1e-4)


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
    assert other.measured['accuracy'] == pytest.approx(1 - one.measured['accuracy'])
    assert other.measured['validation_accuracy'] == one.measured['validation_accuracy']
    labels = downstream.tasks[one.task].labels
    majority = (labels[test] == np.bincount(labels[train]).argmax()).mean()
    assert one.measured['majority_accuracy'] == pytest.approx(majority)
    assert other.measured['majority_accuracy'] == pytest.approx(1 - majority)


def test_near_ties_are_told_apart(settings, drawn):
  """Inputs whose class scores differ by less than 1e-6 are counted, and left out of the accuracy on clear ones."""
  distribution, downstream = drawn
  test = downstream.splits['test']
  is_tie = np.arange(test.stop - test.start) % 3 == 0
  margins = np.ones(len(downstream.inputs))
  margins[test] = np.where(is_tie, 9e-7, 2e-6)
  for ties, expected in ((margins, is_tie.mean()), (0 * margins, 1.0)):
    tasks = [task._replace(margins=ties) for task in downstream.tasks]
    for one in tune(settings, (distribution, downstream._replace(tasks=tasks)), 'head'):
      head, measured = one.trainable['head'], one.measured
      probs = predictions(distribution, downstream.inputs[test])[:, 0]
      correct = np.asarray((probs @ head.weights + head.bias).argmax(-1) == downstream.tasks[one.task].labels[test])
      assert measured['near_tie_share'] == pytest.approx(expected)
      assert measured['accuracy'] == pytest.approx(correct.mean())
      if expected == 1:
        assert measured['clear_accuracy'] is None
      else:
        assert measured['clear_accuracy'] == pytest.approx(correct[~is_tie].mean())


@pytest.mark.parametrize('method', ['head', 'prompt_attention'])
def test_only_attention_without_a_prompt_has_a_profile(method, settings, drawn):
  """Other methods leave the fields of the profile null."""
  for one in tune(settings, drawn, method):
    assert one.measured['attention_by'] is one.measured['attention_profile'] is None
    assert one.measured['attention_rank_correlation'] is None
    assert 0 <= one.measured['accuracy'] <= 1


def test_the_profile_bins_weights_by_concentration(drawn):
  """Ten bins of equal width hold the means of both and the share of positions; shares and mean weights are 1."""
  draws = np.random.default_rng(0)
  concentration = draws.choice([0.0, 0.04, 0.31, 0.39, 0.76, 1.0], (12, LENGTH)).astype(np.float32) * 2
  weights = draws.dirichlet(np.ones(LENGTH), 12)
  downstream = drawn[1]._replace(concentration=concentration, most_concentration=2.0)
  measured = tuning._attention_profile(weights, downstream)
  profile = measured['attention_profile']
  assert len(profile) == 10
  for index, (mean_concentration, mean_weight, share) in enumerate(profile):
    low, high = 0.2 * index, 0.2 * (index + 1)
    # The last bin holds the largest value too.
    within = (concentration >= low) & ((concentration < high) | (index == 9))
    assert share == pytest.approx(within.mean())
    if index in (0, 3, 7, 9):
      assert mean_concentration == pytest.approx(concentration[within].mean())
      assert mean_weight == pytest.approx(LENGTH * weights[within].mean())
    else:
      assert mean_concentration is mean_weight is None
  assert sum(row[2] for row in profile) == pytest.approx(1)
  assert sum(row[1] * row[2] for row in profile if row[2]) == pytest.approx(1)


def test_attention_that_follows_concentration_correlates_with_it(drawn):
  """Spearman's correlation is 1 where weights rise with concentration, -1 where they fall, null where all are equal."""
  concentration = np.random.default_rng(0).random((12, LENGTH))
  downstream = drawn[1]._replace(concentration=concentration, most_concentration=1.0)
  for weights, expected in ((concentration**3, 1), (1 - concentration, -1)):
    measured = tuning._attention_profile(weights, downstream)
    assert measured['attention_rank_correlation'] == pytest.approx(expected)
  measured = tuning._attention_profile(np.full((12, LENGTH), 1 / LENGTH), downstream)
  assert measured['attention_rank_correlation'] is None
  assert all(row[1] == pytest.approx(1) for row in measured['attention_profile'] if row[2])


def test_a_converged_head_is_what_it_does(settings, drawn):
  """Accuracies and loss are recomputed from the arrays; where it ends the loss has next to no slope."""
  distribution, downstream = drawn
  probs = predictions(distribution, downstream.inputs)[:, 0]
  for one in tune(settings, drawn, 'head_converged'):
    head, measured = one.trainable['head'], one.measured
    labels, train = downstream.tasks[one.task].labels, downstream.splits['train']
    is_right = (probs @ head.weights + head.bias).argmax(-1) == labels
    names = {'train': 'train_accuracy', 'validation': 'validation_accuracy', 'test': 'accuracy'}
    for split, name in names.items():
      assert measured[name] == pytest.approx(is_right[downstream.splits[split]].mean())
    log_probs = scipy.special.log_softmax(probs @ head.weights + head.bias, axis=1)[train]
    assert measured['train_loss'] == pytest.approx(-log_probs[np.arange(40), labels[train]].mean(), rel=1e-3)
    residuals = np.exp(log_probs) - np.eye(2)[labels[train]]
    slope = probs[train].T @ residuals / 40 + settings.converged.ridge * head.weights
    assert np.abs(slope).max() < 1e-6 and 0 < measured['gradient_norm'] < 1e-6
    assert measured['accuracy_at_most'] is measured['restart'] is None


def test_the_best_head_is_fitted_to_the_test_inputs(settings, drawn):
  """No head that training finds is above it, nor it above what certificates leave; inputs that have both labels are a
  certificate."""
  distribution, downstream = drawn
  test = downstream.splits['test']
  probs = predictions(distribution, downstream.inputs)[:, 0]
  converged = {one.task: one.measured['accuracy'] for one in tune(settings, drawn, 'head_converged')}
  found = tune(settings, drawn, 'head_best')
  for one in found:
    measured, head, labels = one.measured, one.trainable['head'], downstream.tasks[one.task].labels
    is_right = (probs @ head.weights).argmax(-1) == labels
    assert measured['accuracy'] == pytest.approx(is_right[test].mean()) and not head.bias.any()
    assert converged[one.task] <= measured['accuracy'] <= measured['accuracy_at_most'] <= 1
    assert measured['separable'] is (measured['accuracy'] == 1)
    assert measured['train_loss'] is measured['gradient_norm'] is None


def random_downstream(num_tokens, label):
  """Sixty random texts, of which each split has all, and one task that `label` labels by weights [C, S]."""
  rng = np.random.default_rng(0)
  inputs = rng.integers(num_tokens, size=(60, LENGTH))
  inputs[:, 0] = num_tokens
  weights, labels = label(rng, inputs)
  task = tasks_lib.Task(weights, labels.astype(np.int32), 0, np.ones(60))
  splits = dict.fromkeys(('train', 'validation', 'test'), slice(60))
  return downstream_lib.Downstream(inputs, [task], splits, inputs, None, 'entropy', 1.0)


def test_the_head_of_a_linear_score_is_right_whatever_a_search_finds(settings, monkeypatch):
  """A cell of two values beside four states are fewer joint states than tokens: what mu asks of the cell is linear."""
  distribution = trial_lib.draw_distribution(settings, Point(4, 2, 1), jax.random.key(0))

  def label(rng, inputs):
    weights = np.float32([[0.7, 0.1], [-0.2, 0.9]])
    return weights, (tasks_lib.memory_probs(distribution, inputs)[:, 0] @ np.float64(weights).T).argmax(1)

  downstream = random_downstream(10, label)
  nothing = best_head.BestHead(np.zeros((10, 2)), 0.9, [], 0.0, None)
  monkeypatch.setattr(best_head, 'best_head', lambda *_, **how: nothing)
  (found,) = optimal_heads.heads_on_test(settings, distribution, downstream, [0])
  assert found.is_right.all() and found.fields['separable'] is True
  head, labels = found.trainable['head'], downstream.tasks[0].labels
  assert ((optimal_heads.exact_probs(distribution, downstream.inputs) @ head.weights).argmax(1) == labels).all()
  assert 0.2 < labels.mean() < 0.8


def test_a_converged_head_on_the_exact_model_reads_float64(settings, drawn):
  distribution, downstream = drawn
  for one in tune(settings, drawn, 'head_converged'):
    labels, probs = downstream.tasks[one.task].labels, optimal_heads.exact_probs(distribution, downstream.inputs)
    expected = optimal_heads.converged_head(settings, probs, labels, downstream.splits).trainable['head']
    np.testing.assert_array_equal(one.trainable['head'].weights, expected.weights)


def test_labels_that_no_head_gives_are_proven_to_be_so(settings):
  """With more states than tokens; the best head is not above what certificates leave, nor below a converged one."""
  point = Point(12)
  distribution = trial_lib.draw_distribution(settings, point, jax.random.key(0))
  downstream = random_downstream(10, lambda rng, _: (rng.normal(size=(2, 12)), rng.integers(2, size=60)))
  labels = downstream.tasks[0].labels
  (best,) = optimal_heads.heads_on_test(settings, distribution, downstream, [0])
  converged = optimal_heads.converged_head(
    settings, optimal_heads.exact_probs(distribution, downstream.inputs), labels, downstream.splits
  )
  assert converged.is_right.mean() <= best.is_right.mean() <= best.fields['accuracy_at_most'] < 1
  assert best.fields['separable'] is False and best.fields['certificate_residual'] < 1e-11


def test_of_restarts_validation_chooses(settings, drawn, monkeypatch):
  """Start 0 is the one without restarts, and of all the best on validation is kept; `steps_factor` is of its epochs."""
  plain = {one.task: one for one in tune(settings, drawn, 'head')}
  monkeypatch.setitem(METHODS, 'head', METHODS['head']._replace(fit='restarts'))
  with_restarts = lambda **how: dataclasses.replace(settings, restarts=dataclasses.replace(settings.restarts, **how))
  several = {one.task: one.measured for one in tune(with_restarts(number=4, steps_factor=1), drawn, 'head')}
  for task, measured in several.items():
    accuracies = measured['restart_accuracies']
    assert len(accuracies) == 4 and accuracies[0] == plain[task].measured['validation_accuracy']
    assert measured['validation_accuracy'] == max(accuracies) == accuracies[measured['restart']]
  assert len({measured['restart'] for measured in several.values()} | {0}) > 1
  # One start for as many epochs as the schedule has with three times as many of its own.
  longer = tune(with_restarts(number=1, steps_factor=3), drawn, 'head')
  monkeypatch.undo()
  group = dataclasses.replace(settings.head, num_epochs=3 * settings.head.num_epochs)
  for one, other in zip(longer, tune(dataclasses.replace(settings, head=group), drawn, 'head')):
    jax.tree.map(np.testing.assert_array_equal, one.trainable, other.trainable)


def test_of_starts_that_are_equally_good_the_one_of_less_loss_is_kept():
  """A column is a task; of equal losses too the first start is kept."""
  accuracies = np.array([[0.8, 0.9, 0.9, 0.9], [0.8, 0.9, 0.9, 0.9], [-0.8, -0.9, -0.9, -0.9]]).T
  losses = np.array([[0.1, 0.4, 0.3, 0.3], np.zeros(4), np.zeros(4)]).T
  np.testing.assert_array_equal(tuning._best_starts(accuracies, losses), [2, 1, 0])


def test_the_official_form_is_the_official_head(settings, drawn):
  """With `attention.form` official the tuned arrays are the released code's: a query of V entries, a linear head."""
  official = dataclasses.replace(settings, attention=dataclasses.replace(settings.attention, form='official'))
  for one in tune(official, drawn, 'attention'):
    assert one.trainable['head'].query.shape == (10,)
    assert one.trainable['head'].linear.weights.shape == (10, 2)


def test_a_control_reads_a_part_of_what_attention_reads(settings):
  """Their heads are those of the attention method but for what they read; the released code's has no such part."""
  tuners = {name: tuning.build(settings, POINT, MODEL, name) for name in METHODS if name.startswith('attention')}
  whole = tuners['attention'].head
  assert whole.reads_probs and whole.reads_tokens
  assert tuners['attention_blind'].head == dataclasses.replace(whole, reads_tokens=False)
  assert tuners['attention_constant'].head == dataclasses.replace(whole, reads_probs=False)
  official = dataclasses.replace(settings.attention, form='official')
  with pytest.raises(SettingsError, match="attention.form is 'official'; valid is 'paper' where attention_blind"):
    dataclasses.replace(settings, attention=official, methods=('attention_blind',))


@pytest.mark.parametrize('method', ['head', 'prompt_attention'])
def test_a_prompt_takes_its_positions_of_the_text(method, settings, drawn):
  """With 6 positions a method sees 6 tokens, or 4 after a prompt of 2: those past them change nothing tuned."""
  distribution, downstream = drawn
  settings = dataclasses.replace(settings, downstream=dataclasses.replace(settings.downstream, num_positions=6))
  seen = 4 if method == 'prompt_attention' else 6
  texts = np.where(np.arange(LENGTH) < seen, downstream.inputs, (downstream.inputs + 1) % 10)
  one, other = (
    tune(settings, (distribution, downstream._replace(inputs=x)), method) for x in (downstream.inputs, texts)
  )
  for a, b in zip(one, other):
    assert a.measured == b.measured
    jax.tree.map(np.testing.assert_array_equal, a.trainable, b.trainable)
  if method != 'head':
    assert one[0].trainable['head'].positions.shape == (6, 5)


def test_saved_arrays_are_those_tuned(settings, drawn, tmp_path):
  """The npz holds every tuned array under its path in the tree, and nothing else."""
  trainable = tune(settings, drawn, 'prompt_attention')[0].trainable
  trial_records.save_arrays(tmp_path / 'arrays.npz', trainable)
  arrays = np.load(tmp_path / 'arrays.npz', allow_pickle=False)
  names = {f'head/{name}' for name in trainable['head']._fields} | {'prompt'}
  assert set(arrays.files) == names
  np.testing.assert_array_equal(arrays['prompt'], trainable['prompt'])
  np.testing.assert_array_equal(arrays['head/positions'], trainable['head'].positions)
  assert arrays['prompt'].shape == (2, POINT.joint_states) and arrays['head/positions'].shape == (2 + LENGTH, 5)
