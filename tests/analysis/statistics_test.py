"""Statistics beside scipy's tests, closed testing and permutations that are enumerated."""

import itertools

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from experiments.analysis import statistics
from experiments.analysis.statistics import interval, percent, stratified, welch


def _assert_is(found, expected):
  """An interval and its p-value are those of a t test of scipy."""
  low, high = expected.confidence_interval(0.95)
  numbers = found.mean, found.half_width, found.p_value
  assert numbers == pytest.approx(((low + high) / 2, (high - low) / 2, expected.pvalue))


def test_interval_is_the_t_interval():
  """It is printed with its half-width; fewer than three values have only a mean."""
  values = [60.0, 72.5, 71.0, 64.0]
  _assert_is(interval(values), scipy.stats.ttest_1samp(values, 0))
  assert interval(values).n == 4
  assert str(interval([59.0, 60.0, 61.0])) == '60.0 ± 2.5'
  assert str(interval([61.0, 61.5])) == '61.2' and str(interval([])) == ''


def test_the_interval_of_a_share_is_not_below_0():
  assert percent([0.0, 0.03, 0]).ends == pytest.approx((0, 5.3), abs=0.01)


@pytest.mark.parametrize('first', [(90, 95, 99, 70, 82), (100, 100, 100, 100)], ids=['spread', 'always right'])
@pytest.mark.filterwarnings('ignore:Precision loss:RuntimeWarning')
def test_welch_is_scipys(first):
  """Also where one side has no spread."""
  second = [80, 50, 66]
  _assert_is(welch(first, second), scipy.stats.ttest_ind(first, second, equal_var=False))


def _strata(*values):
  return pd.concat(dict(enumerate(map(pd.Series, values))), names=['stratum', 'unit'])


def test_a_stratified_interval_covers_although_strata_differ():
  """Over many samples of fixed sizes, 95% of intervals have the mean; one stratum gives a plain t interval."""
  rng = np.random.default_rng(0)
  covers = lambda found: abs(found.mean - (7 * 0 + 5 * 20) / 12) < found.half_width
  draws = [_strata(rng.normal(0, 3, 7), rng.normal(20, 1, 5)) for _ in range(2000)]
  assert np.mean([covers(stratified(values, ['stratum'])) for values in draws]) == pytest.approx(0.95, abs=0.015)
  values = draws[0].loc[[0]]
  _assert_is(stratified(values, ['stratum']), scipy.stats.ttest_1samp(values, 0))


@pytest.mark.filterwarnings('error')
def test_fewer_than_three_units_or_no_spread_leave_only_a_mean():
  """Neither a half-width, nor a p-value, nor a difference that could be detected."""
  mixed = stratified(_strata([1.0, 2, 6], [5.0]), ['stratum'])
  found = [welch([75], [50, 60, 70]), welch([50, 60, 70], [75]), welch([25] * 3, [25] * 3), interval([25, 35]), mixed]
  assert [one.mean for one in found] == pytest.approx([15, -15, 0, 30, 3.5])
  for one in (*found, interval([0.1] * 3), stratified(_strata([]), ['stratum'])):
    assert not one.half_width > 0 and np.isnan([one.p_value, one.minimum_effect(0.05)]).all()


def test_holm_is_closed_testing():
  """Corrected p-values are the largest Bonferroni p-value of any set of hypotheses with this one; NaN stays."""
  p_values = [0.011, 0.2, 0.004, 0.012, 0.9]
  sets = [each for size in range(1, 6) for each in itertools.combinations(range(5), size)]
  of_set = lambda each: min(1.0, len(each) * min(p_values[i] for i in each))
  expected = [max(of_set(each) for each in sets if i in each) for i in range(5)]
  assert statistics.holm(pd.Series(p_values)).tolist() == pytest.approx(expected)
  corrected = statistics.holm(pd.Series([0.01, np.nan, 0.04], ['a', 'b', 'c']))
  assert corrected.to_dict() == pytest.approx({'a': 0.03, 'b': np.nan, 'c': 0.08}, nan_ok=True)


@pytest.mark.parametrize('several', [3, 12])
def test_the_detectable_difference_is_found_with_that_probability(several):
  """Power at it, over many samples of this spread, is 0.8 at the level."""
  level, values = 0.05 / 7, np.linspace(5, 8, several) ** 2
  effect = interval(values).minimum_effect(level)
  draws = np.random.default_rng(0).normal(effect, np.std(values, ddof=1), (100_000, several))
  is_found = scipy.stats.ttest_1samp(draws, 0, axis=1).pvalue < level
  assert is_found.mean() == pytest.approx(0.8, abs=0.005)


def test_a_trend_is_that_of_all_orders():
  """Spearman's correlation, ties among sizes, and how many of all orders are as far from 0 as the one of the units."""
  sizes, values = [4, 4, 10, 30, 30, 15], [0.86, 0.91, 0.9, 0.6, 0.65, 0.85]
  correlation, p_value = statistics.trend(sizes, values)
  assert correlation == pytest.approx(scipy.stats.spearmanr(sizes, values).statistic)
  others = np.array([scipy.stats.spearmanr(sizes, order).statistic for order in itertools.permutations(values)])
  # On both sides: twice the share of the orders on the side of the units.
  assert p_value == pytest.approx(2 * np.mean(others <= correlation + 1e-12))


@pytest.mark.parametrize(
  ('least', 'most', 'expected'),
  [
    (3, np.inf, 'held'),
    (10, np.inf, 'undecided'),
    (17, np.inf, 'not held'),
    (3, 17, 'held'),
    (8, 12, 'undecided'),
    (-9, 1, 'not held'),
  ],
)
def test_an_expectation_is_held_if_the_interval_lies_in_the_range(least, most, expected):
  """The interval is 10 ± 3.8; without one nothing is decided."""
  assert statistics.outcome(statistics.interval([8, 9.0, 13, 7.0, 13]), least, most) == expected
  assert statistics.outcome(statistics.interval([10.0, 10.0]), least, most) == 'undecided'
