"""Tables of records by one grammar: means by unit, differences that are paired, their tests, in plain text.

`rows` are the columns whose values make a row. `unit` are those that name an independent unit within it, such as the
trial, which draws an HMM.
"""

from collections.abc import Callable, Iterable, Sequence
import textwrap
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy

from experiments.analysis.statistics import holm, Interval, LEVEL, percent, stratified, trend
from experiments.settings import lists
from experiments.settings.fields import printable
from experiments.settings.grid import Point

# The cells of a row by the headings of their columns.
Row = dict[str, Any]


class Table(NamedTuple):
  """A table of a report.

  Attributes:
    title: what the numbers are, with units, intervals and the family of tests.
    frame: the cells, texts; a column's name is its heading.
    num_texts: leading columns that hold words and stand left; numbers stand right.
  """

  title: str
  frame: pd.DataFrame
  num_texts: int = 0


def table(title: str, rows: Sequence[Row] | pd.DataFrame, num_texts: int = 0) -> Table:
  """A table of rows, each a dict from heading to cell, or of a frame with its named index; no column is empty."""
  frame = pd.DataFrame(rows)
  if frame.index.names[0] is not None:
    frame = frame.reset_index()
  texts = frame.astype(object).where(frame.notna(), '').map(_cell)
  return Table(title, texts.loc[:, (texts != '').any()], num_texts)


def _cell(value: Any) -> str:
  return f'{value:.6g}' if isinstance(value, float) else str(value)


def as_text(table: Table) -> str:
  """The table below its title, in plain text."""
  sides = ['left'] * table.num_texts + ['right'] * (table.frame.shape[1] - table.num_texts)
  frame, words = table.frame.copy(), table.frame.iloc[:, : table.num_texts]
  # `maxcolwidths` of tabulate 0.10 turns the text 'False' into 'True'.
  frame[words.columns] = words.map(lambda text: textwrap.fill(text, 40))
  rows = frame.to_markdown(index=False, disable_numparse=True, tablefmt='simple', colalign=sides)
  return printable(f'{textwrap.fill(table.title, 120)}\n\n{rows}\n', kept='\n')


def format_number(value: float, form: str) -> str:
  """A number in a format; '' for NaN."""
  return '' if np.isnan(value) else f'{value:{form}}'


def geometric(log: Interval, bound: float = 1.0) -> str:
  """The geometric mean of ratios whose logarithms over a bound have this mean, with its interval; '' of none."""
  mean, low, high = (format_number(bound * np.exp(value), '.2g') for value in (log.mean, *log.ends))
  return f'{mean} [{low}, {high}]' if low else mean


def proportion(flags: Sequence[bool]) -> str:
  """'12/40 [17, 47]': how many, with the Clopper-Pearson 95% interval of the share in percent; '' of none."""
  if not len(flags):
    return ''
  low, high = scipy.stats.binomtest(int(sum(flags)), len(flags)).proportion_ci(0.95, method='exact')
  return f'{sum(flags)}/{len(flags)} [{100 * low:.0f}, {100 * high:.0f}]'


def median_range(values: Sequence[float]) -> str:
  """'2e-12 (1e-30 to 0.02)': the median, the least and the largest; '' of none."""
  return f'{np.median(values):.1g} ({min(values):.1g} to {max(values):.1g})' if len(values) else ''


def select(records: pd.DataFrame, **fields: Any) -> pd.DataFrame:
  """The records whose fields have these values."""
  for name, value in fields.items():
    records = records[records[name] == value]
  return records


def varied(records: pd.DataFrame) -> list[str]:
  """The columns of fields of settings in which the records differ."""
  return [name for name in filter(lists.is_column, records) if records[name].nunique() > 1]


def places(records: pd.DataFrame) -> pd.Series:
  """The distribution of each record in words, with the fields in which the records differ."""
  points = records[[*Point._fields]].itertuples(index=False)
  words = pd.Series([str(Point(*point)) for point in points], records.index, str)
  for name in varied(records):
    words += f' {name}=' + records[name].map(lists.shown)
  return words


def having(records: pd.DataFrame, field: str) -> pd.DataFrame:
  """The records that have a field."""
  return records.assign(**{field: records.get(field)}).dropna(subset=field)


def exploded(records: pd.DataFrame, field: str) -> pd.DataFrame:
  """A row for each element of the lists of a field that is not missing, with its `index` there."""
  rows = having(records, field).astype({field: object})
  rows['index'] = rows[field].map(lambda values: range(len(values)))
  return rows.explode([field, 'index']).astype({'index': int})


