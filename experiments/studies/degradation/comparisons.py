"""The tables of the study of degradation."""

from collections.abc import Iterable
from typing import Any

import pandas as pd

from experiments.analysis.statistics import holm, interval
from experiments.analysis.tables import select, Table, table
from experiments.studies.degradation.problems import Condition, UNDAMAGED

# Corrected p-values below this are significant.
LEVEL = 0.05
# Fields that name a condition of the theorems' own tasks; and what its row in a table begins with.
CONDITION, _ROW = list(Condition._fields[:-1]), ['theorem', 'perturbation', 'KL']

# Methods, and the prompts of `masses`.
METHODS = {
  'construction': "theorem's\nconstruction",
  'weighted': 'weighted\ninverse',
  'converged_built': "theorem's prompt,\nconverged head",
  'converged_head': 'converged\nhead',
  'trained_head': 'trained\nhead',
  'converged_prompt': 'trained prompt,\nconverged head',
  'trained_prompt': 'trained prompt\nand head',
}
PROMPTS = {
  'without': 'no\nprompt',
  'start': 'untrained\nprompt',
  'trained': 'trained,\nmu on H*',
  'control': 'trained,\nelsewhere',
}

# Pairs that are compared on the same inputs of the same HMM, the first minus the second.
_METHOD_PAIRS = (
  ('weighted', 'construction'),
  ('converged_head', 'construction'),
  ('converged_built', 'construction'),
  ('converged_prompt', 'construction'),
  ('converged_prompt', 'converged_head'),
  ('converged_head', 'trained_head'),
  ('converged_prompt', 'trained_prompt'),
)
_PROMPT_PAIRS = (('trained', 'without'), ('trained', 'start'), ('trained', 'control'), ('control', 'without'))
# Methods that are compared across conditions.
_ACROSS = ['construction', 'weighted', 'converged_head', 'converged_prompt']


def tables(records: pd.DataFrame, settings: Any) -> dict[str, Table]:
  """Accuracies, differences of methods and of conditions for each theorem; the mass on H*, and each BERT's prompts."""
  own, by_name = by_hmm(records), dict[str, Table]()
  percent = own.set_index([*_ROW, 'hmm'])[['majority', *METHODS]]
  across = (
    'accuracy minus a baseline in points; baseline of a short context: noise of the same KL; otherwise the unchanged '
    'HMM at the same noise'
  )
  for name, (title, cells) in {
    'accuracy': ('test accuracy in percent', _means(percent)),
    'differences': _tested('paired differences in points', _minus(percent, _METHOD_PAIRS, METHODS)),
    'conditions': _tested(across, _minus_reference(own)),
  }.items():
    for theorem, rows in cells.rename(columns=METHODS).groupby(level='theorem', sort=False):
      title_of = f'Theorem {theorem}, {records["hmm"].nunique()} HMMs: {title}'
      of_theorem = rows.droplevel('theorem').reset_index()
      by_name[f'{name}_{theorem.replace(".", "_")}'] = table(title_of, of_theorem, num_texts=1)
  by_name['mass'] = _mass_table(masses(records))
  bert = select(records, theorem='3.6', error='bert')
  return by_name if bert.empty else {**by_name, 'prompts': _prompt_table(bert)}


def by_hmm(records: pd.DataFrame) -> pd.DataFrame:
  """The records of the theorems' own tasks: their conditions in words, with mean KL, and accuracies in percent."""
  own = select(records, kind='task')
  kl = own.groupby(CONDITION)['kl'].transform('mean')
  percent = 100 * pd.DataFrame(list(own['accuracy']), own.index, list(METHODS))
  # The KL of the exact model to itself is 0 up to float32 rounding.
  words = {'perturbation': own.apply(name_of, axis=1), 'KL': kl.map(lambda mean: f'{abs(round(mean, 5)):.2g}')}
  return own[[*CONDITION, 'hmm']].assign(**words, majority=100 * own['majority_accuracy']).join(percent)


def masses(records: pd.DataFrame) -> pd.DataFrame:
  """Masses on H* in percent, of models with a control: a row for each (model, HMM), a column for each prompt."""
  whole = select(records, theorem='3.6', damage='')
  whole = whole.assign(model=whole.apply(name_of, axis=1)).set_index(['model', 'hmm'])
  own, control = (select(whole, kind=kind)['mass'] for kind in ('task', 'control'))
  return 100 * pd.DataFrame(list(own), own.index).assign(control=control.str['trained']).dropna()[list(PROMPTS)]


