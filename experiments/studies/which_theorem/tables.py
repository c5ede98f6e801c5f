"""The tables of the facts about Figure 3 (left), from records alone."""

import pathlib

import pandas as pd

from experiments.analysis.statistics import percent, select
from experiments.analysis.tables import median_range, share, Table, table
from experiments.records import load
from experiments.studies.which_theorem.settings import WhichTheoremSettings

# The records of prompt_vs_head:evidence.
GRID = pathlib.Path(__file__).parents[3] / 'docs' / 'results' / 'small' / 'figure_3_left'
# The unit of every interval.
HMM = ['num_states', 'trial']
# osc(b) / osc(mu) up to which a head is called moderate.
MODERATE = 1e3
# The largest float64 error of a solution that counts as precise; weights are at most 1.
PRECISE = 1e-6
# A task's (linear score, separable labels).
CELLS = {
  (True, True): 'linear, separable',
  (False, True): 'not linear, separable',
  (False, False): 'not linear, not separable',
  (True, False): 'linear, not separable',
}
# A task's (Assumption 3.5, outcome for the condition of docs/findings/theory.md).
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
  'exact head_converged': 'raw converged head, exact G',
  'exact head': 'head, exact G',
  'bert head_converged': 'raw converged head, BERT',
  'bert head': 'head, BERT',
  'bert prompt': 'prompt, BERT',
}
PROMPTS = {
  'exact oracle_prompt': 'oracle prompt, exact G',
  'exact prompt': 'prompt, exact G',
  'bert prompt': 'prompt, BERT',
}
_MAJORITY = {'majority_accuracy': 'majority class, %'}


def tables(records: pd.DataFrame, settings: WhichTheoremSettings) -> dict[str, Table]:
  """All tables; those of accuracies only if the grid's records in docs/results have these tasks."""
  linearity, prompts = (select(records, part=part) for part in ('linearity', 'prompts'))
  return {
    'cells': cell_table(linearity, 'separable', 'all test inputs'),
    'clear_cells': cell_table(linearity, 'clear_separable', 'test inputs without near ties'),
    'distances': distance_table(linearity),
    'prompts': prompt_table(prompts),
    **accuracy_tables(linearity, prompts, load(GRID)),
  }


def cell_table(tasks: pd.DataFrame, field: str, inputs: str) -> Table:
  """Counts of tasks by linear score and separable labels, by |H|."""
  counts = pd.get_dummies(_kinds(tasks, ['linear', field], CELLS))
  counts['open'] = ~counts.any(axis=1)
  shares = {field: 'separable, % of decided', 'near_tie_share': 'near ties, %', **_MAJORITY}
  title = f'Tasks by whether the score is exactly linear in G, and labels are separable: {inputs}'
  return _table(title, tasks.join(counts), ['num_states', 'HMMs', 'tasks'], list(counts), shares)


def distance_table(tasks: pd.DataFrame) -> Table:
  """Distances from Assumptions 3.1 and 3.5, and from linearity; a column for each |H|."""
  columns = {f'H = {size}': _distances(of_size) for size, of_size in tasks.groupby('num_states')}
  title = 'Distance from the assumptions: counts and means [95% intervals over HMMs, percent], medians (ranges)'
  return Table(title, pd.DataFrame(columns).rename_axis('').reset_index(), 1)


def _distances(tasks: pd.DataFrame) -> dict[str, str]:
  hmms = tasks.drop_duplicates('trial')
  counts = {
    f'3.5, epsilon {float(level):g}, rank {rank}': tasks['3.5'].str[level].str[rank]
    for level, ranks in tasks['3.5'].iat[0].items()
    for rank in ranks
  }
  counts['3.5, search cut off'] = ~pd.DataFrame(list(tasks['exhaustive'])).all(axis=1)
  counts[f'linear by a head of at most {MODERATE:g} mu'] = tasks['head_size'] <= MODERATE
  return {
    'least singular value of W': median_range(hmms['smallest_singular_value']),
    'dimension of S': ', '.join(f'{size:g}' for size in sorted(set(tasks['reached_dimension']))),
    **{f'3.1, rank {rank}: HMMs': share(hmms['3.1'].str[rank]) for rank in hmms['3.1'].iat[0]},
    **{f'{name}: tasks': f'{holds.sum()}/{len(holds)}' for name, holds in counts.items()},
    'osc(b) / osc(mu) of the least exact head': median_range(tasks['head_size'].dropna()),
    'least-squares residual on G, % of SD': str(percent(tasks, 'unexplained', HMM)),
  }


