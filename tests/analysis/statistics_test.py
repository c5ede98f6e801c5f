"""Statistics of records, and how they are kept."""

import itertools

import numpy as np
from pandas import DataFrame as frame
import pytest
import scipy.integrate
import scipy.stats

from experiments.analysis import statistics
from experiments.settings.grid import Point


def run_of(records):
  return statistics.with_unit(frame(records))


def _record(trial=0, task=0, method='head', accuracy=0.5, **fields):
  return dict(
    num_states=4,
    memory_size=0,
    num_cells=0,
    trial=trial,
    task=task,
    model='bert',
    method=method,
    accuracy=accuracy,
    **fields,
  )


def test_mean_interval_is_the_t_interval():
  """Mean and half-width are those of scipy's t interval."""
  values = [60.0, 72.5, 71.0, 64.0]
  low, high = scipy.stats.t.interval(0.95, 3, loc=np.mean(values), scale=scipy.stats.sem(values))
  interval = statistics.mean_interval(values)
  assert interval.mean == pytest.approx((low + high) / 2)
  assert interval.half_width == pytest.approx((high - low) / 2)


def test_one_value_has_no_interval():
  """A single value has a mean and no half-width, and prints as the mean alone."""
  interval = statistics.mean_interval([61.25])
  assert np.isnan(interval.half_width)
  assert str(interval) == '61.2'


def test_tasks_of_several_trials_are_averaged_first():
  """With several trials the unit is the trial: tasks that share a model are not independent."""
  records = [_record(trial, task, accuracy=0.1 * trial + 0.01 * task) for trial in range(3) for task in range(2)]
  assert len(statistics.percent(run_of(records), 'accuracy').values) == 3
  assert len(statistics.percent(run_of(records[:2]), 'accuracy').values) == 2


def test_paired_difference_matches_scipy():
  """The interval and p-value are those of the paired t test on the tasks that both have."""
  head = [_record(0, task, 'head', accuracy) for task, accuracy in enumerate((0.6, 0.7, 0.65, 0.9))]
  prompt = [_record(0, task, 'prompt', accuracy) for task, accuracy in enumerate((0.8, 0.75, 0.9))]
  paired = statistics.paired_difference(run_of(prompt), run_of(head))
  expected = scipy.stats.ttest_rel((80, 75, 90), (60, 70, 65))
  assert paired.mean == pytest.approx(np.mean((20, 5, 25)))
  assert paired.p_value == pytest.approx(expected.pvalue)
  low, high = expected.confidence_interval()
  assert paired.half_width == pytest.approx((high - low) / 2)


@pytest.mark.filterwarnings('error')
def test_nearly_equal_differences_warn_nobody():
  """Units that differ by rounding lose precision in a variance that is next to 0."""
  assert statistics.mean_interval([1.0, 1.0, 1.0 + 1e-15]).p_value < 1e-6


def test_equal_differences_have_no_p_value():
  """A test of differences without spread says nothing, and is not reported."""
  head = [_record(0, task, 'head', 0.5) for task in range(3)]
  prompt = [_record(0, task, 'prompt', 0.6) for task in range(3)]
  assert np.isnan(statistics.paired_difference(run_of(prompt), run_of(head)).p_value)


@pytest.mark.parametrize('several_trials', [False, True])
def test_unpaired_difference_is_welchs(several_trials):
  """Mean, interval and p-value are those of scipy's Welch test on the means of the independent units, in points."""
  first, second = (0.9, 0.95, 0.99, 0.7, 0.82), (0.8, 0.5, 0.61)
  unit = lambda index: dict(trial=index) if several_trials else dict(task=index)
  records = [
    [_record(method=method, accuracy=accuracy, **unit(index)) for index, accuracy in enumerate(values)]
    for method, values in (('attention', first), ('head', second))
  ]
  if several_trials:
    # A second task of the last trial moves that trial's mean, and is no unit of its own.
    records[1].append(_record(trial=2, task=1, accuracy=0.71))
    second = (0.8, 0.5, 0.66)
  difference = statistics.unpaired_difference(*map(run_of, records))
  expected = scipy.stats.ttest_ind(100 * np.array(first), 100 * np.array(second), equal_var=False)
  low, high = expected.confidence_interval(0.95)
  assert difference.mean == pytest.approx((low + high) / 2)
  assert difference.half_width == pytest.approx((high - low) / 2)
  assert difference.p_value == pytest.approx(expected.pvalue)
  # Not Student's, whose degrees of freedom are those of equal variances.
  assert difference.p_value != pytest.approx(scipy.stats.ttest_ind(first, second).pvalue, rel=1e-3)


