"""The tables of the study of degradation."""

from collections.abc import Iterable
from typing import Any

import pandas as pd

from experiments.analysis import statistics
from experiments.analysis.tables import Table, table
from experiments.studies.degradation.problems import Condition, UNDAMAGED

# Where its p-value is below this over the number of differences in its tables a difference is significant (Bonferroni).
LEVEL = 0.05
# Fields that name a condition of the theorems' own tasks, and its model.
CONDITION, MODEL = list(Condition._fields[:-1]), ['error', 'level']

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

# What is compared on the same inputs of the same HMM, the first minus the second.
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

_MINUS_REFERENCE = 'minus the HMM as it is at the same noise, or minus noise of the same KL, in points'


def tables(records: pd.DataFrame, settings: Any) -> dict[str, Table]:
  """Accuracies, differences of methods and of conditions for each theorem; the mass on H*, and each BERT's prompts."""
  percent, kl, found = by_hmm(records), mean_kl(records), dict[str, Table]()
  head = pd.DataFrame({'made worse by': [name_of(*condition) for _, *condition in kl.index], 'KL': kl})
  for name, title, cells in (
    ('accuracy', 'test accuracy in percent', _means(percent, CONDITION)),
    ('differences', *_tested('paired differences in points', _minus(percent, _METHOD_PAIRS, METHODS), CONDITION)),
    ('conditions', *_tested(_MINUS_REFERENCE, _minus_reference(percent), CONDITION)),
  ):
    shown = head.join(cells.rename(columns=METHODS), how='inner')
    for theorem, rows in shown.groupby(level='theorem', sort=False):
      title_of = f'Theorem {theorem}, {records["hmm"].nunique()} HMMs: {title}'
      found[f'{name}_{theorem.replace(".", "_")}'] = table(title_of, rows.to_dict('records'), num_texts=1)
  found['mass'] = _mass_table(masses(records))
  bert = statistics.select(records, theorem='3.6', error='bert')
  return found if bert.empty else {**found, 'prompts': _prompt_table(bert)}


def by_hmm(records: pd.DataFrame) -> pd.DataFrame:
  """Accuracies on the theorems' own tasks in percent, a row for each (condition, HMM), a column for each method."""
  own = statistics.select(records, kind='task').set_index([*CONDITION, 'hmm'])
  percent = pd.DataFrame(list(own['accuracy']), own.index, list(METHODS))
  percent.insert(0, 'majority', own['majority_accuracy'])
  return 100 * percent


def mean_kl(records: pd.DataFrame) -> pd.Series:
  """The mean KL of each condition. That of the exact model to itself is 0 but for float32."""
  means = statistics.select(records, kind='task').groupby(CONDITION, sort=False)['kl'].mean()
  return means.map(lambda kl: f'{abs(round(kl, 5)):.2g}')


def masses(records: pd.DataFrame) -> pd.DataFrame:
  """Masses on H* in percent, of models with a control: a row for each (model, HMM), a column for each prompt."""
  whole = statistics.select(records, theorem='3.6', damage='').set_index([*MODEL, 'hmm'])
  own, control = (statistics.select(whole, kind=kind)['mass'] for kind in ('task', 'control'))
  percent = 100 * pd.DataFrame(list(own), own.index)
  return percent.join(100 * control.str['trained'].rename('control'), how='inner')[list(PROMPTS)]


def name_of(damage: str, degree: float, error: str, level: float) -> str:
  """A condition in words."""
  if error == 'bert':
    return f'BERT, {level:g} steps'
  worse = [f'{kind} {size:g}'.replace('_', ' ') for kind, size in ((damage, degree), (error, level)) if size]
  return ', '.join(worse) or 'exact G'


def _mass_table(mass: pd.DataFrame) -> Table:
  title, differences = _tested(
    'Mean posterior mass on H* in percent, read off predictions', _minus(mass, _PROMPT_PAIRS, PROMPTS), MODEL
  )
  cells = _means(mass, MODEL).rename(columns=PROMPTS).join(differences)
  cells.insert(0, 'model', [name_of(*UNDAMAGED, *model) for model in cells.index])
  cells.insert(1, 'HMMs', mass.groupby(level=MODEL).size().astype(str))
  return Table(title, cells, num_texts=1)


def _prompt_table(bert: pd.DataFrame) -> Table:
  own, control = (statistics.select(bert, kind=kind).set_index('hmm') for kind in ('task', 'control'))
  cells = pd.DataFrame({'BERT': own.index.astype(str), 'KL': own['kl'].map('{:.3f}'.format)}, own.index)
  for name, rows in (('mu on H*', own), ('mu elsewhere', control)):
    accuracy, majority = 100 * rows['accuracy'].str['trained_prompt'], 100 * rows['majority_accuracy']
    cells[f'majority,\n{name}'] = majority.map('{:.1f}'.format)
    cells[f'prompt,\n{name}'] = accuracy.map('{:.1f}'.format)
    cells[f'of the gap,\n{name}'] = ((accuracy - majority) / (100 - majority)).map('{:.2f}'.format)
  mass = masses(bert).droplevel(MODEL).map('{:.1f}'.format)
  title = 'Each BERT for Theorem 3.6; of the gap from the majority class to 100% that its prompt closes'
  return Table(title, cells.join(mass.rename(columns=lambda name: f'mass,\n{PROMPTS[name]}')))


def _means(values: pd.DataFrame, by: list[str]) -> pd.DataFrame:
  return values.groupby(level=by, sort=False).agg(lambda column: str(statistics.mean_interval(column.dropna())))


def _minus(values: pd.DataFrame, pairs: Iterable[tuple[str, str]], titles: dict[str, str]) -> pd.DataFrame:
  """The first minus the second of each pair of columns."""
  title = lambda name: titles[name].replace('\n', ' ')
  return pd.DataFrame({f'{title(one)}\n- {title(other)}': values[one] - values[other] for one, other in pairs})


def _minus_reference(percent: pd.DataFrame) -> pd.DataFrame:
  """Damage minus none at the same noise, and a short context minus as much noise, by HMM."""
  rows, keys = percent[_ACROSS], percent.index.to_frame(index=False)
  damaged, short = keys['damage'] != '', keys['error'] == 'short_context'
  keys.loc[damaged, ['damage', 'degree']] = UNDAMAGED
  keys.loc[short, 'error'] = 'noise'
  references = rows.reindex(pd.MultiIndex.from_frame(keys))
  return (rows - references.to_numpy())[(damaged | short).to_numpy()].dropna(how='all')


def _tested(title: str, differences: pd.DataFrame, by: list[str]) -> tuple[str, pd.DataFrame]:
  """The mean differences with their intervals, * where they are significant; and the title, which says when."""
  groups = differences.groupby(level=by, sort=False)
  count = int(groups.count().gt(0).sum().sum())
  level = LEVEL / max(1, count)
  found = groups.agg(lambda values: statistics.mean_interval(values.dropna()))
  return f'{title}; *: p < {LEVEL:g} / {count}', found.map(lambda one: f'{one}{"*" * (one.p_value < level)}')
