"""The tasks of a trial: what labels speak of, which inputs are whose, and where posteriors concentrate."""

import functools

from conftest import joint_hmm
import jax
import numpy as np
from oracles import float64
import pytest

from configs import memory_cells
from experiments.pipeline import downstream as downstream_lib, trial as trial_lib
from experiments.settings.grid import Point
from experiments.studies import registry
from hmm_jax.hmm import HMM

pytestmark = pytest.mark.usefixtures('without_optimisation')

SIZES = dict(length=7, num_train=24, num_validation=8, num_test=12)
VANILLA, ONE_CELL, TWO_CELLS = Point(4), Point(4, 3, 1), Point(4, 2, 2)


def make_settings(label_cell=0, **downstream):
  """Smoke settings with small tasks and dense distributions."""
  config = memory_cells.get_config('smoke')
  config.memory.update(cells=(2,), label_cell=label_cell)
  config.downstream.update(SIZES, **downstream)
  config.prompt.length = 2
  config.measure.num_documents = 5
  config.hmm.update(transition_temperature=0.3, emission_temperature=0.3)
  for method in ('head', 'attention', 'prompt'):
    config[method].update(warmup_steps=1)
  return registry.from_config(config)


@functools.cache
def drawn(point, label_cell=0, **downstream):
  """The distribution of a point and its tasks."""
  settings = make_settings(label_cell, **downstream)
  distribution = trial_lib.draw_distribution(settings, point, jax.random.key(0))
  keys = jax.random.key(1), jax.random.key(2)
  return distribution, downstream_lib.draw(settings, point, settings.methods, distribution, *keys)


def leave_one_out(distribution, tokens):
  """P[joint state at t | x_{-t}] of the flattened chain by matrix products in float64, [T, *memory, H]."""
  is_vanilla = isinstance(distribution, HMM)
  hmm = float64(distribution)
  initial, transition, emission = hmm if is_vanilla else joint_hmm(hmm)
  rows = np.vstack([emission.T, np.ones(len(initial))])[tokens]
  ahead, behind = [initial], [np.ones(len(initial))]
  for row in rows[:-1]:
    ahead.append((ahead[-1] * row) @ transition)
  for row in rows[:0:-1]:
    behind.append(transition @ (behind[-1] * row))
  joint = np.array(ahead) * behind[::-1]
  joint /= joint.sum(-1, keepdims=True)
  shape = () if is_vanilla else distribution.memory_probs.shape
  return joint.reshape(len(tokens), *shape, -1)


def cell_probs(distribution, tokens, cell):
  """P[M_cell | X_{-1}], [M]."""
  joint = leave_one_out(distribution, tokens)[0].sum(-1)
  return joint.sum(tuple(set(range(joint.ndim)) - {cell}))


def state_or_cell_probs(distribution, point, tokens, label_cell=0):
  """What labels speak of: P[H_1 | X_{-1}] or, with a memory, that of a cell."""
  return cell_probs(distribution, tokens, label_cell) if point.memory_size else leave_one_out(distribution, tokens)[0]


@pytest.mark.parametrize(
  ('point', 'label_cell'), [(VANILLA, 0), (ONE_CELL, 0), (TWO_CELLS, 0), (TWO_CELLS, 1)], ids=str
)
def test_labels_speak_of_the_first_state_or_the_label_cell(point, label_cell):
  """Labels are argmax of mu @ P[H_1 | X_-1], or mu @ P[M_j | X_-1] for the cell j that settings name."""
  distribution, downstream = drawn(point, label_cell)
  probs = [state_or_cell_probs(distribution, point, tokens, label_cell) for tokens in downstream.inputs]
  assert len(downstream.tasks) == 2
  for task in downstream.tasks:
    assert task.task_weights.shape == (2, point.memory_size or point.num_states)
    np.testing.assert_array_equal(task.labels, (probs @ np.asarray(task.task_weights, np.float64).T).argmax(-1))
  stacked = downstream.labels([1, 0])
  np.testing.assert_array_equal(stacked, [downstream.tasks[1].labels, downstream.tasks[0].labels])


@pytest.mark.parametrize('point', [VANILLA, ONE_CELL], ids=str)
def test_a_cut_changes_what_is_seen_and_no_label(point):
  """Inputs and documents are the starts of the whole ones, labels and margins still those of the whole texts."""
  whole, cut = drawn(point)[1], drawn(point, num_positions=5)[1]
  for name in ('inputs', 'documents'):
    np.testing.assert_array_equal(getattr(cut, name), getattr(whole, name)[:, :5])
  distribution, changed = drawn(point)[0], 0
  of_cut = np.array([state_or_cell_probs(distribution, point, tokens) for tokens in cut.inputs])
  for one, other in zip(cut.tasks, whole.tasks):
    np.testing.assert_array_equal(one.labels, other.labels)
    np.testing.assert_array_equal(one.margins, other.margins)
    changed += ((of_cut @ np.asarray(one.task_weights, np.float64).T).argmax(-1) != one.labels).sum()
  assert changed


