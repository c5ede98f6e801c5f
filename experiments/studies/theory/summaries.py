"""The tables of the theory experiment, from its records."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from experiments.analysis.tables import format_number, median_range, proportion, Row, Table, table
from experiments.studies.theory.verification import TOLERANCE

_KINDS = {'paper': "paper's draw", 'sparse': 'sparse'}
_OUTCOMES = {
  'certified': 'none (certified)',
  'separable': 'one exists',
  'constant': 'constant label',
  'undecided': 'undecided',
}


def tables(records: pd.DataFrame, settings: Any) -> dict[str, Table]:
  """Verification, linear heads, prevalence: each table of the records that have its field."""
  present = records.dropna(axis=1, how='all')
  return {name: make(records.dropna(subset=field)) for name, (field, make) in _TABLES.items() if field in present}


def _constructions(records: pd.DataFrame) -> Table:
  groups = records.assign(any_wrong=records['wrong'] > 0).groupby(['theorem', 'construction'], sort=False)
  counted = ['redraws', 'sequences', 'no_mass', 'wrong', 'any_wrong']
  totals = groups[counted].sum().map('{:,.0f}'.format)
  totals.columns = ['redrawn', 'sequences', 'no mass', 'wrong', 'HMMs with wrong ones']
  totals.insert(0, 'HMMs', groups.size())
  totals['largest error'] = groups['largest_error'].max().map('{:.0e}'.format)
  title = f'Scores of constructions, right and wrong, beside the posterior; wrong is an error above {TOLERANCE:g}'
  return table(title, totals, 2)


def _linear_heads(records: pd.DataFrame) -> Table:
  rows = [
    {
      'draws': _KINDS[kind],
      **{heading: proportion(group['outcome'] == outcome) for outcome, heading in _OUTCOMES.items()},
      'texts of a proof': format_number(group['proof_texts'].max(), '.0f'),
      'minimum error of any head': median_range(group['least_error'].dropna()),
      'near ties': f'{group["near_ties"].max():.1g}',
    }
    for kind, group in records.groupby('kind', sort=False)
  ]
  title = (
    'HMMs with more states than tokens by whether a linear head on G is right on all texts [95% interval of the '
    'share, percent]'
  )
  return table(title, rows, 1)


def _chains(records: pd.DataFrame) -> Table:
  by_size = {
    f'H = {size:g}': {
      'zeros in A': f'{group["zeros"].mean():.0%}',
      'least singular value of W, median': f'{group["smallest_singular_value"].median():.1g}',
      **_by_threshold('3.1, rank', group['3.1']),
      '3.2': proportion(group['3.2']),
      **_by_threshold('3.5, epsilon', group['3.5']),
      'searches for H* cut off': sum(not all(exhaustive.values()) for exhaustive in group['exhaustive']),
    }
    for size, group in records.groupby('size', sort=False)
  }
  # There are more assumptions than sizes, so that each has a row.
  frame = pd.DataFrame(by_size).reset_index(names='assumption')
  title = "Assumptions in the paper's draws of an HMM and of mu: how many satisfy each [95% interval, percent]"
  return table(title, frame, 1)


def _memories(records: pd.DataFrame) -> Table:
  rows = [
    {
      'M': f'{size:g}',
      **_by_threshold('4.2, rank', group['4.2']),
      **_by_threshold('4.5, rank', group['4.5']),
      '4.4': proportion(group['4.4']),
      'off the stationary law, median': f'{group["stationarity_error"].median():.1g}',
    }
    for size, group in records.groupby('size', sort=False)
  ]
  title = "Assumptions in the paper's draws with a memory of one cell: how many satisfy each [95% interval, percent]"
  return table(title, rows)


def _by_threshold(name: str, answers: Sequence[dict[str, Any]]) -> Row:
  """The share of draws at each threshold: a dict by rank, or by epsilon and rank."""
  flat = pd.json_normalize([*answers], sep=', rank ')
  return {f'{name} {threshold.replace("0.0,", "0,")}': proportion(flags) for threshold, flags in flat.items()}


# The field that only a table's records have, and the function that makes it.
_TABLES = {
  'constructions': ('construction', _constructions),
  'linear_heads': ('outcome', _linear_heads),
  'chains': ('zeros', _chains),
  'memories': ('4.5', _memories),
}
