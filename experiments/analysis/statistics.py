"""Records in, statistics out. Nothing here trains, and a record is never edited."""

from collections.abc import Iterator, Sequence
import contextlib
from typing import Any, NamedTuple
import warnings

import numpy as np
import pandas as pd
import scipy.optimize
import scipy.stats

from experiments.settings.grid import Point

# The fields that name an independent unit of a run.
Unit = tuple[str, ...]


class Interval(NamedTuple):
  """A mean with the half-width of its 95% t interval (NaN for fewer than three values) and the values themselves."""

  mean: float
  half_width: float
  values: np.ndarray

  def __str__(self) -> str:
    numbers = (self.mean, 'z.1f'), (self.half_width, '.1f')
    return ' ± '.join(f'{value:{form}}' for value, form in numbers if not np.isnan(value))


class Difference(NamedTuple):
  """A mean difference, its interval, and the t test that it is zero.

  Attributes:
    interval: of the mean.
    p_value: of the test; NaN where there is none.
    standard_error: of the mean.
    degrees: of freedom of t.
  """

  interval: Interval
  p_value: float
  standard_error: float = np.nan
  degrees: float = np.nan

  def detectable(self, level: float, power: float = 0.8) -> float:
    """The least true difference that a test at `level` finds with probability `power`, given this standard error.

    It is delta with P[t^2 > c^2] = power, c the two-sided critical value of t: t^2 is noncentral F with 1 degree above
    and shift (delta / standard_error)^2. For pairs that is exact where they are normal with this spread; for Welch's
    test, whose degrees of freedom are estimated, approximate.
    """
    if np.isnan(self.interval.half_width) or not self.standard_error > 0:
      return np.nan
    critical = scipy.stats.t.isf(level / 2, self.degrees)
    excess = lambda shift: float(scipy.stats.ncf.sf(critical**2, 1, self.degrees, shift**2)) - power
    most = critical
    while excess(most) < 0:
      most *= 2
    return float(scipy.optimize.brentq(excess, 0, most, xtol=1e-6)) * self.standard_error


def by_point(records: pd.DataFrame) -> dict[Point, pd.DataFrame]:
  """The records of each distribution that they speak of, in the order of the records."""
  groups = records.groupby(list(Point._fields), sort=False)
  return {Point(*map(int, point)): of_point for point, of_point in groups}  # type: ignore[call-overload]


def select(records: pd.DataFrame, **fields: Any) -> pd.DataFrame:
  """The records whose fields have these values."""
  for name, value in fields.items():
    records = records[records[name] == value]
  return records


def mean_interval(values: Sequence[float] | np.ndarray | pd.Series) -> Interval:
  """Mean and 95% t interval of independent values; two of them say next to nothing of their spread."""
  values = np.asarray(values, float)
  if len(values) < 3:
    return Interval(float(values.mean()) if len(values) else np.nan, np.nan, values)
  half_width = scipy.stats.t.ppf(0.975, len(values) - 1) * scipy.stats.sem(values)
  return Interval(float(values.mean()), float(half_width), values)


def share_interval(count: int, total: int) -> tuple[float, float]:
  """The 95% interval of a share, of `count` in `total` independent draws (Clopper and Pearson 1934)."""
  interval = scipy.stats.binomtest(count, total).proportion_ci(0.95, method='exact')
  return float(interval.low), float(interval.high)


def unit_of(records: pd.DataFrame) -> Unit:
  """The fields that identify an independent unit of a run.

  Tasks of one trial share an HMM and a pretrained model, so where there are several trials the unit is the
  trial; with one trial it is the task, and intervals speak of tasks given that HMM and that model.
  """
  return ('trial',) if records['trial'].nunique() > 1 else ('trial', 'task')


def by_unit(records: pd.DataFrame, field: str, unit: Unit | None = None) -> pd.Series:
  """The field's mean in each unit, by default that of these records alone.

  Records without the field take no part, and do not change the unit.
  """
  known = records.dropna(subset=field).astype({field: float})
  return known.groupby(list(unit or unit_of(records)))[field].mean()


def percent(records: pd.DataFrame, field: str, unit: Unit | None = None) -> Interval:
  """The interval of a share, in percent."""
  return mean_interval(100 * by_unit(records, field, unit))


def holm(p_values: list[float]) -> list[float]:
  """P-values corrected for their number (Holm 1979); NaN, where there was no test, counts as one and stays."""
  order, most, corrected = np.argsort(p_values), 0.0, list(p_values)
  for rank, index in enumerate(order[: len(p_values) - int(np.isnan(p_values).sum())]):
    most = max(most, min(1.0, (len(p_values) - rank) * p_values[index]))
    corrected[index] = float(most)
  return corrected


@contextlib.contextmanager
def _without_precision_warnings() -> Iterator[None]:
  """A sample without spread, such as a head that is always right, loses precision only in a variance that is 0."""
  with warnings.catch_warnings():
    warnings.filterwarnings('ignore', 'Precision loss occurred', RuntimeWarning)
    yield


def difference(values: Sequence[float] | np.ndarray | pd.Series) -> Difference:
  """The mean of differences, one for each independent unit, and the t test that it is zero."""
  interval = mean_interval(values)
  if len(interval.values) < 2 or np.ptp(interval.values) == 0:
    return Difference(interval, np.nan)
  with _without_precision_warnings():
    test = scipy.stats.ttest_1samp(interval.values, 0.0)
  return Difference(interval, float(test.pvalue), float(scipy.stats.sem(interval.values)), float(test.df))


def paired_difference(first: pd.DataFrame, second: pd.DataFrame, unit: Unit | None = None) -> Difference:
  """Accuracy of `first` minus that of `second` on the (trial, task) pairs that both have, in percentage points."""
  pairs = first.merge(second, on=[*Point._fields, 'trial', 'task'], suffixes=('', '_of_second'))
  pairs['difference'] = pairs['accuracy'] - pairs['accuracy_of_second']
  return difference(100 * by_unit(pairs, 'difference', unit))


def unpaired_difference(first: pd.DataFrame, second: pd.DataFrame, unit: Unit | None = None) -> Difference:
  """Accuracy of `first` minus that of `second`, which share nothing, in points: Welch's interval and test."""
  samples = [percent(records, 'accuracy', unit).values for records in (first, second)]
  mean = float(samples[0].mean() - samples[1].mean())
  if min(len(sample) for sample in samples) < 2 or max(np.ptp(sample) for sample in samples) == 0:
    return Difference(Interval(mean, np.nan, np.array([mean])), np.nan)
  with _without_precision_warnings():
    test = scipy.stats.ttest_ind(*samples, equal_var=False)
  low, high = test.confidence_interval(0.95)
  error = float(np.hypot(*(scipy.stats.sem(sample) for sample in samples)))
  return Difference(Interval(mean, float(high - low) / 2, np.array([mean])), float(test.pvalue), error, float(test.df))
