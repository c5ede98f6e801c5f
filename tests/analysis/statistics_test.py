"""Statistics of records beside scipy's tests, closed testing and permutations that are enumerated."""

import functools
import itertools

import numpy as np
import pandas as pd
import pytest
import scipy.integrate
import scipy.stats

from experiments.analysis import statistics


def _run(accuracies, **fields):
  """A run's records of accuracies: those of as many tasks of one HMM, unless `fields` say what they are of."""
  usual = dict(num_states=4, memory_size=0, num_cells=0, trial=0, task=range(len(accuracies)))
  return statistics.with_unit(pd.DataFrame({**usual, 'accuracy': accuracies, **fields}))


def _values(run):
  """The accuracies of a run of one distribution, by trial and task."""
  (fits,) = statistics.fits_by_place(run.assign(model='bert', method='head')).values()
  return fits['bert', 'head']


def _difference(first, second, unpaired=False):
  """A run's accuracy minus that of another; the unit is that of both together."""
  difference = statistics.unpaired_difference if unpaired else statistics.paired_difference
  return difference(_values(first), _values(second), statistics.unit_of(pd.concat([first, second])))


def _assert_is(found, expected):
  """An interval and its p-value are those of a t test of scipy in points."""
  low, high = expected.confidence_interval(0.95)
  numbers = found.mean, found.half_width, found.p_value
  assert numbers == pytest.approx(((low + high) / 2, (high - low) / 2, expected.pvalue))


def test_mean_interval_is_the_t_interval():
  """It is printed with its half-width; fewer than three values have only a mean."""
  values = [60.0, 72.5, 71.0, 64.0]
  _assert_is(statistics.mean_interval(values), scipy.stats.ttest_1samp(values, 0))
  assert str(statistics.mean_interval([59.0, 60.0, 61.0])) == '60.0 ± 2.5'
  assert str(statistics.mean_interval([61.0, 61.5])) == '61.2' and str(statistics.mean_interval([])) == ''


def test_the_interval_of_a_share_is_within_0_and_100():
  """The interval is clipped for shares, not for a difference of shares; its t interval is scipy's."""
  shares = _run([0.5, 1.0, 0.9], trial=range(3))
  low, _ = scipy.stats.t.interval(0.95, 2, 80, scipy.stats.sem([50, 100, 90]))
  found = statistics.percent(shares, 'accuracy')
  assert found.ends == pytest.approx((low, 100)) and str(found) == f'80.0 [{low:.1f}, 100.0]'
  assert statistics.percent_interval([0.0, 3, 0]).ends == pytest.approx((0, 5.3), abs=0.01)
  gain = _difference(shares, _run([0.4, 0.0, 0.1], trial=range(3)))
  assert gain.ends[1] > 100


def test_tasks_of_several_trials_are_averaged_first():
  """Tasks that share a model are not independent: the unit is the trial, even at sizes with one HMM."""
  several = _run([0.5, 0.6, 0.7, 0.9], trial=[0, 0, 1, 2], clear=[0.5, 0.5, None, None])
  assert statistics.percent(several, 'accuracy').values == pytest.approx([55, 70, 90])
  assert statistics.by_unit(several, 'clear').to_dict() == {0: 0.5}
  single = _run([0.5, 0.6, 0.7, 0.8], num_states=30)
  assert len(statistics.by_unit(single, 'accuracy')) == 4
  of_both = statistics.with_unit(pd.concat([several, single]))
  assert len(statistics.percent(statistics.select(of_both, num_states=30), 'accuracy').values) == 1


def test_pairs_are_of_one_task_of_one_distribution():
  """The test is scipy's of pairs, of the tasks that both have; tasks of one trial are averaged if there are several."""
  head = _run([0.6, 0.7, 0.65, 0.9])
  _assert_is(_difference(_run([0.8, 0.75, 0.9]), head), scipy.stats.ttest_rel((80, 75, 90), (60, 70, 65)))
  tasks = dict(trial=[0, 0, 1, 2], task=[0, 1, 0, 0])
  of_trials = _difference(_run([0.5, 0.7, 0.9, 0.8], **tasks), _run([0.4, 0.4, 0.5, 0.5], **tasks))
  _assert_is(of_trials, scipy.stats.ttest_1samp((20, 40, 30), 0))


