"""The error budget: signed steps of records made by hand, what is said of them, and what is drawn."""

from figures_cases import record
import numpy as np
from pandas import DataFrame as frame
import pytest

from experiments.analysis import error_budget, grid_tables
from experiments.settings.grid import Point

HEAD = error_budget.WAYS['linear head']
# Accuracies in percent of the stages of the linear head, by task of each of three HMMs. A raw converged head loses
# nothing against the one before it.
LEVELS = [
  [(98, 90, 85, 80, 80, 79), (96, 94, 89, 84, 84, 83)],
  [(99, 92, 85, 81, 81, 80), (97, 92, 87, 83, 83, 82)],
  [(96, 93, 88, 83, 83, 84)],
]


def _grid(levels, way=HEAD):
  """A record of each stage of each task; no head is proven to reach more than three points above the best one."""
  records = [
    record(Point(4), *fit.split(), value / 100, trial=trial, task=task)
    | dict(accuracy_at_most=value / 100 + 0.03 if fit == 'exact head_best' else None)
    for trial, tasks in enumerate(levels)
    for task, values in enumerate(tasks)
    for fit, value in zip(way.values(), values, strict=True)
  ]
  return grid_tables.prepared(frame(records))


def _losses(levels):
  (lost,) = error_budget.losses(_grid(levels)).values()
  return lost


def test_steps_are_means_over_the_tasks_of_an_hmm():
  """Each starts where the last one ended; gains are negative."""
  expected = [[3, 2, 4], [5, 6, 3], [5, 5, 4], [5, 6, 5], [5, 4, 5], [0, 0, 0], [1, 1, -1]]
  np.testing.assert_allclose(_losses(LEVELS).to_numpy().T, expected, atol=1e-12)


def _even(*levels):
  """Three HMMs with a task each, a little apart, of these levels in percent."""
  return [[(100, *(100 - (100 - value) * (1 - trial / 40) for value in levels))] for trial in range(3)]


@pytest.mark.parametrize(
  ('levels', 'expected'),
  [
    (_even(100, 98, 80, 80, 79), 'approximation'),
    (_even(100, 90, 80, 80, 79), None),
    (_even(100, 100, 80, 80, 79)[:2], None),
    # Losses of 50, 35 and 22.5, each about 2 above the next: pairs tell apart what two intervals do not.
    (
      [[(100, 100, 100, 50, 50, 2)], [(100, 100, 100, 65, 65, 31.9)], [(100, 100, 100, 77.5, 77.5, 56.9)]],
      'approximation',
    ),
    # One of five loses 10 points at first: more than later in each, but not surely anything.
    ([*[[(100, 99, 100, 100, 100, 100)]] * 4, [(100, 90, 85, 76.1, 76.1, 67.6)]], None),
  ],
  ids=['one', 'two', 'two HMMs', 'paired', 'not from zero'],
)
def test_the_largest_loss_is_significant_by_paired_intervals(levels, expected):
  """It is above 0 and above all others over the HMMs."""
  loss, p_value = error_budget.largest(_losses(levels))
  assert (loss if p_value < 0.05 else None) == expected
