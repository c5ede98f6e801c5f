"""The tables of the facts about Figure 3 (left), from records alone."""

from collections.abc import Callable
import pathlib
from typing import Any

import pandas as pd

from experiments.analysis.statistics import by_unit, Interval, percent, select
from experiments.analysis.tables import median_range, share, Table, table
from experiments.records import frames
from experiments.studies.which_theorem.settings import LevelSettings, WhichTheoremSettings

# The records of prompt_vs_head:evidence.
GRID = pathlib.Path(__file__).parents[3] / 'docs' / 'results' / 'small' / 'figure_3_left'
# The unit of every interval.
HMM = ['num_states', 'trial']
# osc(b) / osc(mu) up to which a head is called moderate.
MODERATE = 1e3
# The error of a solution, of weights of at most 1, up to which float64 has it.
PRECISE = 1e-6
_MAJORITY = {'majority_accuracy': 'majority class, %'}
# Of a task: whether the score is linear, and labels are separable.
CELLS = {
  (True, True): 'linear, separable',
  (False, True): 'not linear, separable',
  (False, False): 'not linear, not separable',
  (True, False): 'linear, not separable',
}
# Whether Assumption 3.5 holds, and the outcome for the condition of docs/prompts.md.
CONDITIONS = {
  (True, 'yes'): '3.5 and the condition',
  (True, 'no'): '3.5, not the condition',
  (True, 'undecided'): '3.5, the condition undecided',
  (False, 'yes'): 'the condition, not 3.5',
  (False, 'no'): 'neither',
  (False, 'undecided'): 'not 3.5, the condition undecided',
}
# Methods of prompt_vs_head by model, whose accuracies stand beside these facts.
HEADS = {
  'exact head_converged': 'converged head, exact G',
  'exact head': 'head, exact G',
  'bert head_converged': 'converged head, BERT',
  'bert head': 'head, BERT',
  'bert prompt': 'prompt, BERT',
}
PROMPTS = {
  'exact oracle_prompt': 'oracle prompt, exact G',
  'exact prompt': 'prompt, exact G',
  'bert prompt': 'prompt, BERT',
}
# Shares of the test inputs; every one is at most the one before, but for the first.
BOUNDS = {
  'exact_accuracy': 'right on exact G',
  'accuracy': 'right on BERT',
  'certified': 'certified by TV of each input',
  'from_total_variation': 'certified by mean TV',
  'from_kl': 'certified by mean KL',
}


def tables(records: pd.DataFrame, settings: WhichTheoremSettings) -> dict[str, Table]:
  """All tables; accuracies where the grid's records in docs/results have the tasks of these."""
  linearity, prompts, kl = (select(records, part=part) for part in ('linearity', 'prompts', 'kl'))
  return {
    'cells': cell_table(linearity, 'separable', 'all test inputs'),
    'clear_cells': cell_table(linearity, 'clear_separable', 'test inputs that are no near ties'),
    'distances': distance_table(linearity, settings.levels),
    'prompts': prompt_table(prompts),
    'proofs': proof_table(prompts),
    'certificate': certificate_table(kl),
    **accuracy_tables(linearity, prompts, frames.load(GRID)),
  }


def cell_table(tasks: pd.DataFrame, field: str, inputs: str) -> Table:
  """Counts of tasks by linear score and separable labels, by |H|."""
  shares = {field: 'separable, % of decided', 'near_tie_share': 'near ties, %', **_MAJORITY}

  def cells(size: int, rows: pd.DataFrame) -> dict[str, Any]:
    kinds = _in_words(rows, ['linear', field], CELLS)
    counts = {**kinds.value_counts(), 'open': kinds.isna().sum()}
    return {'|H|': size, **_counts(rows), **counts, **_shares(rows, shares)}

  title = f'Tasks by whether the score is exactly linear in G, and labels are separable: {inputs}'
  return _table(title, tasks, ['num_states'], cells)


def distance_table(tasks: pd.DataFrame, levels: LevelSettings) -> Table:
  """Distances from Assumptions 3.1 and 3.5, and from linearity; a column for each |H|."""
  columns = {f'H = {size}': _distances(rows, levels) for size, rows in tasks.groupby('num_states')}
  title = 'How far the assumptions are: counts [95% interval over HMMs, percent], median (range), mean ± 95% over HMMs'
  return Table(title, pd.DataFrame(columns).rename_axis('').reset_index(), 1)


def _distances(tasks: pd.DataFrame, levels: LevelSettings) -> dict[str, str]:
  hmms, exhaustive = tasks.drop_duplicates('trial'), pd.DataFrame(list(tasks['exhaustive']))
  counted = lambda holds: f'{holds.sum()}/{len(holds)}'
  return {
    'least singular value of W': median_range(hmms['smallest_singular_value']),
    'dimension of S': ', '.join(f'{size:g}' for size in sorted(tasks['reached_dimension'].unique())),
    **{f'3.1, rank {rank}: HMMs': share(hmms['3.1'].str[str(rank)]) for rank in levels.rank_levels},
    **{
      f'3.5, epsilon {level:g}, rank {rank}: tasks': counted(tasks['3.5'].str[str(level)].str[str(rank)])
      for level in levels.support_levels
      for rank in levels.rank_levels
    },
    '3.5, search cut off: tasks': counted(~exhaustive.all(axis=1)),
    f'linear by a head of at most {MODERATE:g} mu: tasks': counted(tasks['head_size'] <= MODERATE),
    'osc(b) / osc(mu) of the least exact head': median_range(tasks['head_size'].dropna()),
    'left by least squares on G, % of SD': str(percent(tasks, 'unexplained', HMM)),
  }