@pytest.mark.filterwarnings('error')
def test_an_unpaired_difference_of_one_against_many_has_a_mean_alone():
  """With a single unit on either side, or without any spread, there is neither interval nor p-value."""
  one, many = [_record(accuracy=0.75)], [_record(task=task, accuracy=0.5 + 0.1 * task) for task in range(3)]
  same = [_record(task=task, accuracy=0.25) for task in range(3)]
  for first, second, mean in ((one, many, 15), (many, one, -15), (same, same, 0)):
    difference = statistics.unpaired_difference(run_of(first), run_of(second))
    assert difference.mean == pytest.approx(mean)
    assert np.isnan(difference.half_width) and np.isnan(difference.p_value)


@pytest.mark.filterwarnings('ignore:Precision loss:RuntimeWarning')
def test_spread_on_one_side_is_enough_for_an_unpaired_difference():
  """A method that is always right is compared with one that is not: the interval is that of the other's mean."""
  right = [_record(task=task, accuracy=1.0) for task in range(4)]
  values = [0.5, 0.6, 0.7]
  difference = statistics.unpaired_difference(
    run_of(right), run_of([_record(task=t, accuracy=value) for t, value in enumerate(values)])
  )
  alone = statistics.mean_interval([100 * value for value in values])
  assert difference.mean == pytest.approx(100 - alone.mean)
  assert difference.half_width == pytest.approx(alone.half_width)
  expected = scipy.stats.ttest_1samp([100 * value for value in values], 100).pvalue
  assert difference.p_value == pytest.approx(expected)


def test_points_are_the_distributions_in_the_order_of_the_records():
  """Each point once, with its memory, in the order in which it first appears."""
  places = [(8, 0, 0), (4, 2, 1), (8, 0, 0), (4, 2, 2), (4, 3, 1), (4, 2, 1)]
  records = [{**_record(), **dict(zip(Point._fields, place))} for place in places]
  groups = statistics.by_point(frame(records))
  assert list(groups) == [Point(8), Point(4, 2, 1), Point(4, 2, 2), Point(4, 3, 1)]
  assert list(groups[Point(8)].index) == [0, 2]


def test_pairs_are_of_one_distribution():
  """Tasks of the same number in different distributions are no pair."""
  attention = [{**_record(task=task, accuracy=0.9 + 0.01 * task), 'memory_size': 2} for task in range(3)]
  head = [_record(task=task, accuracy=0.5) for task in range(3)]
  assert not statistics.paired_difference(run_of(attention), run_of(head)).values.size


def test_records_without_a_field_do_not_change_the_unit():
  """With three trials the unit is the trial, though one of them alone has clear inputs."""
  records = [_record(trial, task, clear_accuracy=0.5 if trial == 0 else None) for trial in range(3) for task in (0, 1)]
  run = run_of(records)
  assert statistics.by_unit(run, 'clear_accuracy').to_dict() == {0: 0.5}
  assert str(statistics.percent(run[2:], 'clear_accuracy')) == ''
  assert str(statistics.percent(run, 'clear_accuracy')) == '50.0'


def test_the_unit_of_a_run_is_that_of_all_its_sizes():
  """Where one size has a single HMM and another several, its tasks are no units."""
  several = [{**_record(trial, task), 'num_states': 30} for trial in range(3) for task in range(2)]
  single = [_record(0, task, accuracy=0.5 + 0.1 * task) for task in range(4)]
  of_single = statistics.select(run_of(several + single), num_states=4)
  assert statistics.by_unit(of_single, 'accuracy').to_dict() == {0: pytest.approx(0.65)}
  assert np.isnan(statistics.paired_difference(of_single, of_single.assign(accuracy=0.5)).p_value)
  assert len(statistics.by_unit(run_of(single), 'accuracy')) == 4


def test_holm_is_closed_testing():
  """Corrected p-values are the largest Bonferroni p-value of any set of hypotheses with this one; NaN stays."""
  p_values = [0.011, 0.2, 0.004, 0.012, 0.9]
  sets = [each for size in range(1, 6) for each in itertools.combinations(range(5), size)]
  of_set = lambda each: min(1.0, len(each) * min(p_values[i] for i in each))
  expected = [max(of_set(each) for each in sets if i in each) for i in range(5)]
  assert statistics.holm(p_values) == pytest.approx(expected)
  corrected = statistics.holm([0.01, np.nan, 0.04])
  assert np.isnan(corrected[1]) and [corrected[0], corrected[2]] == pytest.approx([0.03, 0.08])


