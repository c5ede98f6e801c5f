"""Statistics of records: intervals, tests, corrections. Nothing here trains, and no record is edited."""

from collections.abc import Iterable, Sequence
import functools
import math
import re
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.optimize
import scipy.stats

from experiments.settings import lists
from experiments.settings.grid import Point


class Interval(NamedTuple):
  """A mean, or a difference of two, with its 95% t interval and the t test that it is zero.

  Attributes:
    mean: of independent values.
    standard_error: of the mean; NaN for fewer than three values, since two values give no useful spread.
    degrees: of freedom of t.
    values: the values; empty where the mean is a difference of two means.
    bounds: of the quantity; the interval is clipped to them, which leaves its coverage.
  """

  mean: float
  standard_error: float = np.nan
  degrees: float = np.nan
  values: np.ndarray = np.array([])
  bounds: tuple[float, float] = (-np.inf, np.inf)

  @property
  def half_width(self) -> float:
    """Half the length of the interval before clipping; NaN without one."""
    return _critical(0.025, self.degrees) * self.standard_error

  @property
  def ends(self) -> np.ndarray:
    """The clipped interval [low, high]; NaN without one."""
    return np.clip([self.mean - self.half_width, self.mean + self.half_width], *self.bounds)

  @property
  def p_value(self) -> float:
    """The p-value of the two-sided test; NaN if there is no spread to test against."""
    if not self.standard_error > 0:
      return np.nan
    return float(2 * scipy.stats.t.sf(abs(self.mean) / self.standard_error, self.degrees))

  def minimum_effect(self, level: float) -> float:
    """The minimum detectable effect: the least true difference found with 80% power at `level`, given this spread.

    It solves P[t^2 > c^2] = 0.8 for delta, c the two-sided critical value of t: t^2 is noncentral F with 1 degree above
    and noncentrality (delta / standard_error)^2. This is exact for normal pairs with this spread, and approximate for
    Welch's test, whose degrees of freedom are estimated.
    """
    return _detectable(level, self.degrees) * self.standard_error if self.standard_error > 0 else np.nan

  def __str__(self) -> str:
    if np.isfinite([*self.ends, *self.bounds]).all():
      return '{:.1f} [{:.1f}, {:.1f}]'.format(self.mean, *self.ends)
    numbers = (self.mean, 'z.1f'), (self.half_width, '.1f')
    return ' ± '.join(f'{value:{form}}' for value, form in numbers if not np.isnan(value))


@functools.cache
def _critical(tail: float, degrees: float) -> float:
  """The value that t exceeds with probability `tail`."""
  return float(scipy.stats.t.isf(tail, degrees))


@functools.cache
def _detectable(level: float, degrees: float) -> float:
  """The minimum detectable effect in standard errors."""
  critical = _critical(level / 2, degrees)
  excess = lambda shift: scipy.stats.ncf.sf(critical**2, 1, degrees, shift**2) - 0.8
  # Upper bracket: four critical values are missed only if the spread is estimated four times too large.
  return scipy.optimize.brentq(excess, 0, 4 * critical, xtol=1e-6)


def by_point(records: pd.DataFrame) -> dict[Point, pd.DataFrame]:
  """The records of each distribution, in the order of the records."""
  groups = records.groupby(list(Point._fields), sort=False)
  return {Point(*map(int, point)): of_point for point, of_point in groups}  # type: ignore[call-overload]


class Place(NamedTuple):
  """A distribution of the grid, at values of the fields in which the settings of records differ, by column."""

  point: Point
  values: tuple[tuple[str, Any], ...] = ()

  def at(self, column: str, value: Any) -> 'Place':
    """The same distribution at another value of a field."""
    return self._replace(values=tuple({**dict(self.values), column: value}.items()))


def as_text(value: Any) -> str:
  """The value of a column in words: of given data its name."""
  return re.sub('-[0-9a-f]{12}$', '', str(value))


def varied(records: pd.DataFrame) -> list[str]:
  """The columns of fields of settings in which the records differ."""
  return [name for name in filter(lists.is_column, records) if records[name].nunique() > 1]


