"""The error budget: signed steps of records made by hand, what is said of them, and what is drawn."""

from figures_cases import figure_settings, record
import numpy as np
from pandas import DataFrame as frame
import pytest
import scipy.stats

from experiments.analysis import error_budget, grid_tables
from experiments.settings.grid import Point

HEAD = error_budget.WAYS['linear head']
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
    record(point, *fit.split(), value / 100, trial=trial, task=task)
    | ({'accuracy_at_most': (most[trial][task] if most else value) / 100} if fit == 'exact head_best' else {})
    for trial, tasks in enumerate(levels)
    for task, values in enumerate(tasks)
    for fit, value in zip(way.values(), values)
  ]


def _grid(records):
  return grid_tables.prepared(frame(records))


def _losses(records, way=HEAD):
  return error_budget.losses(_grid(records), 'vanilla', way)


def test_steps_are_means_of_hmms_with_t_intervals():
  """Each step is the mean over HMMs of means over tasks, and starts where the last one ended; gains are negative."""
  found = _losses(_records(HEAD, LEVELS, MOST))
  expected = [[8, 8, 7], [5, 6, 5], [5, 4, 5], [0, 0, 0], [1, 1, -1]]
  np.testing.assert_allclose(found.found.to_numpy().T, expected, atol=1e-12)
  for values, (_, lost) in zip(expected, found.found.items(), strict=True):
    low, high = scipy.stats.ttest_1samp(values, 0).confidence_interval()
    interval = found.over_hmms(lost)
    np.testing.assert_allclose([interval.mean, interval.half_width], [np.mean(values), (high - low) / 2], atol=1e-12)
  bound, after, *_ = found.proven.to_numpy().T
  np.testing.assert_allclose([bound, after], [[4, 4, 3], [9, 10, 9]])


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
  loss, p_value = error_budget.largest(_losses(_records(HEAD, levels, most and [[most]] * len(levels))))
  assert (loss if p_value < 0.05 else None) == expected


def test_the_largest_loss_is_significant_for_all_sizes_and_budgets_together():
  """Losses of p = 0.03 at one size are not significant beside those of a second size and of the prompt."""
  uneven = [[(100, 100, value, value - 1)] for value in (94, 88, 90.5)]
  alone = _records(HEAD, uneven, [(100,)] * 3)
  _, p_value = error_budget.largest(_losses(alone))
  assert 0.025 < p_value < 0.05
  largest = lambda records: [
    row for one in error_budget.tables(_grid(records)).values() for row in one.frame['largest']
  ]
  assert largest(alone) == ['approximation']
  prompts = _records(error_budget.WAYS['prompt'], [[(90, 85)], [(99, 98)], [(80, 70)]])
  assert largest(alone + prompts) == ['not significant'] * 2


def test_the_best_head_counts_on_texts_that_it_was_not_fitted_to():
  """Its test accuracy is replaced by that on validation texts, and no other method's."""
  records = frame([row | {'validation_accuracy': 0.5} for row in _records(HEAD, LEVELS, MOST)])
  fresh, is_best = grid_tables.prepared(records).records, records['method'] == 'head_best'
  assert (fresh['accuracy'][is_best] == 0.5).all()
  assert (fresh['accuracy'] == records['accuracy'])[~is_best].all()


def test_conditioning_draws_a_line_a_size():
  """The mean over HMMs at each ridge, on its model, and at each size of noise; ridges in their order."""
  along = lambda value: [[1.0, value], [0.1, 0.5]]
  records = [
    record(Point(size), model, 'head_whitened', 0.5, trial=trial)
    | dict(ridge_accuracies=along(value - trial / 10), noise_accuracies=along(trial) if model == 'bert' else None)
    for size, trial in ((4, 0), (4, 1), (8, 0))
    for model, value in (('exact', 0.9), ('bert', 0.7))
  ]
  panels = error_budget.conditioning(_grid(records), figure_settings()).axes
  drawn = [[line.get_ydata() for line in axes.lines if str(line.get_label())[0] != '_'] for axes in panels]
  expected = [[[50, first] for first in pair] for pair in ((85, 90), (65, 70), (50, 0))]
  np.testing.assert_allclose(drawn, expected)


def test_the_figure_floats_each_step_between_its_stages():
  """A bar reaches from the stage before to its own; a gain is hollow."""
  found = _losses(records := _records(HEAD, [[(90, 85, 80, 83)], [(92, 87, 81, 85)], [(93, 88, 83, 84)]], MOST))
  (axes,) = error_budget.figure(_grid(records), figure_settings()).axes
  bars = [bar for bar in axes.patches if np.isfinite(bar.get_height())]
  ends = 100 - np.cumsum(found.found.mean().to_numpy())
  starts = np.array([100, *ends[:-1]])
  for bar, start, end in zip(bars, starts, ends, strict=True):
    np.testing.assert_allclose([bar.get_y(), bar.get_y() + bar.get_height()], [end, start])
    assert (tuple(bar.get_facecolor()) == (1, 1, 1, 1)) == (end > start)
