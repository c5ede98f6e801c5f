"""The tables of the study of degradation."""

from collections.abc import Iterable
from typing import Any

import pandas as pd

from experiments.analysis import statistics
from experiments.analysis.tables import Table, table
from experiments.studies.degradation.methods import METHODS
from experiments.studies.degradation.problems import Condition, UNDAMAGED

# Where its p-value is below this over the number of differences in its tables a difference is significant (Bonferroni).
LEVEL = 0.05
# Fields that name a condition, and its model.
CONDITION, MODEL = list(Condition._fields), ['error', 'level']

# Methods as tables name them, and the prompts of `masses`.
_METHODS = {name: method.title for name, method in METHODS.items()}
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

_DAMAGES = {'': '', 'singular_value': 'singular value {:g}', 'leak': 'leak {:g}'}
_ERRORS = {'noise': 'noise {:g}', 'short_context': 'short context {:g}', 'bert': 'BERT, {:g} steps'}


def tables(records: pd.DataFrame, settings: Any) -> dict[str, Table]:
  """Accuracies, differences of methods and of conditions for each theorem; the mass on H*, and each BERT's prompts."""
  percent, kl = by_hmm(records), mean_kl(records)
  head = pd.DataFrame({'made worse by': [name_of(Condition(*condition)) for condition in kl.index], 'KL': kl})
  differences, note = _tested(_minus(percent, _METHOD_PAIRS, _METHODS), CONDITION)
  across, note_across = _tested(_minus_reference(percent), CONDITION)
  cells = {
    'accuracy': ('test accuracy in percent', _means(percent, CONDITION)),
    'differences': (f'paired differences in points; {note}', differences),
    'conditions': (
      f'minus the HMM as it is at the same noise, or minus noise of the same KL, in points; {note_across}',
      across,
    ),
  }
  hmms, found = records.groupby('theorem')['hmm'].nunique(), {}
  for name, (title, of_all) in cells.items():
    shown = head.join(of_all.rename(columns=_METHODS), how='inner')
    for theorem, rows in shown.groupby(level='theorem', sort=False):
      title_of = f'Theorem {theorem}, {hmms[theorem]} HMMs: {title}'
      found[f'{name}_{theorem.replace(".", "_")}'] = table(title_of, rows.to_dict('records'), num_texts=1)
  bert = statistics.select(records, theorem='3.6', error='bert')
  return found | {'mass': _mass_table(records)} | ({} if bert.empty else {'prompts': _prompt_table(bert)})


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
  """Masses on H* in percent, of each model that has a control: a row for each (model, HMM), a column for each prompt."""
  own, control = (
    statistics.select(records, theorem='3.6', damage='', kind=kind).set_index([*MODEL, 'hmm'])['mass']
    for kind in ('task', 'control')
  )
  of_control = control.map(lambda mass: mass['trained']).rename('control')
  return 100 * pd.DataFrame(list(own), own.index).join(of_control, how='inner')[list(PROMPTS)]


def name_of(condition: Condition) -> str:
  """A condition in words, without its theorem."""
  damage = _DAMAGES[condition.damage].format(condition.degree)
  if condition.error == 'noise' and not condition.level:
    return damage or 'exact G'
  return ', '.join(filter(None, [damage, _ERRORS[condition.error].format(condition.level)]))


def _mass_table(records: pd.DataFrame) -> Table:
  mass = masses(records)
  differences, note = _tested(_minus(mass, _PROMPT_PAIRS, PROMPTS), MODEL)
  cells = _means(mass, MODEL).rename(columns=PROMPTS).join(differences)
  cells.insert(0, 'model', [name_of(Condition('3.6', *UNDAMAGED, *model)) for model in cells.index])
  cells.insert(1, 'HMMs', mass.groupby(level=MODEL, sort=False).size().astype(str))
  return Table(f'Mean posterior mass on H* in percent, read off predictions; {note}', cells, num_texts=1)


def _prompt_table(bert: pd.DataFrame) -> Table:
  own, control = (statistics.select(bert, kind=kind).set_index('hmm') for kind in ('task', 'control'))
  cells = pd.DataFrame({'BERT': own.index.astype(str), 'KL': own['kl'].map('{:.3f}'.format)}, own.index)
  for name, rows in (('mu on H*', own), ('mu elsewhere', control)):
    accuracy, majority = rows['accuracy'].map(lambda of: of['trained_prompt']), rows['majority_accuracy']
    cells[f'majority,\n{name}'] = (100 * majority).map('{:.1f}'.format)
    cells[f'prompt,\n{name}'] = (100 * accuracy).map('{:.1f}'.format)
    cells[f'of the gap,\n{name}'] = ((accuracy - majority) / (1 - majority)).map('{:.2f}'.format)
  for name, of_prompt in masses(bert).droplevel(MODEL).items():
    cells[f'mass,\n{PROMPTS[str(name)]}'] = of_prompt.map('{:.1f}'.format)
  return Table('Each BERT for Theorem 3.6; of the gap from the majority class to 100% that its prompt closes', cells)


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


def _tested(differences: pd.DataFrame, by: list[str]) -> tuple[pd.DataFrame, str]:
  """The mean differences with their intervals, marked where they are significant; and a note that says what marks."""
  found = differences.groupby(level=by, sort=False).agg(lambda values: statistics.difference(values.dropna()))
  count = int(differences.groupby(level=by).count().gt(0).sum().sum())
  cell = lambda one: f'{one.interval}{"*" if one.p_value < LEVEL / count else ""}'
  return found.map(cell), f'*: p < {LEVEL:g} / {count}'