def by_place(records: pd.DataFrame) -> dict[Place, pd.DataFrame]:
  """The records of each distribution at each point of values, in the order of the records."""
  names = varied(records)
  groups = records.groupby([*names, *Point._fields], sort=False)
  return {Place(Point(*map(int, key[len(names) :])), tuple(zip(names, key))): rows for key, rows in groups}


# A field of records by (trial, task), of a method on a model.
Values = dict[tuple[int, int], float]
# By (model, method).
Fits = dict[tuple[str, str], Values]


def fits_by_place(records: pd.DataFrame, field: str = 'accuracy') -> dict[Place, Fits]:
  """A field of every record by its place and fit, in the order of the records; what lacks it is skipped."""
  names = varied(records)
  records = records.dropna(subset=[*names, field])
  by_values, count = dict[tuple[Any, ...], Fits](), len(names)
  columns = [*names, *Point._fields, 'model', 'method', 'trial', 'task', field]
  for *values, model, method, trial, task, value in zip(*(records[name] for name in columns)):
    fits = by_values.setdefault(tuple(values), {})
    fits.setdefault((model, method), {})[trial, task] = value
  return {
    Place(Point(*map(int, values[count:])), tuple(zip(names, values))): fits for values, fits in by_values.items()
  }


def unit_percents(values: Values, unit: str) -> np.ndarray:
  """The mean of each unit, 'trial' or 'task', in percent, in the order of their numbers."""
  by_unit = dict[int, list[float]]()
  for (trial, task), value in sorted(values.items()):
    by_unit.setdefault(trial if unit == 'trial' else task, []).append(value)
  return 100 * np.array([math.fsum(of_unit) / len(of_unit) for of_unit in by_unit.values()])


def process(records: pd.DataFrame) -> str:
  """The name of the given process of the records; '' for drawn HMMs, and for several processes."""
  names = records['distribution'].unique() if 'distribution' in records else ['']
  return as_text(names[0]) if len(names) == 1 else ''


def trial_noun(records: pd.DataFrame) -> str:
  """The word for an independent trial: each draws an HMM, or on a given process only a pretraining seed."""
  return 'pretraining seed' if 'distribution' in records and records['distribution'].all() else 'HMM'


def select(records: pd.DataFrame, **fields: Any) -> pd.DataFrame:
  """The records whose fields have these values."""
  for name, value in fields.items():
    records = records[records[name] == value]
  return records


def on_fresh_texts(records: pd.DataFrame) -> pd.DataFrame:
  """The records with the accuracy of the best head on validation texts, since it is fitted to the test texts."""
  is_best = records['method'] == 'head_best'
  return records.assign(accuracy=records['validation_accuracy'].where(is_best, records['accuracy']))


def mean_interval(values: Sequence[float] | np.ndarray | pd.Series) -> Interval:
  """Mean and 95% t interval of independent values, such as differences of pairs."""
  values = np.asarray(values, float)
  if len(values) < 3:
    return Interval(float(values.mean()) if len(values) else np.nan, values=values)
  # Subtract the first, so that equal values have a spread of 0 and not of rounding.
  standard_error = float(np.std(values - values[0], ddof=1) / np.sqrt(len(values)))
  return Interval(float(values.mean()), standard_error, len(values) - 1, values)


def stratified(strata: Iterable[Sequence[float] | np.ndarray | pd.Series]) -> Interval:
  """The mean of all independent values, and its t interval over strata whose numbers of values were chosen beforehand.

  The variance of the mean is sum_s (n_s / n)^2 SE_s^2, with SE_s of `mean_interval`, and its degrees of freedom are
  Welch and Satterthwaite's. So differences between strata, such as sizes |H|, do not widen the interval.
  """
  parts = [mean_interval(values) for values in strata]
  if not parts:
    return mean_interval([])
  values = np.concatenate([part.values for part in parts])
  mean, errors, degrees = np.array([(part.mean, part.standard_error, part.degrees) for part in parts]).T
  shares = np.array([len(part.values) for part in parts]) / len(values)
  return Interval(float(shares @ mean), *_combined(shares * errors, degrees), values)