def test_labels_of_the_silent_state_speak_of_the_state_before_the_text():
  """They are argmax of mu @ A P[H | text], with the text after the [MASK] as a document of its own."""
  distribution, downstream = drawn(VANILLA, label_state='silent')
  hmm = float64(distribution)
  # Row 0 of a leave-one-out posterior without its token, times that token's column, is the smoothed one.
  first = [leave_one_out(distribution, text)[0] * hmm.emission_matrix[:, text[0]] for text in downstream.inputs[:, 1:]]
  silent = np.array(first) / np.sum(first, -1, keepdims=True) @ hmm.transition_matrix.T
  for task in downstream.tasks:
    scores = silent @ np.asarray(task.task_weights, np.float64).T
    np.testing.assert_array_equal(task.labels, scores.argmax(-1))
    np.testing.assert_allclose(task.margins, np.abs(np.diff(scores)[:, 0]), rtol=1e-9)
  memory = drawn(ONE_CELL)[1], drawn(ONE_CELL, label_state='silent')[1]
  np.testing.assert_array_equal(*(downstream.labels([0, 1]) for downstream in memory))


@pytest.mark.parametrize(('point', 'cut'), [(VANILLA, {}), (ONE_CELL, {}), (ONE_CELL, dict(num_positions=5))], ids=str)
def test_one_memory_concentrates_by_entropy(point, cut):
  """Without cells to choose from, concentration is the entropy of P[H_i | X_-i], at most log H, memory summed out.

  X is what is seen of the text.
  """
  distribution, downstream = drawn(point, **cut)
  test = np.array(downstream.inputs)[downstream.splits['test']]
  probs = np.array([leave_one_out(distribution, tokens).reshape(len(tokens), -1, 4).sum(1) for tokens in test])
  np.testing.assert_allclose(downstream.concentration, -(probs * np.log(probs)).sum(-1), atol=1e-5)
  assert downstream.concentration_name == 'entropy'
  assert downstream.most_concentration == pytest.approx(np.log(4))


@pytest.mark.parametrize('label_cell', [0, 1])
def test_several_cells_concentrate_by_what_is_read(label_cell):
  """With several cells, concentration is the probability P[J_i = j | X_-i] that position i reads the label's cell."""
  distribution, downstream = drawn(TWO_CELLS, label_cell)
  test = np.array(downstream.inputs)[downstream.splits['test']]
  probs = np.array([leave_one_out(distribution, tokens).sum((1, 2)) for tokens in test])
  expected = probs[..., np.asarray(distribution.cell_index) == label_cell].sum(-1)
  np.testing.assert_allclose(downstream.concentration, expected, atol=1e-5)
  assert (downstream.concentration_name, downstream.most_concentration) == ('read_probability', 1.0)


def test_splits_are_the_inputs_in_order():
  """Training, validation and test inputs follow one another, masked first; documents come after them, whole."""
  _, downstream = drawn(ONE_CELL)
  assert downstream.inputs.shape == (44, 7) and downstream.documents.shape == (5, 7)
  assert downstream.splits == {'train': slice(0, 24), 'validation': slice(24, 32), 'test': slice(32, 44)}
  inputs, documents = np.array(downstream.inputs), np.array(downstream.documents)
  assert (inputs[:, 0] == 10).all() and inputs[:, 1:].max() < 10 and documents.max() < 10
  assert len(np.unique(np.vstack([inputs[:, 1:], documents[:, 1:]]), axis=0)) > 40


def test_each_task_is_a_draw_of_its_own():
  """Tasks of one trial ask for other weights, and there are as many as settings name."""
  for point in (VANILLA, ONE_CELL, TWO_CELLS):
    first, second = drawn(point)[1].tasks
    assert np.any(first.task_weights != second.task_weights)


def test_training_inputs_do_not_all_share_a_label():
  """Every task has both classes among its training inputs."""
  for point in (VANILLA, ONE_CELL, TWO_CELLS):
    _, downstream = drawn(point)
    for task in downstream.tasks:
      assert set(np.array(task.labels)[downstream.splits['train']]) == {0, 1}