def prompt_table(prompts: pd.DataFrame) -> Table:
  """Assumption 3.5, the condition, and the accuracy of what was built, by |H| and epsilon."""

  def cells(size: int, epsilon: float, rows: pd.DataFrame) -> dict[str, Any]:
    built = rows.dropna(subset='accuracy')
    return {
      '|H|': size,
      **_counts(rows),
      'epsilon': epsilon,
      '3.5': rows['3.5'].sum(),
      **{outcome: (rows['constant_prompt'] == outcome).sum() for outcome in ('yes', 'no', 'undecided')},
      f'yes to {PRECISE:g}': (built['error'] <= PRECISE).sum(),
      **_shares(built, {'accuracy': 'built: accuracy, %', **_MAJORITY}),
    }

  title = 'Tasks by whether one prompt row with a linear head solves (W^T b) * (A w) = c v; means ± 95% over HMMs'
  return _table(title, by_epsilon(prompts), ['num_states', 'epsilon'], cells)


def by_epsilon(prompts: pd.DataFrame) -> pd.DataFrame:
  """A row for each task and epsilon up to which a transition counts as 0."""
  fields = ('3.5', 'constant_prompt', 'error', 'accuracy')
  at = lambda level: {'epsilon': float(level), **{field: prompts[field].str[level] for field in fields}}
  return pd.concat(prompts.assign(**at(level)) for level in prompts['3.5'].iat[0])


def proof_table(tasks: pd.DataFrame) -> Table:
  """Outcomes of the search for a proof that no prompt is right, by |H|."""
  outcomes = {'certified': 'no prompt is right', 'open': 'no such proof', 'undecided': 'undecided'}

  def cells(size: int, rows: pd.DataFrame) -> dict[str, Any]:
    counts = {heading: (rows['no_prompt'] == outcome).sum() for outcome, heading in outcomes.items()}
    return {'|H|': size, 'tasks': len(rows), **counts}

  title = 'Tasks by whether it is proven that no prompt of any length with a linear head is right on all test inputs'
  return _table(title, tasks, ['num_states'], cells)


def certificate_table(cases: pd.DataFrame) -> Table:
  """From KL to accuracy at each checkpoint, by |H|."""

  def cells(size: int, step: float, rows: pd.DataFrame) -> dict[str, Any]:
    kl, distance = (f'{by_unit(rows, field, HMM).mean():.2g}' for field in ('kl', 'total_variation'))
    hmms = rows['trial'].nunique()
    return {'|H|': size, 'HMMs': hmms, 'step': step, 'KL, nats': kl, 'TV': distance, **_shares(rows, BOUNDS)}

  title = 'A head fixed on the exact G, put to BERT: percent of test inputs, mean ± 95% interval over HMMs'
  return _table(title, cases, ['num_states', 'step'], cells)


def accuracy_tables(linearity: pd.DataFrame, prompts: pd.DataFrame, grid: pd.DataFrame) -> dict[str, Table]:
  """Accuracies of heads and prompts of prompt_vs_head by kind of task; none where its records lack one of the tasks."""
  # Two draws of a task differ in its majority class.
  fields = ['num_states', 'trial', 'task', 'majority_accuracy']
  if grid.empty or len(linearity.merge(grid[fields].drop_duplicates())) < len(linearity):
    return {}
  accuracies = grid.pivot(index=fields, columns=['model', 'method'], values='accuracy')
  accuracies.columns = accuracies.columns.map(' '.join)
  of_heads, of_prompts = (tasks.join(accuracies, on=fields) for tasks in (linearity, by_epsilon(prompts)))
  of_heads['score and labels'] = _in_words(of_heads, ['linear', 'separable'], CELLS)
  of_prompts['holds'] = _in_words(of_prompts, ['3.5', 'constant_prompt'], CONDITIONS)
  title = 'Test accuracy in percent of tasks of each kind, mean ± 95% interval over HMMs'
  cells = lambda kind, rows: {'score and labels': kind, **_counts(rows), **_shares(rows, {**HEADS, **_MAJORITY})}
  prompt_cells = lambda size, epsilon, kind, rows: (
    {'|H|': size, 'epsilon': epsilon, 'holds': kind, **_counts(rows), **_shares(rows, {**PROMPTS, **_MAJORITY})}
  )
  return {
    'accuracy': _table(title, of_heads, ['score and labels'], cells, 1),
    'prompt_accuracy': _table(title, of_prompts, ['num_states', 'epsilon', 'holds'], prompt_cells, 3),
  }


def _in_words(tasks: pd.DataFrame, fields: list[str], words: dict[tuple, str]) -> pd.Categorical:
  """The words for what the tasks have in two fields; missing where there are none."""
  kinds = tasks[fields].itertuples(index=False, name=None)
  return pd.Categorical([words.get(kind) for kind in kinds], list(words.values()))


def _counts(tasks: pd.DataFrame) -> dict[str, int]:
  return {'HMMs': tasks.groupby(HMM).ngroups, 'tasks': len(tasks)}


def _shares(tasks: pd.DataFrame, headings: dict[str, str]) -> dict[str, Interval]:
  return {heading: percent(tasks, field, HMM) for field, heading in headings.items()}


def _table(
  title: str, records: pd.DataFrame, keys: list[str], cells: Callable[..., dict[str, Any]], num_texts: int = 0
) -> Table:
  """A row of `cells(*values of the keys, records)` for each group of records."""
  text = lambda value: f'{value:g}' if isinstance(value, float) else str(value)
  rows = [{heading: text(cell) for heading, cell in cells(*of, rows).items()} for of, rows in records.groupby(keys)]
  return table(title, rows, num_texts)