@pytest.mark.parametrize('first', [(0.9, 0.95, 0.99, 0.7, 0.82), (1.0, 1.0, 1.0, 1.0)], ids=['spread', 'always right'])
@pytest.mark.filterwarnings('ignore:Precision loss:RuntimeWarning')
def test_unpaired_difference_is_welchs(first):
  """It is scipy's Welch test of the units' means, also where one side has no spread."""
  # A second task of the last trial moves that trial's mean, and is no unit of its own.
  head = _run([0.8, 0.5, 0.61, 0.71], trial=[0, 1, 2, 2])
  attention = _run(first, trial=range(len(first)))
  expected = scipy.stats.ttest_ind(100 * np.array(first), [80, 50, 66], equal_var=False)
  _assert_is(_difference(attention, head, unpaired=True), expected)


def test_a_stratified_interval_covers_although_strata_differ():
  """Over many samples of fixed sizes, 95% of intervals have the mean; one stratum gives a plain t interval."""
  rng = np.random.default_rng(0)
  covers = lambda found: abs(found.mean - (7 * 0 + 5 * 20) / 12) < found.half_width
  draws = [(rng.normal(0, 3, 7), rng.normal(20, 1, 5)) for _ in range(2000)]
  assert np.mean([covers(statistics.stratified(strata)) for strata in draws]) == pytest.approx(0.95, abs=0.015)
  (values, _), *_ = draws
  _assert_is(statistics.stratified([values]), scipy.stats.ttest_1samp(values, 0))


@pytest.mark.filterwarnings('error')
def test_fewer_than_three_units_or_no_spread_leave_only_a_mean():
  """Neither a half-width, nor a p-value, nor a difference that could be detected."""
  one, many, same = _run([0.75]), _run([0.5, 0.6, 0.7]), _run([0.25] * 3)
  unpaired = functools.partial(_difference, unpaired=True)
  differences = [unpaired(one, many), unpaired(many, one), unpaired(same, same), _difference(many[:2], same)]
  assert [found.mean for found in differences] == pytest.approx([15, -15, 0, 30])
  for found in (*differences, statistics.mean_interval([0.1] * 3)):
    assert not found.half_width > 0 and np.isnan([found.p_value, found.minimum_effect(0.05)]).all()


def test_holm_is_closed_testing():
  """Corrected p-values are the largest Bonferroni p-value of any set of hypotheses with this one; NaN stays."""
  p_values = [0.011, 0.2, 0.004, 0.012, 0.9]
  sets = [each for size in range(1, 6) for each in itertools.combinations(range(5), size)]
  of_set = lambda each: min(1.0, len(each) * min(p_values[i] for i in each))
  expected = [max(of_set(each) for each in sets if i in each) for i in range(5)]
  assert statistics.holm(p_values) == pytest.approx(expected)
  assert statistics.holm([0.01, np.nan, 0.04]) == pytest.approx([0.03, np.nan, 0.08], nan_ok=True)


@pytest.mark.parametrize('several', [3, 12])
def test_the_detectable_difference_is_found_with_that_probability(several):
  """Power at it, as an integral over the sample's spread, is 0.8 at the level."""
  level, accuracies, degrees = 0.05 / 7, np.linspace(0.5, 0.8, several) ** 2, several - 1
  found = _difference(_run(accuracies), _run([0.2] * several))
  shift = found.minimum_effect(level) * np.sqrt(several) / (100 * np.std(accuracies, ddof=1))
  critical = scipy.stats.t.isf(level / 2, degrees)
  missed = lambda s: scipy.stats.norm.cdf(critical * s - shift) - scipy.stats.norm.cdf(-critical * s - shift)
  density = lambda s: scipy.stats.chi.pdf(s * np.sqrt(degrees), degrees) * np.sqrt(degrees)
  power = 1 - scipy.integrate.quad(lambda s: missed(s) * density(s), 0, 10, limit=200)[0]
  assert power == pytest.approx(0.8, abs=1e-4)


def test_a_trend_is_that_of_all_orders():
  """Spearman's correlation of units, ties among their sizes, and how many of all orders are as far from 0 as theirs."""
  sizes, values = [4, 4, 10, 30, 30, 15], [0.86, 0.91, 0.9, 0.6, 0.65, 0.85]
  tasks = [value + change for value in values for change in (-0.01, 0.01)]
  run = _run(tasks, num_states=np.repeat(sizes, 2), trial=np.repeat(range(6), 2))
  correlation, p_value = statistics.trend(run, 'num_states')
  assert correlation == pytest.approx(scipy.stats.spearmanr(sizes, values).statistic)
  others = np.array([scipy.stats.spearmanr(sizes, order).statistic for order in itertools.permutations(values)])
  # On both sides: twice the share of the orders on the side of the units.
  assert p_value == pytest.approx(2 * np.mean(others <= correlation + 1e-12))