def prompt_table(prompts: pd.DataFrame) -> Table:
  """Assumption 3.5, the condition, and the accuracy of what was built, by |H| and epsilon."""
  tasks, precise = by_epsilon(prompts), f'yes to {PRECISE:g}'
  for outcome in ('yes', 'no', 'undecided'):
    tasks[outcome] = tasks['constant_prompt'] == outcome
  tasks[precise] = tasks['error'] <= PRECISE
  # Beside what was built stands the majority class of the same tasks.
  tasks['majority_accuracy'] = tasks['majority_accuracy'].where(tasks['accuracy'].notna())
  counts, shares = ['3.5', 'yes', 'no', 'undecided', precise], {'accuracy': 'built: accuracy, %', **_MAJORITY}
  title = 'Tasks by whether one prompt row with a linear head solves (W^T b) * (A w) = s v; mean [95% interval]'
  return _table(title, tasks, ['num_states', 'HMMs', 'tasks', 'epsilon'], counts, shares)


def by_epsilon(prompts: pd.DataFrame) -> pd.DataFrame:
  """A row for each task and epsilon up to which a transition counts as 0."""
  fields = ('3.5', 'constant_prompt', 'error', 'accuracy')
  at = lambda level: {'epsilon': float(level), **{field: prompts[field].str[level] for field in fields}}
  return pd.concat([prompts.assign(**at(level)) for level in prompts['3.5'].iat[0]], ignore_index=True)


def accuracy_tables(linearity: pd.DataFrame, prompts: pd.DataFrame, grid: pd.DataFrame) -> dict[str, Table]:
  """Accuracies of heads and prompts of prompt_vs_head by kind of task; none where it has none of the tasks."""
  if grid.empty:
    return {}
  # Two draws of a task differ in its majority class.
  fields = ['num_states', 'trial', 'task', 'majority_accuracy']
  accuracies = grid.pivot(index=fields, columns=['model', 'method'], values='accuracy')
  accuracies.columns = accuracies.columns.map(' '.join)
  of_heads, of_prompts = (tasks.join(accuracies, fields, 'inner') for tasks in (linearity, by_epsilon(prompts)))
  if of_heads.empty:
    return {}
  of_heads['score and labels'] = _kinds(of_heads, ['linear', 'separable'], CELLS)
  of_prompts['holds'] = _kinds(of_prompts, ['3.5', 'constant_prompt'], CONDITIONS)
  title = 'Test accuracy in percent of tasks of each kind, mean [95% interval over HMMs]'
  first, of_epsilon = ['score and labels', 'HMMs', 'tasks'], ['num_states', 'epsilon', 'holds', 'HMMs', 'tasks']
  return {
    'accuracy': _table(title, of_heads, first, [], {**HEADS, **_MAJORITY}, 1),
    'prompt_accuracy': _table(title, of_prompts, of_epsilon, [], {**PROMPTS, **_MAJORITY}, 3),
  }


def _kinds(tasks: pd.DataFrame, fields: list[str], words: dict[tuple, str]) -> pd.Series:
  """The words for the tasks' values of some fields; missing where there are none."""
  kinds = tasks[fields].itertuples(index=False, name=None)
  return pd.Series(pd.Categorical([words.get(kind) for kind in kinds], list(words.values())), tasks.index)


def _table(
  title: str, tasks: pd.DataFrame, first: list[str], counts: list[str], shares: dict[str, str], num_texts: int = 0
) -> Table:
  """A row for each group of tasks.

  Args:
    title: of the table.
    tasks: records.
    first: leading columns: fields that make the groups, and `HMMs` and `tasks`, their numbers in a group.
    counts: fields that are true or false, of which the true ones are counted.
    shares: headings of fields whose mean over HMMs stands in percent with its interval.
    num_texts: leading columns that hold words.
  """
  keys, rows = [name for name in first if name in tasks], []
  for values, group in tasks.groupby(keys):
    numbers = {'HMMs': group.groupby(HMM).ngroups, 'tasks': len(group), **group[counts].sum()}
    percents = {heading: percent(group, field, HMM) for field, heading in shares.items()}
    rows.append({**dict(zip(keys, values)), **numbers, **percents})
  text = lambda cell: f'{cell:g}' if isinstance(cell, float) else str(cell)
  frame = pd.DataFrame(rows)[[*first, *counts, *shares.values()]].map(text).rename(columns={'num_states': '|H|'})
  return table(title, frame, num_texts)
