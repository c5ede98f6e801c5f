"""The error budget: signed steps of records made by hand, what is said of them, and what is drawn."""

from figures_cases import figure_settings, record
from matplotlib.container import ErrorbarContainer
import numpy as np
from pandas import DataFrame as frame
import pytest
import scipy.stats

from experiments.analysis import error_budget, statistics
from experiments.settings.grid import Point

HEAD, *_ = error_budget.WAYS.values()
FOUR_STATES = Point(4)
# Accuracies in percent of a way's stages, by task of each of three HMMs; the last is above the one before in one HMM.
LEVELS = [[(90, 85, 80, 79), (94, 89, 84, 83)], [(92, 85, 81, 80), (92, 87, 83, 82)], [(93, 88, 83, 84)]]
# An upper bound of any head on each task.
MOST = [(95, 97), (96, 96), (97,)]


def _records(way, levels, most=(), point=FOUR_STATES):
  """A record of each stage of each task; of the best head with the most that any reaches, or else no more than it.

  A raw converged head loses nothing against the one before it.
  """
  if way is HEAD:
    levels = [[(*values[:3], *values[2:]) for values in tasks] for tasks in levels]
  return [
    record(point, model, method, value / 100, trial=trial, task=task)
    | ({'accuracy_at_most': (most[trial][task] if most else value) / 100} if method == 'head_best' else {})
    for trial, tasks in enumerate(levels)
    for task, values in enumerate(tasks)
    for (_, model, method), value in zip(way, values)
  ]


def test_steps_are_means_of_hmms_with_t_intervals():
  """Each step is the mean over HMMs of means over tasks, and starts where the last one ended; gains are negative."""
  records = frame(_records(HEAD, LEVELS, MOST))
  expected = [[8, 8, 7], [5, 6, 5], [5, 4, 5], [0, 0, 0], [1, 1, -1]]
  levels, with_bound = error_budget.levels(records, HEAD)
  for lost, values in zip(error_budget.lost(levels), expected, strict=True):
    low, high = scipy.stats.ttest_1samp(values, 0).confidence_interval()
    np.testing.assert_allclose([*lost.values, lost.mean, lost.half_width], [*values, np.mean(values), (high - low) / 2])
  np.testing.assert_allclose(levels, 100 - np.cumsum([[0, 0, 0], *expected], axis=0).T)
  bound, after, *_ = error_budget.lost(with_bound)
  np.testing.assert_allclose([bound.values, after.values], [[4, 4, 3], [9, 10, 9]])


@pytest.mark.parametrize(
  ('points', 'heading', 'labels'),
  [
    ([Point(4), Point(8)], '|H|', ['4', '8']),
    ([Point(4, 3, 1), Point(4, 3, 2)], 'N', ['1', '2']),
    ([Point(4, 2, 1), Point(4, 3, 1)], '|M|', ['2', '3']),
  ],
)
def test_a_row_is_named_by_the_size_in_which_distributions_differ(points, heading, labels):
  records = frame([row for point in points for row in _records(HEAD, LEVELS, MOST, point)])
  (budget,) = error_budget.tables(records).values()
  assert budget.frame[heading].tolist() == [*labels, 'all']


def test_a_stage_that_is_missing_takes_its_tasks_with_it():
  """A task without one of the stages is skipped; without any task there is neither table nor figure."""
  records = _records(HEAD, LEVELS)
  without = frame([r for r in records if r['method'] != 'head_best'])
  assert error_budget.figure(without, figure_settings()) is None and not error_budget.tables(without)
  unpaired = [r for r in records if (r['model'], r['trial'], r['task']) != ('bert', 0, 1)]
  *_, optimisation = error_budget.levels(frame(unpaired), HEAD)[0].iloc[0]
  assert optimisation == pytest.approx(79)


def _even(*levels):
  """Three HMMs with a task each, a little apart, of these levels in percent."""
  return [[tuple(value + 0.1 * trial * (value < 100) for value in levels)] for trial in range(3)]


