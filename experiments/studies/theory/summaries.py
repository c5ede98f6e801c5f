"""The tables of the theory experiment, from its records."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pandas as pd

from experiments.analysis.statistics import Interval, interval, percent
from experiments.analysis.tables import format_number, median_range, proportion, Table, table

Cell = Callable[[pd.Series], str]

# Cell texts of field values, if they differ.
_WORDS = {
  'paper': "paper's draw",
  'certified': 'none (certified)',
  'separable': 'one exists',
  'constant': 'constant label',
  'fresh': 'a fresh text',
  'unseen': 'an unseen text',
}
_ACCURACIES = {
  'probability': 'probability',
  'majority': 'majority',
  'program': "program's head",
  'converged': 'converged head',
  'head': 'trained head',
  'prompt': 'trained prompt',
  'construction': 'Theorem 3.6',
}
_CONTRASTS = (
  ('converged head', 'trained head'),
  ('trained prompt', 'trained head'),
  ('trained prompt', 'converged head'),
)


class _Kind(NamedTuple):
  """A kind of records and their table, a row for each group of them.

  Attributes:
    field: present only in its records.
    title: with fields of the first record between braces.
    num_texts: leading columns of words.
    by: the fields that name a group, by heading.
    columns: a field and the function that makes a cell of its values in a group, by heading.
  """

  field: str
  title: str
  num_texts: int
  by: dict[str, str]
  columns: dict[str, tuple[str, Cell]]


def tables(records: pd.DataFrame, settings: Any) -> dict[str, Table]:
  """Verification, linear heads, prevalence."""
  made = {}
  for name, kind in _TABLES.items():
    rows_of_kind = records.dropna(subset=kind.field) if kind.field in records else records[:0]
    if len(rows_of_kind):
      rows = _rows(_per_text(rows_of_kind) if 'scored on' in kind.by else rows_of_kind, kind)
      made[name] = table(kind.title.format_map(rows_of_kind.iloc[0]), rows, kind.num_texts)
  if 'chains' in made:
    # There are more assumptions than sizes, so that each has a row.
    by_size = made['chains'].frame.set_index('H').rename('H = {}'.format)
    made['chains'] = made['chains']._replace(frame=by_size.T.reset_index(names='assumption'))
  return made


def _rows(records: pd.DataFrame, kind: _Kind) -> list[dict[str, str]]:
  """The cells of each group of records, by heading."""
  rows = []
  for names, group in records.groupby([*kind.by.values()], sort=False):
    row = {
      heading: _WORDS.get(value, value) if isinstance(value, str) else f'{value:g}'
      for heading, value in zip(kind.by, names)
    }
    for heading, (field, cell) in kind.columns.items():
      if heading.endswith(('rank', 'epsilon')):
        # A dict by rank, or by support and rank: a column for each threshold.
        flat = pd.json_normalize([*group[field]], sep=', rank ')
        row |= {f'{heading} {threshold.replace("0.0,", "0,")}': cell(values) for threshold, values in flat.items()}
      else:
        row[heading] = cell(group[field])
    rows.append(row)
  return rows


def _per_text(records: pd.DataFrame) -> pd.DataFrame:
  """Each record twice, with the accuracies on a fresh text and on an unseen one, and differences of methods."""
  per_text = []
  for text in ('fresh', 'unseen'):
    accuracies = {name: records[f'{text}_{field}'] for field, name in _ACCURACIES.items()}
    differences = {
      f'{minuend} - {subtrahend}': accuracies[minuend] - accuracies[subtrahend] for minuend, subtrahend in _CONTRASTS
    }
    per_text.append(records.assign(text=text, **accuracies, **differences))
  # A group's two rows stand together.
  return pd.concat(per_text).sort_index(kind='stable')


def _of(statistic: str, form: str) -> Cell:
  """An aggregate of the values by pandas, in a format; '' if none is known."""
  return lambda values: format_number(values.agg(statistic), form)


def _above(limit: int) -> Cell:
  """The number of values above a limit."""
  return lambda values: str((values > limit).sum())


def _violated(values: pd.Series) -> str:
  violated = values[values != '']
  return f'{violated.iloc[0]} in {len(violated)}' if len(violated) else ''


def _percent_range(values: pd.Series) -> str:
  return f'{100 * values.min():.0f} to {100 * values.max():.1f}%'


def _mean(of: Callable[[pd.Series], Interval]) -> Cell:
  """The mean in percent or points with its 95% interval, of what is known; '' of nothing."""
  return lambda values: str(of(values.dropna().astype(float))) if values.count() else ''


def _cut_off(values: pd.Series) -> str:
  """The number of searches that were not exhaustive at some threshold."""
  return str(sum(not all(exhaustive.values()) for exhaustive in values))


def _columns(cell: Cell, *fields: str) -> dict[str, tuple[str, Cell]]:
  """Columns of the same cell, under the names of their fields."""
  return {field.replace('_', ' '): (field, cell) for field in fields}


def _outcome(name: str) -> Cell:
  return lambda values: proportion(values == name)


_HMMS = {'HMMs': ('hmm', _of('count', 'd'))}
_TOTAL = _of('sum', ',.0f')
_TABLES = {
  'theorems': _Kind(
    'assumptions',
    'What the constructions recover beside the exact posterior',
    3,
    {'theorem': 'theorem', 'assumed': 'assumptions'},
    {
      'assumption that fails': ('violates', _violated),
      **_HMMS,
      '|H*| > 1': ('num_essential', _above(1)),
      '3 classes': ('num_classes', _above(2)),
      'sequences': ('sequences', _TOTAL),
      'commonest label': ('majority', _percent_range),
      **_columns(_TOTAL, 'no_mass', 'decided_exactly', 'exact_ties', 'wrong'),
      'cosine error': ('largest_cosine_error', _of('max', '.0e')),
      'vector error': ('largest_vector_error', _of('max', '.0e')),
    },
  ),
  'wrong_constructions': _Kind(
    'mutant',
    'Wrong constructions, and the sequences that detect them',
    2,
    {'theorem': 'theorem', 'what is wrong': 'mutant'},
    {
      **_HMMS,
      **_columns(_TOTAL, 'sequences', 'by_label', 'by_direction'),
      'by any': ('by_factor', _TOTAL),
      'HMMs that detect it': ('by_factor', _above(0)),
    },
  ),
  'temperatures': _Kind(
    'temperature',
    'Constructions with a softmax in place of argmax: accuracy in percent, mean and 95% interval over HMMs',
    1,
    {'theorem': 'theorem', 'temperature': 'temperature'},
    {
      **_HMMS,
      **_columns(_mean(percent), 'majority', 'accuracy'),
      'least of any HMM': ('accuracy', lambda values: f'{100 * values.min():.1f}'),
    },
  ),
  'linear_heads': _Kind(
    'outcome',
    'HMMs with more states than tokens by whether a linear head on G is right on all texts [95% interval of the '
    'share, percent]',
    1,
    {'draws': 'kind'},
    {
      'none (certified)': ('outcome', _outcome('certified')),
      'one exists': ('outcome', _outcome('separable')),
      'constant label': ('outcome', _outcome('constant')),
      'undecided': ('outcome', _outcome('undecided')),
      'texts of a proof': ('proof_texts', _of('max', '.0f')),
      'minimum error of any head': ('least_error', lambda values: median_range(values.dropna())),
      'near ties': ('near_ties', _of('max', '.1g')),
    },
  ),
  'accuracies': _Kind(
    'fresh_majority',
    'Probability of a correct label in percent: means over HMMs and their 95% intervals',
    3,
    {'draws': 'kind', 'linear head': 'outcome', 'scored on': 'text'},
    {
      **_HMMS,
      **_columns(_mean(percent), *_ACCURACIES.values()),
      'HMMs of 3.6': ('Theorem 3.6', _of('count', 'd')),
    },
  ),
  'differences': _Kind(
    'least_error',
    'Certified HMMs: differences of these accuracies in points, paired over HMMs, with 95% intervals',
    2,
    {'draws': 'kind', 'scored on': 'text'},
    _HMMS | _columns(_mean(lambda differences: interval(100 * differences)), *map(' - '.join, _CONTRASTS)),
  ),
  'chains': _Kind(
    'zeros',
    "Assumptions in the paper's draws of an HMM and of mu: how many satisfy each [95% interval, percent]",
    1,
    {'H': 'size'},
    {
      'zeros in A': ('zeros', _of('mean', '.0%')),
      'least singular value of W, median': ('smallest_singular_value', _of('median', '.1g')),
      '3.1, rank': ('3.1', proportion),
      '3.2': ('3.2', proportion),
      '3.5, epsilon': ('3.5', proportion),
      'searches for H* cut off': ('exhaustive', _cut_off),
    },
  ),
  'memories': _Kind(
    '4.5',
    "Assumptions in the paper's draws with a memory of one cell: how many satisfy each [95% interval, percent]",
    0,
    {'M': 'size'},
    {
      '4.2, rank': ('4.2', proportion),
      '4.5, rank': ('4.5', proportion),
      '4.4': ('4.4', proportion),
      'off the stationary law, median': ('stationarity_error', _of('median', '.1g')),
    },
  ),
}