def _combined(errors: np.ndarray, degrees: np.ndarray) -> tuple[float, float]:
  """The standard error of a sum of independent terms, and its degrees of freedom (Welch and Satterthwaite)."""
  variances = np.square(errors)
  # Without any spread they do not matter.
  weights = variances if variances.any() else np.ones_like(variances)
  return float(np.sqrt(variances.sum())), float(weights.sum() ** 2 / (weights**2 / degrees).sum())


def with_unit(records: pd.DataFrame) -> pd.DataFrame:
  """The records of a whole run with the field `unit`, which numbers its independent units at each distribution."""
  return records.assign(unit=records[unit_of(records)])


def unit_of(records: pd.DataFrame) -> str:
  """The independent unit of a whole run, 'trial' or 'task'.

  Tasks of one trial share an HMM and a pretrained model, so if there are several trials the unit is the
  trial; with one trial it is the task, and intervals speak of tasks given that HMM and that model.
  """
  return 'trial' if records['trial'].nunique() > 1 else 'task'


def by_unit(records: pd.DataFrame, field: str, unit: str | list[str] = 'unit') -> pd.Series:
  """The field's mean in each unit of one distribution. Records that lack the field are skipped."""
  return records.dropna(subset=field).astype({field: float}).groupby(unit)[field].mean()


def percent(records: pd.DataFrame, field: str, unit: str | list[str] = 'unit') -> Interval:
  """The interval of a share, in percent."""
  return percent_interval(100 * by_unit(records, field, unit))


def percent_interval(percents: Sequence[float] | np.ndarray | pd.Series) -> Interval:
  """The mean of shares in percent and its t interval within [0, 100].

  For three units from skewed distributions this interval covers in 78 to 93% of cases, a percentile bootstrap in 63 to
  76%.
  """
  return mean_interval(percents)._replace(bounds=(0.0, 100.0))


def holm(p_values: Sequence[float]) -> list[float]:
  """Holm-adjusted p-values (Holm 1979); NaN, for no test, counts as a test and stays NaN."""
  ordered = pd.Series(p_values, dtype=float).sort_values()
  steps = ordered * np.arange(len(ordered), 0, -1)
  return steps.cummax().clip(upper=1).sort_index().tolist()


def paired_difference(first: Values, second: Values, unit: str) -> Interval:
  """The mean of `first` minus `second` over the (trial, task) pairs that both have, in points; 'trial' or 'task' is the
  independent unit."""
  return mean_interval(unit_percents({key: first[key] - second[key] for key in first.keys() & second.keys()}, unit))


def lead(records: pd.DataFrame, rivals: pd.DataFrame, task: list[str], field: str = 'accuracy') -> pd.Series:
  """A field of each record minus the best of `rivals` on the same `task`, its columns; NaN if there is none."""
  joined = records.join(rivals.groupby(task)[field].max().rename('best'), on=task)
  return joined[field] - joined['best']


def unpaired_difference(first: Values, second: Values, unit: str) -> Interval:
  """The mean of `first` minus that of `second`, which share nothing, in points: Welch's interval and test."""
  minuend, subtrahend = (mean_interval(unit_percents(values, unit)) for values in (first, second))
  errors, degrees = np.array([(part.standard_error, part.degrees) for part in (minuend, subtrahend)]).T
  return Interval(minuend.mean - subtrahend.mean, *_combined(errors, degrees))


def trend(records: pd.DataFrame, size: str, field: str = 'accuracy') -> tuple[float, float]:
  """Spearman's rank correlation of a field with a size over independent units, and its p-value.

  A unit counts once at its distribution. The p-value is of a two-sided permutation test: exact for up to eight units,
  else from 50,000 random orders of a fixed seed. Both are NaN for fewer than three units, a missing value, a constant.
  """
  ranks = records.groupby([*Point._fields, 'unit'])[[size, field]].mean().rank()
  # A constant has no ranks to permute.
  if len(ranks) < 3 or ranks.isna().any(axis=None) or (ranks.nunique() < 2).any():
    return np.nan, np.nan
  orders = scipy.stats.PermutationMethod(50_000, rng=0)
  correlation = scipy.stats.pearsonr(ranks[size], ranks[field], method=orders)
  return correlation.statistic, correlation.pvalue
