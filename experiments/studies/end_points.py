"""Grids of trials with the end points of their plans as a table more: docs/findings/beyond.md and causal.md."""

from collections.abc import Callable
import functools
from typing import Any

import pandas as pd

from experiments.analysis.contrasts import LEVEL
from experiments.analysis.statistics import as_text, Interval, lead, mean_interval, select, stratified, varied
from experiments.analysis.table import format_number, Table, table
from experiments.settings.grid import Settings
from experiments.settings.methods import METHODS, NONE
from experiments.studies import grids

# By its number in a plan: a fit, the one it is compared with, each (model, method), and the sizes |H|.
Compared = dict[str, tuple[Any, Any, tuple[int, ...]]]
_MASKS: Compared = {
  '1': (('bert', 'masks_converged'), ('bert', 'head_whitened'), (25, 30)),
  '2': (('bert', 'prompt'), ('bert', 'masks_converged'), (25, 30)),
  '4': (('bert', 'masks'), ('bert', 'head'), (10, 15)),
  '5': (('exact', 'inner_prompt'), ('exact', 'prompt'), (25, 30)),
  '6': (('bert', 'inner_prompt'), ('bert', 'prompt'), (25, 30)),
}
_CAUSAL: Compared = {
  '4': (('exact', 'prompt'), ('exact', 'head'), (4, 10, 30)),
  '5': (('exact', 'inner_prompt'), ('exact', 'prompt'), (30,)),
  '6': (('bert', 'prompt'), ('bert', 'head_whitened'), (30,)),
  '9': (('exact', 'prompt'), ('exact', 'head_whitened'), (36,)),
  '11': (('bert', 'shift'), ('bert', 'prompt'), (30,)),
}
# Likewise of total variations within the records of a prefix on BERT.
_MOVED: dict[str, tuple[str, Callable[[pd.DataFrame], pd.Series], tuple[int, ...]]] = {
  '7': ('TV moved by tuned prefix - by text, bert', lambda rows: rows['tv_moved'] - rows['tv_moved_by_text'], (30,)),
  '8': (
    'TV moved by text - twice the TV from G, bert',
    lambda rows: rows['tv_moved_by_text'] - 2 * rows['tv_at_mask'],
    (4, 10, 30),
  ),
}
_DELTA_SIZES = (4, 10, 30, 36)
_HMM = ['num_states', 'trial']
_ACCURACIES = {'gain': 'accuracy', 'clear_gain': 'clear_accuracy'}


def gains(records: pd.DataFrame, first: Any, *second: Any) -> pd.DataFrame:
  """Points by which a fit exceeds the best of others on the same task: the mean of each HMM, by setting.

  `gain` is that of the accuracy, `clear_gain` that without near ties. Empty if there are no records of one of the fits.
  """
  place, of = [*_HMM, *varied(records)], dict(iter(records.groupby(['model', 'method'])))
  if not {first, *second} <= {*of}:
    return pd.DataFrame(columns=[*place, *_ACCURACIES])
  best, rivals = of[first], pd.concat([of[fit] for fit in second])
  leads = {gain: 100 * lead(best, rivals, [*place, 'task'], field) for gain, field in _ACCURACIES.items()}
  return best.assign(**leads).dropna(subset='gain').groupby(place)[[*leads]].mean().reset_index()


def _over_hmms(rows: pd.DataFrame, gain: str = 'gain') -> Interval:
  """The mean gain, stratified by size; several records of one HMM count as one value."""
  # Neither seeds nor processes share an HMM.
  unit = [name for name in ('trial', 'seed', 'distribution') if name in rows]
  return stratified(of_size.groupby(unit)[gain].mean() for _, of_size in rows.groupby('num_states'))


