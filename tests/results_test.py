"""Statistics of records."""

import numpy as np
import pytest
import scipy.stats

from experiments import results


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
  interval = results.mean_interval(values)
  assert interval.mean == pytest.approx((low + high) / 2)
  assert interval.half_width == pytest.approx((high - low) / 2)


def test_one_value_has_no_interval():
  """A single value has a mean and no half-width, and prints as the mean alone."""
  interval = results.mean_interval([61.25])
  assert np.isnan(interval.half_width)
  assert str(interval) == '61.2'


def test_tasks_of_several_trials_are_averaged_first():
  """With several trials the unit is the trial: tasks that share a model are not independent."""
  records = [_record(trial, task, accuracy=0.1 * trial + 0.01 * task) for trial in range(3) for task in range(2)]
  assert len(results.percent(records, 'accuracy').values) == 3
  assert len(results.percent(records[:2], 'accuracy').values) == 2


def test_paired_difference_matches_scipy():
  """The interval and p-value are those of the paired t test on the tasks that both have."""
  head = [_record(0, task, 'head', accuracy) for task, accuracy in enumerate((0.6, 0.7, 0.65, 0.9))]
  prompt = [_record(0, task, 'prompt', accuracy) for task, accuracy in enumerate((0.8, 0.75, 0.9))]
  paired = results.paired_difference(prompt, head)
  expected = scipy.stats.ttest_rel((80, 75, 90), (60, 70, 65))
  assert paired.interval.mean == pytest.approx(np.mean((20, 5, 25)))
  assert paired.p_value == pytest.approx(expected.pvalue)
  low, high = expected.confidence_interval()
  assert paired.interval.half_width == pytest.approx((high - low) / 2)


def test_equal_differences_have_no_p_value():
  """A test of differences without spread says nothing, and is not reported."""
  head = [_record(0, task, 'head', 0.5) for task in range(3)]
  prompt = [_record(0, task, 'prompt', 0.6) for task in range(3)]
  assert np.isnan(results.paired_difference(prompt, head).p_value)
