"""The end points of a plan, tested on the records of a grid."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from experiments.analysis.grid_tables import FITS, Grid
from experiments.analysis.statistics import Interval, LEVEL, outcome, stratified
from experiments.analysis.tables import format_number, Row, Table, table
from experiments.settings.grid import Point
from experiments.settings.plan import EndPoint, NATS

_TITLE = (
  'Plan: differences in points, KL in nats, means over HMMs ± 95%, stratified by size; p of t tests, not corrected. '
  'Detectable: with 80% power at level 0.05. Held: the interval lies in the expected range; not held: outside of it'
)


def tables(plan: Sequence[EndPoint], grid: Grid) -> dict[str, Table]:
  """The table `plan`: a row for each end point that has records."""
  found = [(point, differences(point, grid)) for point in plan]
  rows = [_row(point, values, grid) for point, values in found if len(values)]
  if not rows:
    return {}
  shown = [row['end point'] for row in rows]
  # Several end points may have one name.
  absent = ', '.join(dict.fromkeys(point.name for point in plan if point.name not in shown))
  return {'plan': table(_TITLE + (f'; without records: {absent}' if absent else ''), rows, num_texts=2)}


def _row(point: EndPoint, values: pd.Series, grid: Grid) -> Row:
  """The cells of an end point, whose differences by HMM are `values`."""
  found = over_hmms(values)
  row: Row = {
    'end point': point.name,
    'of': _in_words(point),
    '|H|': ', '.join(map(str, sorted(values.index.unique('num_states')))),
    'n': found.n,
    'difference': found,
    'p': format_number(found.p_value, '.2g'),
    'detectable': format_number(found.minimum_effect(LEVEL), '.1f'),
  }
  # The best head is fitted to the test texts.
  is_fitted = 'head_best' in point.first + point.second
  if point.field == 'accuracy' and not point.second_field and not is_fitted:
    row['without near ties'] = over_hmms(differences(point, grid, 'clear_accuracy'))
  row['expected'] = ', '.join([*map('above {:g}'.format, point.above), *map('below {:g}'.format, point.below)])
  row['outcome'] = ''
  if row['expected']:
    row['outcome'] = outcome(found, max(point.above, default=-np.inf), min(point.below, default=np.inf))
  return row


def _in_words(point: EndPoint) -> str:
  """The first minus the second in words."""
  first = f'{FITS[" ".join(point.first)]}: {point.field}'.removesuffix(': accuracy')
  if not point.second:
    return first
  model, *methods = point.second
  second = ' or '.join(FITS[f'{model} {method}'] for method in methods)
  times = f'{point.times:g} ' if point.times != 1 else ''
  return f'{first} - {times}{second}: {point.second_field}'.removesuffix(': ')


def differences(point: EndPoint, grid: Grid, field: str = '') -> pd.Series:
  """The difference of an end point, by distribution and HMM: the mean over the tasks that all its fits have.

  Shares are in points. Several records of one HMM, such as at several values of a field, count as one.

  Args:
    point: the end point.
    grid: the records.
    field: in place of those of the end point, if any.
  """
  records = grid.at_end().records
  if point.step:
    # Readers of no BERT have no step.
    steps = grid.records['step']
    records = grid.records[(steps == point.step) | steps.isna()]
  if point.num_states:
    records = records[records['num_states'].isin(point.num_states)]
  grid = grid._replace(records=records)
  values = _largest(grid, point.first, field or point.field)
  if point.second:
    second_field = field or point.second_field or point.field
    values -= point.times * _largest(grid, point.second, second_field)
  # Neither seeds nor processes share an HMM.
  hmm = [name for name in grid.tasks if name in (*Point._fields, 'trial', 'seed', 'distribution')]
  scale = 1 if point.field in NATS else 100
  return scale * values.dropna().groupby(level=hmm).mean()


def _largest(grid: Grid, fits: Sequence[str], field: str) -> pd.Series:
  """The largest value of a field on each task that all fits, a model and its methods, have; else NaN."""
  model, *methods = fits
  columns = [f'{model} {method}' for method in methods]
  return grid.wide(field).reindex(columns=columns).max(axis=1, skipna=False)


def over_hmms(values: pd.Series) -> Interval:
  """The mean over HMMs, stratified by distribution."""
  return stratified(values, [name for name in Point._fields if name in values.index.names])