def row(point: str, question: str, rows: pd.DataFrame) -> dict[str, str]:
  """The row of an end point: over HMMs, the mean of `gain` in points, of `clear_gain` likewise if it is a column."""
  interval, sizes = _over_hmms(rows), ', '.join(map(str, sorted(rows['num_states'].unique())))
  numbers = {'difference': str(interval), 'p': format_number(interval.p_value, '.2g')}
  numbers['detectable'] = format_number(interval.minimum_effect(LEVEL), '.1f')
  if 'clear_gain' in rows:
    numbers['without near ties'] = str(_over_hmms(rows, 'clear_gain'))
  return {'end point': point, 'difference of': question, '|H|': sizes, 'n': str(len(interval.values)), **numbers}


def _between(first: tuple[str, str], second: tuple[str, str]) -> str:
  """The two methods, and their model."""
  return f'{METHODS[first[1]].label} - {METHODS[second[1]].label}, {first[0]}'


def _compared(pairs: Compared, records: pd.DataFrame) -> list[dict[str, str]]:
  """A row for each comparison of two fits that has records at its sizes."""
  compared = [(point, *pair, gains(records, *pair), sizes) for point, (*pair, sizes) in pairs.items()]
  found = [(point, _between(*pair), rows[rows['num_states'].isin(sizes)]) for point, *pair, rows, sizes in compared]
  return [row(*each) for each in found if not each[2].empty]


def _of_causal(records: pd.DataFrame) -> list[dict[str, str]]:
  """The comparisons of fits, and in percent of total variation delta by size and how far prefixes move predictions.

  Without `measure.prompts`, or a method with a prompt, records have no total variations: the comparisons alone.
  """
  rows = _compared(_CAUSAL, records)
  if 'tv_movable' not in records:
    return rows
  prefixes = select(records, method='prompt').dropna(subset='tv_movable')
  exact, bert = (select(prefixes, model=model) for model in ('exact', 'bert'))
  for size, of_size in exact.groupby('num_states'):
    if size in _DELTA_SIZES:
      rows.append(row('2, 3', 'delta', of_size.assign(gain=100 * of_size['tv_movable'])))
  for point, (question, difference, sizes) in _MOVED.items():
    at_sizes = bert[bert['num_states'].isin(sizes)]
    if len(at_sizes):
      rows.append(row(point, question, at_sizes.assign(gain=100 * difference(at_sizes))))
  if len(exact):
    most = 100 * (exact['tv_moved'] - exact['tv_movable']).max()
    rows.append({'end point': '1', 'difference of': 'TV moved - delta, exact, largest', 'difference': f'{most:.2g}'})
  return rows


def _of_temperatures(records: pd.DataFrame) -> list[dict[str, str]]:
  """A row for each |H| and value of varied fields, a column for each fit: its lead over the better reader of tokens.

  No rows without such a reader, a fit of the model NONE. Intervals are over HMMs.
  """
  fits: list[Any] = list(records.groupby(['model', 'method'], sort=False).groups)
  readers = [fit for fit in fits if fit[0] == NONE]
  if not readers:
    return []
  columns, rows = ['num_states', *varied(records)], dict[Any, dict[str, str]]()
  for model, method in [fit for fit in fits if fit not in readers]:
    for values, gained in gains(records, (model, method), *readers).groupby(columns):
      cells = rows.setdefault(values, dict(zip(['|H|', *columns[1:]], map(as_text, values))))
      cells[f'{METHODS[method].label}, {model}'] = str(mean_interval(gained['gain']))
  return [*rows.values()]


_ROWS: dict[str, Callable[[pd.DataFrame], list[dict[str, str]]]] = {
  'masks': functools.partial(_compared, _MASKS),
  'temperatures': _of_temperatures,
  'evidence': _of_causal,
  'masked': _of_causal,
}
TITLE = (
  'End points of the plan in points, mean ± 95% over HMMs, stratified by size, and p of t tests, not corrected. '
  'Detectable: minimum effect with 80% power at level 0.05. A lead is over the better reader without a model on the '
  'same task'
)


def _tables(records: pd.DataFrame, settings: Settings) -> dict[str, Table]:
  rows = _ROWS[settings.scale](records) if settings.scale in _ROWS else []
  return grids.tables(records, settings) | ({'end_points': table(TITLE, rows)} if rows else {})


STUDY = grids.STUDY._replace(tables=_tables)
