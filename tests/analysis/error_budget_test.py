"""Which loss of an error budget is the largest; `pages_test` redraws the tables of docs/results."""

import numpy as np
from pandas import DataFrame as frame
import pytest

from experiments.analysis import error_budget

# Three HMMs, a little apart.
EVEN = np.array([[1], [0.975], [0.95]])


@pytest.mark.parametrize(
  ('losses', 'expected'),
  [
    (EVEN * [2, 18, 1], '1'),
    (EVEN * [10, 10, 1], None),
    (EVEN[:2] * [0, 20, 1], None),
    # Losses of 50, 35 and 22.5, each about 2 above the next: pairs tell apart what two intervals do not.
    ([[50, 48], [35, 33.1], [22.5, 20.6]], '0'),
    # One of five loses 10 points at first: more than later in each, but not surely anything.
    ([*[[1, -1, 0, 0]] * 4, [10, 5, 8.9, 8.5]], None),
  ],
  ids=['one', 'two', 'two HMMs', 'paired', 'not from zero'],
)
def test_the_largest_loss_is_significant_by_paired_intervals(losses, expected):
  """It is above 0 and above all others over the HMMs; what is proven of two losses is none."""
  lost = frame(losses).rename(columns=str).assign(place='|H| = 4', **{error_budget.PROVEN: 99.0})
  loss, p_value = error_budget.largest(lost.set_index('place'))
  assert (loss if p_value < 0.05 else None) == expected