def name_of(condition: Any) -> str:
  """A `Condition`, or a record with its fields, in words."""
  if condition.error == 'bert':
    return f'BERT, {condition.level:g} steps'
  sizes = {condition.damage: condition.degree, condition.error: condition.level}
  return ', '.join(f'{kind} {size:g}'.replace('_', ' ') for kind, size in sizes.items() if size) or 'exact G'


def _mass_table(mass: pd.DataFrame) -> Table:
  """A row for each model: the mean mass on H* behind each prompt, and tests of their differences."""
  counts = mass.groupby(level='model', sort=False).size().astype(str)
  title, differences = _tested(
    'Mean posterior mass on H* in percent, computed from predictions', _minus(mass, _PROMPT_PAIRS, PROMPTS)
  )
  cells = counts.to_frame('HMMs').join(_means(mass).rename(columns=PROMPTS)).join(differences)
  return Table(title, cells.reset_index(), num_texts=1)


def _prompt_table(bert: pd.DataFrame) -> Table:
  """A row for each BERT: what its prompt reaches on the theorem's task and on the control, and the masses on H*."""
  own, control = (select(bert, kind=kind).set_index('hmm') for kind in ('task', 'control'))
  cells = pd.DataFrame({'BERT': own.index.astype(str), 'KL': own['kl'].map('{:.3f}'.format)}, own.index)
  for name, rows in (('mu on H*', own), ('mu elsewhere', control)):
    accuracy, majority = 100 * rows['accuracy'].str['trained_prompt'], 100 * rows['majority_accuracy']
    cells[f'majority,\n{name}'] = majority.map('{:.1f}'.format)
    cells[f'prompt,\n{name}'] = accuracy.map('{:.1f}'.format)
    cells[f'of the gap,\n{name}'] = ((accuracy - majority) / (100 - majority)).map('{:.2f}'.format)
  mass = masses(bert).droplevel('model').map('{:.1f}'.format)
  title = 'Each BERT for Theorem 3.6: share of the gap from the majority class to 100% that its prompt closes'
  return Table(title, cells.join(mass.rename(columns=lambda name: f'mass,\n{PROMPTS[name]}')))


def _means(values: pd.DataFrame) -> pd.DataFrame:
  """Means over HMMs, the last level of the index, with their intervals."""
  groups = values.groupby(level=values.index.names[:-1], sort=False)
  return groups.agg(lambda column: str(interval(column.dropna())))


def _minus(values: pd.DataFrame, pairs: Iterable[tuple[str, str]], titles: dict[str, str]) -> pd.DataFrame:
  """The first minus the second of each pair of columns."""
  title = lambda name: titles[name].replace('\n', ' ')
  return pd.DataFrame(
    {f'{title(minuend)}\n- {title(subtrahend)}': values[minuend] - values[subtrahend] for minuend, subtrahend in pairs}
  )


def _minus_reference(own: pd.DataFrame) -> pd.DataFrame:
  """Damage minus none at the same noise, and a short context minus as much noise, by HMM."""
  keys, (damage, degree) = [*CONDITION, 'hmm'], UNDAMAGED
  reference = own.assign(damage=damage, degree=degree, error=own['error'].replace('short_context', 'noise'))
  minuend = own[(own[CONDITION] != reference[CONDITION]).any(axis=1)]
  subtrahend = reference.loc[minuend.index, keys].merge(own, 'left', keys)[_ACROSS]
  return (minuend.set_index([*_ROW, 'hmm'])[_ACROSS] - subtrahend.to_numpy()).dropna(how='all')


def _tested(title: str, differences: pd.DataFrame) -> tuple[str, pd.DataFrame]:
  """The mean differences with their intervals, * if they are significant; and the title, which says when."""
  # One column; methods that a theorem does not have are dropped and make no test.
  values = differences.rename_axis(columns='pair').stack().dropna()
  tests = values.groupby(level=[*differences.index.names[:-1], 'pair'], sort=False).agg(interval)
  corrected = holm(tests.map(lambda test: test.p_value))
  cells = [f'{test}{"*" * (p_value < LEVEL)}' for test, p_value in zip(tests, corrected)]
  frame = pd.Series(cells, tests.index, str).unstack(sort=False).reindex(columns=differences.columns)
  return f'{title}; *: p < {LEVEL:g}, Holm over {len(tests)}', frame
