"""The tasks of a trial: what labels speak of, which inputs are whose, and where posteriors concentrate."""

import functools

import jax
import numpy as np
from oracles import cells_of, log_space_posterior
import pytest
from settings_cases import settings_of

from experiments.pipeline import downstream as downstream_lib, trial as trial_lib
from experiments.settings.grid import Point
from hmm_jax import tasks as tasks_lib
from hmm_jax.hmm import HMM

pytestmark = pytest.mark.usefixtures('without_optimisation')

VANILLA, ONE_CELL, TWO_CELLS = Point(4), Point(4, 3, 1), Point(4, 2, 2)
SIZES = dict(length=7, num_train=24, num_validation=8, num_test=12)
SETTINGS = {
  **dict(memory__cells=(2,), prompt__length=2, measure__num_documents=5),
  # Dense distributions.
  **dict(hmm__transition_temperature=0.3, hmm__emission_temperature=0.3),
  **dict.fromkeys(('head__warmup_steps', 'attention__warmup_steps', 'prompt__warmup_steps'), 1),
  **{f'downstream__{name}': size for name, size in SIZES.items()},
}


@functools.cache
def drawn(point, **changes):
  """The distribution of a point and its tasks."""
  settings = settings_of('smoke', 'memory_cells', **SETTINGS, **changes)
  distribution = trial_lib.draw_distribution(settings, point, jax.random.key(0))
  keys = jax.random.key(1), jax.random.key(2)
  return distribution, downstream_lib.draw(settings, point, settings.methods, distribution, *keys)


def leave_one_out(distribution, inputs):
  """P[joint state at t | x_{-t}] of inputs [n, T] in numpy, [n, T, C, H]; C counts what the memory may hold."""
  rows = np.vstack(
    [np.asarray(distribution.joint_emission_matrix).T, np.ones(distribution.joint_emission_matrix.shape[0])]
  )
  joint = log_space_posterior(distribution, rows[inputs]).leave_one_out_probs
  return joint.reshape(*joint.shape[:2], -1, distribution.num_states)


def state_or_cell_probs(distribution, inputs, cell=0):
  """What labels speak of: P[H_1 | X_{-1}] or, with a memory, that of a cell."""
  first = leave_one_out(distribution, inputs)[:, 0]
  if isinstance(distribution, HMM):
    return first[:, 0]
  return cells_of(distribution.memory_probs.shape, first.reshape(len(first), -1))[:, cell]


def scores_of(state_probs, task):
  """Class scores by mu of posteriors [n, H], [n, C]."""
  return state_probs @ np.asarray(task.task_weights, np.float64).T


@pytest.mark.parametrize(('point', 'label_cell'), [(VANILLA, 0), (ONE_CELL, 0), (TWO_CELLS, 1)], ids=str)
def test_labels_speak_of_the_first_state_or_the_label_cell(point, label_cell):
  """Labels are argmax of mu @ P[H_1 | X_-1], or mu @ P[M_j | X_-1] for the cell j that settings name."""
  distribution, downstream = drawn(point, memory__label_cell=label_cell)
  probs = state_or_cell_probs(distribution, downstream.inputs, label_cell)
  assert len(downstream.tasks) == 2
  for task in downstream.tasks:
    assert task.task_weights.shape == (2, point.memory_size or point.num_states)
    np.testing.assert_array_equal(task.labels, scores_of(probs, task).argmax(-1))
    assert set(task.labels[downstream.splits['train']]) == {0, 1}
  first, second = downstream.tasks
  np.testing.assert_array_equal(downstream.labels([1, 0]), [second.labels, first.labels])


def test_each_task_is_a_draw_of_its_own():
  """Tasks of one trial ask for other weights."""
  first, second = drawn(VANILLA)[1].tasks
  assert np.any(first.task_weights != second.task_weights)


def test_a_cut_changes_what_is_seen_and_no_label():
  """Inputs and documents are the starts of the whole ones, labels and margins still those of the whole texts."""
  (distribution, whole), (_, cut) = drawn(ONE_CELL), drawn(ONE_CELL, downstream__num_positions=5)
  for name in ('inputs', 'documents'):
    np.testing.assert_array_equal(getattr(cut, name), getattr(whole, name)[:, :5])
  of_cut = state_or_cell_probs(distribution, cut.inputs)
  for one, other in zip(cut.tasks, whole.tasks):
    np.testing.assert_array_equal(one.labels, other.labels)
    np.testing.assert_array_equal(one.margins, other.margins)
  assert any((scores_of(of_cut, task).argmax(-1) != task.labels).any() for task in cut.tasks)


def test_labels_of_the_silent_state_speak_of_the_state_before_the_text():
  """They are argmax of mu by `silent_state_probs`, and a margin is the gap between the scores."""
  distribution, downstream = drawn(VANILLA, downstream__label_state='silent')
  silent = tasks_lib.silent_state_probs(distribution, downstream.inputs)
  for task in downstream.tasks:
    scores = scores_of(silent, task)
    np.testing.assert_array_equal(task.labels, scores.argmax(-1))
    np.testing.assert_allclose(task.margins, np.abs(np.diff(scores)[:, 0]), rtol=1e-9)


@pytest.mark.parametrize(('point', 'cut'), [(VANILLA, {}), (ONE_CELL, dict(downstream__num_positions=5))], ids=str)
def test_one_memory_concentrates_by_entropy(point, cut):
  """Without cells to choose from, concentration is the entropy of P[H_i | X_-i], at most log H, memory summed out.

  X is what is seen of the text.
  """
  distribution, downstream = drawn(point, **cut)
  test = downstream.inputs[downstream.splits['test']]
  probs = leave_one_out(distribution, test).sum(2)
  np.testing.assert_allclose(downstream.concentration, -(probs * np.log(probs)).sum(-1), atol=1e-5)
  assert (downstream.concentration_name, downstream.most_concentration) == ('entropy', pytest.approx(np.log(4)))


def test_several_cells_concentrate_by_what_is_read():
  """With several cells, concentration is the probability P[J_i = j | X_-i] that position i reads the label's cell."""
  distribution, downstream = drawn(TWO_CELLS, memory__label_cell=1)
  test = downstream.inputs[downstream.splits['test']]
  probs = leave_one_out(distribution, test).sum(2)
  expected = probs[..., np.asarray(distribution.cell_index) == 1].sum(-1)
  np.testing.assert_allclose(downstream.concentration, expected, atol=1e-5)
  assert (downstream.concentration_name, downstream.most_concentration) == ('read_probability', 1.0)


def test_splits_are_the_inputs_in_order():
  """Training, validation and test inputs follow one another, masked first; documents come after them, whole."""
  _, downstream = drawn(ONE_CELL)
  inputs, documents = downstream.inputs, downstream.documents
  assert inputs.shape == (44, 7) and documents.shape == (5, 7)
  assert downstream.splits == {'train': slice(0, 24), 'validation': slice(24, 32), 'test': slice(32, 44)}
  assert (inputs[:, 0] == 10).all() and inputs[:, 1:].max() < 10 and documents.max() < 10