def by_unit(records: pd.DataFrame, rows: Sequence[str], field: str, unit: Sequence[str]) -> pd.Series:
  """The mean of a field in each unit, indexed by `rows` and `unit`; records that lack the field are skipped."""
  values = having(records, field).astype({field: float})
  return values.groupby([*rows, *unit], sort=False)[field].mean()


def means(
  records: pd.DataFrame,
  rows: Sequence[str],
  field: str,
  unit: Sequence[str],
  cell: Callable[[Any], Any] = percent,
  columns: Sequence[str] = (),
) -> Any:
  """The cell of the units' means of a field at each value of `rows`; a column for each value of `columns`, if any."""
  values = by_unit(records, [*rows, *columns], field, unit)
  cells = values.groupby(level=[*rows, *columns], sort=False).agg(cell)
  return cells.unstack([*columns], sort=False) if columns else cells


def lead(records: pd.DataFrame, rivals: pd.DataFrame, task: Sequence[str]) -> pd.Series:
  """The accuracy of each record minus that of the best of `rivals` on the same `task`, its columns; NaN without one."""
  best = rivals.groupby([*task])['accuracy'].max()
  return records['accuracy'] - records.join(best.rename('best'), on=[*task])['best']


def paired(values: pd.DataFrame, pairs: Iterable[str]) -> pd.Series:
  """The differences of columns that `pairs` such as 'prompt - head' name, in the rows that have both.

  The level 'contrast' of the index is the pair.
  """
  # A part without rows has the levels of the index, also if there is no pair.
  found = {'': values.iloc[:0, 0]}
  for pair in pairs:
    first, second = pair.split(' - ')
    if first in values and second in values:
      found[pair] = values[first] - values[second]
  return pd.concat(found, names=['contrast']).dropna()


def contrasts(
  differences: pd.Series, rows: Sequence[str], unit: Sequence[str], strata: Sequence[str] = ()
) -> pd.Series:
  """The interval of each contrast at each value of `rows`, over units, stratified if there are strata."""
  values = differences.groupby(level=['contrast', *rows, *strata, *unit], sort=False).mean()
  return values.groupby(level=['contrast', *rows], sort=False).agg(lambda of: stratified(of, strata))


def pooled(
  differences: pd.Series, rows: Sequence[str], strata: Sequence[str], size: str, unit: Sequence[str]
) -> pd.DataFrame:
  """A row for each contrast at each value of `rows`: the mean over units of all strata, and its trend with a size.

  Both are tested, each as one family over all rows. A contrast that has one stratum has no row.
  """
  by = ['contrast', *rows]
  values = differences.groupby(level=[*by, *strata, *unit], sort=False).mean()
  several = values.groupby(level=by, sort=False).filter(lambda of: of.groupby(level=strata).ngroups > 1)
  frame = tested(contrasts(several, rows, unit, strata))
  trends = []
  for _, of in several.groupby(level=by, sort=False):
    sizes = of.index.get_level_values(size)
    trends.append(trend(sizes, of))
  correlations = pd.DataFrame(trends, frame.index, ['Spearman', 'p'])
  corrected = holm(correlations['p'])
  frame['Spearman'] = correlations['Spearman'].map('{:.2f}'.format, na_action='ignore')
  frame['p of the trend, Holm'] = corrected.map('{:.2g}'.format, na_action='ignore')
  return frame.drop(columns='tests')


def tested(intervals: pd.Series) -> pd.DataFrame:
  """A row for each interval: n, p by Holm's correction, the number of tests, and the minimum detectable effect.

  All are one family. The detectable effect has 80% power at level 0.05 over the number of tests.
  """
  p_values = intervals.map(lambda one: one.p_value).astype(float)
  level = LEVEL / max(1, len(intervals))
  return pd.DataFrame(
    {
      'n': intervals.map(lambda one: one.n),
      'difference': intervals,
      'p, Holm': holm(p_values).map('{:.2g}'.format, na_action='ignore'),
      'tests': len(intervals),
      'detectable': intervals.map(lambda one: format_number(one.minimum_effect(level), '.1f')),
    }
  )


def tested_apart(intervals: pd.Series) -> pd.DataFrame:
  """The rows of `tested`, with each contrast as a family of its own."""
  families = intervals.groupby(level='contrast', sort=False)
  return pd.concat([pd.DataFrame(), *(tested(family) for _, family in families)])
