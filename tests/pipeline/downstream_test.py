"""The tasks of a trial: the posterior of labels, the splits of inputs, and concentration of posteriors."""

import functools

import numpy as np
from oracles import cells_of, log_space_posterior, rows_of
import pytest
from settings_cases import dense_settings, distribution_and_tasks

from experiments.pipeline import attention
from experiments.pipeline.job import FrozenModel, Job
from experiments.settings.grid import Point
from experiments.settings.trial import Trial
from hmm_jax.tuning import tasks as tasks_lib

pytestmark = pytest.mark.slow

VANILLA, ONE_CELL, TWO_CELLS = Point(4), Point(4, 3, 1), Point(4, 2, 2)


@functools.cache
def drawn(point, **changes):
  """The distribution of a point and its tasks."""
  return distribution_and_tasks(dense_settings(**changes), point)


def leave_one_out(distribution, inputs):
  """P[joint state at t | x_{-t}] of inputs [n, T] in numpy, [n, T, C, H]; C counts what the memory may hold."""
  joint = log_space_posterior(distribution, rows_of(distribution, inputs)).leave_one_out_probs
  return joint.reshape(*joint.shape[:2], -1, distribution.num_states)


@pytest.mark.parametrize(
  ('point', 'changes'),
  [
    (VANILLA, {}),
    (TWO_CELLS, dict(memory__label_cell=1)),
    (VANILLA, dict(downstream__label_state='silent')),
  ],
  ids=str,
)
def test_labels_speak_of_the_first_state_or_the_label_cell(point, changes):
  """Labels are argmax of mu by P[H_1 | X_-1], by that of the cell that settings name, or by that of the silent state.

  A margin is the gap between the scores. Each task is a draw of its own.
  """
  distribution, downstream = drawn(point, **changes)
  probs = leave_one_out(distribution, downstream.inputs)[:, 0]
  if 'downstream__label_state' in changes:
    probs = tasks_lib.silent_state_probs(distribution, downstream.inputs)
  elif point == VANILLA:
    probs = probs[:, 0]
  else:
    joint = probs.reshape(len(probs), -1)
    probs = cells_of(distribution.memory_probs.shape, joint)[:, changes['memory__label_cell']]
  first, second = downstream.tasks
  for task, labels in zip(downstream.tasks, downstream.labels([0, 1])):
    scores = probs @ np.float64(task.task_weights).T
    np.testing.assert_array_equal(labels, scores.argmax(-1))
    np.testing.assert_allclose(task.margins, np.abs(np.diff(scores)[:, 0]), atol=1e-6)
  assert np.any(first.task_weights != second.task_weights)


def test_a_cut_changes_inputs_and_no_label():
  """Inputs and documents are the starts of the whole ones, labels still those of the whole texts."""
  (_, whole), (_, cut) = drawn(ONE_CELL), drawn(ONE_CELL, downstream__num_positions=5)
  np.testing.assert_array_equal(cut.inputs, whole.inputs[:, :5])
  np.testing.assert_array_equal(cut.documents, whole.documents[:, :5])
  np.testing.assert_array_equal(cut.labels([0, 1]), whole.labels([0, 1]))


@pytest.mark.parametrize('point', [ONE_CELL, TWO_CELLS], ids=str)
def test_concentration_is_entropy_or_the_probability_of_reading(point):
  """With one memory, concentration is the entropy of P[H_i | X_-i], memory summed out.

  With several cells it is the probability P[J_i = j | X_-i] that position i reads the label's cell. X is what is seen.
  """
  changes = dict(downstream__num_positions=5, memory__label_cell=point.num_cells - 1)
  distribution, downstream = drawn(point, **changes)
  trial = Trial(dense_settings(**changes), point, 0)
  job = Job(trial, FrozenModel('exact', None, distribution, distribution), 'attention', [], downstream, None)
  probs = leave_one_out(distribution, downstream.inputs[downstream.splits['test']]).sum(2)
  expected = -(probs * np.log(probs)).sum(-1)
  if point == TWO_CELLS:
    expected = probs[..., np.asarray(distribution.cell_index) == 1].sum(-1)
  np.testing.assert_allclose(attention.concentration(job)[1], expected, atol=1e-5)


def test_splits_are_the_inputs_in_order():
  """Training, validation and test inputs follow one another, masked first; documents come after them, whole."""
  _, downstream = drawn(ONE_CELL)
  inputs, documents = downstream.inputs, downstream.documents
  assert inputs.shape == (60, 7) and documents.shape == (5, 7)
  assert downstream.splits == {'train': slice(0, 40), 'validation': slice(40, 48), 'test': slice(48, 60)}
  assert (inputs[:, 0] == 10).all() and documents.max() < 10
