"""Past the paper's theorems: a grid of trials, with the end points of docs/findings/beyond.md as a table more."""

from typing import Any

import pandas as pd

from experiments.analysis.statistics import as_text, Interval, lead, mean_interval, stratified, varied
from experiments.analysis.table import format_number, Table, table
from experiments.settings.grid import Settings
from experiments.settings.methods import METHODS, NONE
from experiments.studies import grids

# By its number in the plan: a fit, the one it is compared with, each (model, method), and the sizes |H|.
_MASKS: dict[str, tuple[Any, Any, tuple[int, ...]]] = {
  '1': (('bert', 'masks_converged'), ('bert', 'head_whitened'), (25, 30)),
  '2': (('bert', 'prompt'), ('bert', 'masks_converged'), (25, 30)),
  '3': (('bert', 'joint_converged'), ('bert', 'masks_converged'), (10, 15, 25, 30)),
  '4': (('bert', 'masks'), ('bert', 'head'), (10, 15)),
  '5': (('exact', 'inner_prompt'), ('exact', 'prompt'), (25, 30)),
  '6': (('bert', 'inner_prompt'), ('bert', 'prompt'), (25, 30)),
}
_CLASSES = 'downstream.token_classes'
_HMM = ['num_states', 'trial']
# The HMMs of `classes` whose p has a mean entropy above .1 nats, by the plan.
_MIXED = (0, 3, 4)


def gains(records: pd.DataFrame, first: Any, *second: Any) -> pd.DataFrame:
  """Points by which the accuracy of a fit exceeds the best of others on the same task: mean of each HMM, by setting.

  Empty if there are no records of one of them.
  """
  place, of = [*_HMM, *varied(records)], dict(iter(records.groupby(['model', 'method'])))
  if not {first, *second} <= {*of}:
    return pd.DataFrame(columns=[*place, 'gain'])
  gain = 100 * lead(of[first], pd.concat([of[fit] for fit in second]), [*place, 'task'])
  return of[first].assign(gain=gain).dropna(subset='gain').groupby(place)['gain'].mean().reset_index()


def _over_hmms(rows: pd.DataFrame) -> Interval:
  """The mean gain, stratified by size; several partitions of one HMM count as one value."""
  return stratified(of_size.groupby('trial')['gain'].mean() for _, of_size in rows.groupby('num_states'))


def _row(point: str, question: str, rows: pd.DataFrame) -> dict[str, str]:
  interval, sizes = _over_hmms(rows), ', '.join(map(str, sorted(rows['num_states'].unique())))
  numbers = {'difference': str(interval), 'p': format_number(interval.p_value, '.2g')}
  return {'end point': point, 'difference of': question, '|H|': sizes, 'n': str(len(interval.values)), **numbers}


def _between(first: tuple[str, str], second: tuple[str, str]) -> str:
  """The two methods, and their model."""
  return f'{METHODS[first[1]].label} - {METHODS[second[1]].label}, {first[0]}'


def _of_masks(records: pd.DataFrame) -> list[dict[str, str]]:
  compared = [(point, *pair, gains(records, *pair), sizes) for point, (*pair, sizes) in _MASKS.items()]
  found = [(point, _between(*pair), rows[rows['num_states'].isin(sizes)]) for point, *pair, rows, sizes in compared]
  return [_row(*each) for each in found if not each[2].empty]


def _of_classes(records: pd.DataFrame) -> list[dict[str, str]]:
  """Row `7, 8` for HMMs whose p is no point mass, and `9` for the others, by the number of classes."""
  rows = gains(records, ('exact', 'prompt_refit'), ('exact', 'head_whitened'))
  if _CLASSES not in rows:
    return []
  by_classes = rows.assign(is_mixed=rows['trial'].isin(_MIXED)).groupby(['is_mixed', _CLASSES])
  return [
    _row('7, 8' if is_mixed else '9', f'refitted - converged head, {classes or "all"} classes', of_classes)
    for (is_mixed, classes), of_classes in by_classes
  ]


def _of_temperatures(records: pd.DataFrame) -> list[dict[str, str]]:
  """The lead of each method over the better reader without a model."""
  fits: list[Any] = list(records.groupby(['model', 'method'], sort=False).groups)
  without = [fit for fit in fits if fit[0] == NONE]
  places, rows = ['num_states', *varied(records)], dict[Any, dict[str, str]]()
  for model, method in [fit for fit in fits if fit not in without]:
    for place, gained in gains(records, (model, method), *without).groupby(places):
      row = rows.setdefault(place, dict(zip(['|H|', *places[1:]], map(as_text, place))))
      row[f'{METHODS[method].label}, {model}'] = str(mean_interval(gained['gain']))
  return [*rows.values()]


_ROWS = {'masks': _of_masks, 'classes': _of_classes, 'temperatures': _of_temperatures}
_TITLE = (
  'End points of the plan in points, mean ± 95% over HMMs, stratified by size, and p of t tests, not corrected; a lead '
  'is over the better reader without a model on the same task'
)


def _tables(records: pd.DataFrame, settings: Settings) -> dict[str, Table]:
  rows = _ROWS[settings.scale](records) if settings.scale in _ROWS else []
  return grids.tables(records, settings) | ({'end_points': table(_TITLE, rows)} if rows else {})


STUDY = grids.STUDY._replace(tables=_tables)