@pytest.mark.parametrize('several', [3, 5, 12])
def test_the_detectable_difference_is_found_with_that_probability(several):
  """Power at it, as an integral over the sample's spread, is 0.8 at the level; less needs less."""
  level, accuracies = 0.05 / 7, np.linspace(0.5, 0.8, several) ** 2
  second = [_record(trial, method='head', accuracy=0.2) for trial in range(several)]
  first = [_record(trial, accuracy=accuracy) for trial, accuracy in enumerate(accuracies)]
  found = statistics.paired_difference(run_of(first), run_of(second))
  spread, degrees = 100 * np.std(accuracies, ddof=1), several - 1
  critical = scipy.stats.t.isf(level / 2, degrees)

  def power(difference):
    shift = difference * np.sqrt(several) / spread
    missed = lambda s: scipy.stats.norm.cdf(critical * s - shift) - scipy.stats.norm.cdf(-critical * s - shift)
    density = lambda s: scipy.stats.chi.pdf(s * np.sqrt(degrees), degrees) * np.sqrt(degrees)
    return 1 - scipy.integrate.quad(lambda s: missed(s) * density(s), 0, 10, limit=200)[0]

  detectable = found.detectable(level)
  assert power(detectable) == pytest.approx(0.8, abs=1e-4)
  assert found.detectable(2 * level) < detectable < found.detectable(level / 2)


def test_without_a_spread_or_three_units_nothing_is_said_to_be_detectable():
  """Where there is no interval there is no such difference either; Welch's has one."""
  head = run_of([_record(task=task, method='head', accuracy=0.5 + 0.1 * task**2) for task in range(3)])
  prompt = run_of([_record(task=task, method='prompt', accuracy=0.9) for task in range(3)])
  assert np.isnan(statistics.paired_difference(prompt, head.assign(accuracy=0.5)).detectable(0.05))
  assert np.isnan(statistics.paired_difference(prompt[:2], head).detectable(0.05))
  welch, paired = statistics.unpaired_difference(prompt, head), statistics.paired_difference(prompt, head)
  assert welch.detectable(0.05) == pytest.approx(paired.detectable(0.05))


@pytest.mark.parametrize('several', [4, 6])
def test_a_trend_is_that_of_all_orders(several):
  """Spearman's correlation of units, ties among their sizes, and how many of all orders are as far from 0 as theirs."""
  sizes = [4, 4, 10, 30, 30, 15][:several]
  records = [
    _record(trial, task, accuracy=0.9 - 0.01 * size + 0.05 * (trial % 3) + 0.02 * task) | {'num_states': size}
    for trial, size in enumerate(sizes)
    for task in range(2)
  ]
  correlation, p_value = statistics.trend(run_of(records), 'num_states')
  values = [np.mean([r['accuracy'] for r in records if r['trial'] == trial]) for trial in range(several)]
  assert correlation == pytest.approx(scipy.stats.spearmanr(sizes, values).statistic)
  others = np.array([scipy.stats.spearmanr(sizes, order).statistic for order in itertools.permutations(values)])
  # On both sides: twice the share of the orders on the side of the units, at most 1.
  shares = [np.mean(side * others >= side * correlation - 1e-12) for side in (-1, 1)]
  assert p_value == pytest.approx(min(1, 2 * min(shares)))


def test_a_trend_of_many_units_is_that_of_the_t_test():
  """Random orders, the same each time, give nearly the p-value that many units have."""
  records = [
    _record(trial, accuracy=0.8 - 0.004 * trial + 0.1 * (trial % 3)) | {'num_states': trial} for trial in range(30)
  ]
  correlation, p_value = statistics.trend(run_of(records), 'num_states')
  expected = scipy.stats.spearmanr(range(30), [r['accuracy'] for r in records])
  assert correlation == pytest.approx(expected.statistic)
  assert 0.001 < p_value == pytest.approx(expected.pvalue, rel=0.2)
  assert statistics.trend(run_of(records), 'num_states') == (correlation, p_value)


@pytest.mark.parametrize('accuracies', [[0.5, 0.6], [0.5, 0.5, 0.5], [0.5, 0.6, float('nan')]])
def test_no_trend_is_found_in_too_little(accuracies):
  """Two units, a constant or a missing value have no p-value, rather than 0."""
  records = [_record(trial, accuracy=one) | {'num_states': trial} for trial, one in enumerate(accuracies)]
  assert np.isnan(statistics.trend(run_of(records), 'num_states')).all()