@pytest.mark.parametrize(
  ('levels', 'most', 'expected'),
  [
    (_even(100, 98, 80, 79), None, 'approximation'),
    (_even(80, 78, 78, 77), 81, 'degeneracy'),
    # The best head is somewhere between 80 and 99: what is lost to degeneracy may be lost to the sample.
    (_even(80, 78, 78, 77), 99, None),
    (_even(100, 90, 80, 79), None, None),
    (_even(100, 100, 80, 79)[:2], None, None),
    # Losses of 50, 35 and 22.5, each 2 above the next: pairs tell apart what two intervals do not.
    ([[(100, 100, 50, 2)], [(100, 100, 65, 31.8)], [(100, 100, 77.5, 56.9)]], None, 'approximation'),
    # One of five loses 10 points at first: more than later in each, but not surely anything.
    ([*[[(99, 100, 100, 100)]] * 4, [(90, 85, 76.1, 67.6)]], None, None),
  ],
  ids=['one', 'proven', 'in the bracket', 'two', 'two HMMs', 'paired', 'not from zero'],
)
def test_the_largest_loss_is_significant_by_paired_intervals(levels, most, expected):
  """It is above 0 and above all others over the HMMs, whatever the best head is within its bracket."""
  records = _records(HEAD, levels, most and [[most]] * len(levels))
  loss, p_value = error_budget.largest_loss(HEAD, *error_budget.levels(frame(records), HEAD))
  assert (loss if p_value < 0.05 else None) == expected


def test_the_largest_loss_is_significant_for_all_sizes_and_budgets_together():
  """Losses of p = 0.03 at one size are not significant beside those of a second size and of the prompt."""
  uneven = [[(100, 100, value, value - 1)] for value in (94, 88, 90.5)]
  alone = _records(HEAD, uneven, [(100,)] * 3)
  _, p_value = error_budget.largest_loss(HEAD, *error_budget.levels(frame(alone), HEAD))
  assert 0.025 < p_value < 0.05
  largest = lambda records: [
    row for one in error_budget.tables(frame(records)).values() for row in one.frame['largest']
  ]
  assert largest(alone) == ['approximation']
  *_, prompt = error_budget.WAYS.values()
  assert largest(alone + _records(prompt, [[(90, 85)], [(99, 98)], [(80, 70)]])) == ['not significant'] * 2


def test_the_best_head_counts_on_texts_that_it_was_not_fitted_to():
  """Its test accuracy is replaced by that on validation texts, and no other method's."""
  records = frame([row | {'validation_accuracy': 0.5} for row in _records(HEAD, LEVELS, MOST)])
  fresh, is_best = statistics.on_fresh_texts(records), records['method'] == 'head_best'
  assert (fresh['accuracy'][is_best] == 0.5).all()
  assert (fresh['accuracy'] == records['accuracy'])[~is_best].all()


def test_conditioning_draws_a_line_a_size():
  """The mean over HMMs at each ridge, on its model, and at each size of noise."""
  along = lambda value: [[1.0, value], [0.1, 0.5]]
  records = [
    record(Point(size), model, 'head_whitened', 0.5, trial=trial)
    | dict(ridge_accuracies=along(value - trial / 10), noise_accuracies=along(trial) if model == 'bert' else None)
    for size, trial in ((4, 0), (4, 1), (8, 0))
    for model, value in (('exact', 0.9), ('bert', 0.7))
  ]
  panels = error_budget.conditioning(frame(records), figure_settings()).axes
  drawn = [[line.get_xydata().tolist() for line in axes.lines] for axes in panels]
  expected = [[[[1, first], [0.1, 50]] for first in pair] for pair in ((85, 90), (65, 70), (50, 0))]
  np.testing.assert_allclose(drawn, expected)


def test_hmms_of_all_sizes_are_units_together():
  """A loss too uneven within each size of three HMMs is significant over twelve; the interval is stratified."""
  uneven = [[(100, 100, 92 + 3 * trial, 91 + 3 * trial)] for trial in range(3)]
  records = [r for size in (4, 8, 10, 30) for r in _records(HEAD, uneven, [(100,)] * 3, Point(size))]
  (budget,) = error_budget.tables(frame(records)).values()
  rows = budget.frame
  assert list(rows['n']) == ['3'] * 4 + ['12']
  assert list(rows['largest']) == ['not significant'] * 4 + ['approximation']


def test_the_figure_floats_each_step_between_its_stages():
  """A bar ends at its stage; beside it, a gain too, stands its change with the interval of that."""
  records = frame(_records(HEAD, [[(90, 85, 80, 83)], [(92, 87, 81, 85)], [(93, 88, 83, 84)]], MOST))
  levels, _ = error_budget.levels(records, HEAD)
  (axes,) = error_budget.figure(records, figure_settings()).axes
  bars = [bar for bar in axes.patches if np.isfinite(bar.get_height())]
  intervals = [container for container in axes.containers if isinstance(container, ErrorbarContainer)]
  steps = zip(bars, intervals, error_budget.lost(levels), strict=True)
  for step, (bar, interval, lost) in enumerate(steps, start=1):
    end, (segment,) = levels[step].mean(), interval.lines[2][0].get_segments()
    assert [bar.get_y(), bar.get_y() + bar.get_height()] == pytest.approx([end + lost.mean, end])
    assert segment[:, 1] - end == pytest.approx(np.array([-1, 1]) * lost.half_width)
