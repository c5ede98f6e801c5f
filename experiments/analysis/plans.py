"""The end points of a plan, tested on the records of a grid."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from experiments.analysis.grid_tables import at_end, FITS, Grid
from experiments.analysis.statistics import Interval, outcome, stratified
from experiments.analysis.tables import of_interval, Row, select, Table, table
from experiments.settings.grid import Point
from experiments.settings.plan import EndPoint, NATS

_TITLE = (
  'Plan: differences in points, KL in nats, means over HMMs ± 95%, stratified by size; p of t tests, not corrected. '
  'Detectable: with 80% power at level 0.05. Held: the interval lies in the expected range; not held: outside of it'
)


def tables(plan: Sequence[EndPoint], grid: Grid) -> dict[str, Table]:
  """The table `plan`: a row for each end point that has records."""
  rows = [row for point in plan if (row := _row(point, grid))]
  shown = {row['end point'] for row in rows}
  without = ', '.join(dict.fromkeys(point.name for point in plan if point.name not in shown))
  title = f'{_TITLE}; without records: {without}' if without else _TITLE
  return {'plan': table(title, rows)} if rows else {}


def _row(point: EndPoint, grid: Grid) -> Row:
  """The cells of an end point; none without records."""
  found = over_hmms(differences(point, grid))
  if not found.n:
    return {}
  sizes = sorted(grid.records['num_states'].unique())
  row: Row = {
    'end point': point.name,
    'of': _difference(point),
    '|H|': ', '.join(str(size) for size in sizes if size in (point.num_states or sizes)),
    **of_interval(found),
  }
  # The best head is fitted to the test texts.
  if point.field == 'accuracy' and not point.second_field and 'head_best' not in point.first + point.second:
    row['without near ties'] = over_hmms(differences(point, grid, 'clear_accuracy'))
  bounds = {'above': point.above, 'below': point.below}
  least, most = max(point.above, default=-np.inf), min(point.below, default=np.inf)
  row['expected'] = ', '.join(f'{side} {bound:g}' for side, bounds_of in bounds.items() for bound in bounds_of)
  return row | {'outcome': outcome(found, least, most) if row['expected'] else ''}


def _difference(point: EndPoint) -> str:
  """The first minus the second in words."""
  first = f'{FITS[" ".join(point.first)]}: {point.field}'.removesuffix(': accuracy')
  if not point.second:
    return first
  model, *methods = point.second
  second = ' or '.join(FITS[f'{model} {method}'] for method in methods)
  field = f': {point.second_field}' if point.second_field else ''
  return f'{first} - {f"{point.times:g} " * (point.times != 1)}{second}{field}'


def differences(point: EndPoint, grid: Grid, field: str = '') -> pd.Series:
  """The difference of an end point, by distribution and HMM: the mean over the tasks that all its fits have.

  Shares are in points. Several records of one HMM, such as at several values of a field, count as one.
  """
  records = grid.records
  # Neither seeds nor processes share an HMM.
  hmm = [name for name in (*Point._fields, 'trial', 'seed', 'distribution') if name in records]
  task = [*dict.fromkeys([*hmm, *grid.varied, 'task'])]
  if point.num_states:
    records = records[records['num_states'].isin(point.num_states)]
  records = _at_step(records, point.step)
  model, method = point.first
  value = _values(select(records, model=model), [method], field or point.field, task)
  if point.second:
    model, *methods = point.second
    second_field = field or point.second_field or point.field
    value = value - point.times * _values(select(records, model=model), methods, second_field, task)
  scale = 1 if point.field in NATS else 100
  return scale * value.dropna().groupby(level=hmm).mean()


def _at_step(records: pd.DataFrame, step: int) -> pd.DataFrame:
  """The records of what reads BERT after this step, 0 for its end, and of what reads none."""
  if not step:
    return at_end(records)
  return records[(records['step'] == step) | records['step'].isna()]


def _values(records: pd.DataFrame, methods: list[str], field: str, task: list[str]) -> pd.Series:
  """The largest value of a field on each task that all methods have."""
  if field not in records:
    return pd.Series(dtype=float, index=pd.MultiIndex.from_tuples([], names=task))
  groups = records[records['method'].isin(methods)].astype({field: float}).groupby(task, dropna=False)
  return groups[field].max()[groups['method'].nunique() == len(methods)]


def over_hmms(values: pd.Series) -> Interval:
  """The mean over HMMs, stratified by distribution."""
  return stratified(of_size for _, of_size in values.groupby(level=[*Point._fields]))
