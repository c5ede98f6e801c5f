"""The tables of the facts about Figure 3 (left), from records alone."""

from collections.abc import Sequence
import pathlib

import pandas as pd

from experiments.analysis.statistics import by_unit, percent, select
from experiments.analysis.tables import median_range, share, Table, table
from experiments.records import frames
from experiments.studies.which_theorem.settings import LevelSettings, WhichTheoremSettings

# The records of prompt_vs_head:evidence.
GRID = pathlib.Path(__file__).parents[3] / 'docs' / 'results' / 'small' / 'figure_3_left'
# The unit of every interval.
HMM = ('num_states', 'trial')
# osc(b) / osc(mu) up to which a head is called moderate.
MODERATE = 1e3
# The error of a solution, of weights of at most 1, up to which float64 has it.
PRECISE = 1e-6
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
    'prompts': prompt_table(by_epsilon(prompts)),
    'proofs': proof_table(prompts),
    'certificate': certificate_table(kl),
    **accuracy_tables(linearity, prompts, frames.load(GRID)),
  }


def by_epsilon(prompts: pd.DataFrame) -> pd.DataFrame:
  """A row for each task and epsilon up to which a transition counts as 0."""
  fields = ('3.5', 'constant_prompt', 'error', 'accuracy')
  at = lambda level: {'epsilon': float(level), **{field: prompts[field].str[level] for field in fields}}
  return pd.concat(prompts.assign(**at(level)) for level in prompts['3.5'].iloc[0])


def cell_table(tasks: pd.DataFrame, field: str, inputs: str) -> Table:
  """Whether the score is linear, by whether labels are separable, by |H|."""
  rows = []
  for size, of_size in tasks.groupby('num_states'):
    kinds = _in_words(of_size, ('linear', field), CELLS)
    rows.append(
      {
        '|H|': f'{size}',
        'HMMs': f'{of_size["trial"].nunique()}',
        'tasks': f'{len(of_size)}',
        **{kind: f'{(kinds == kind).sum()}' for kind in CELLS.values()},
        'open': f'{kinds.isna().sum()}',
        'separable, % of decided': str(percent(of_size, field, HMM)),
        'near ties, %': str(percent(of_size, 'near_tie_share', HMM)),
        'majority class, %': str(percent(of_size, 'majority_accuracy', HMM)),
      }
    )
  return table(f'Tasks by whether the score is exactly linear in G, and labels are separable: {inputs}', rows)


def distance_table(tasks: pd.DataFrame, levels: LevelSettings) -> Table:
  """How far Assumptions 3.1 and 3.5 are, and linearity; a column for each |H|."""
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
  rows = []
  for (size, epsilon), tasks in prompts.groupby(['num_states', 'epsilon']):
    built = tasks.dropna(subset='accuracy')
    rows.append(
      {
        '|H|': f'{size}',
        'HMMs': f'{tasks["trial"].nunique()}',
        'tasks': f'{len(tasks)}',
        'epsilon': f'{epsilon:g}',
        '3.5': f'{tasks["3.5"].sum()}',
        **{outcome: f'{(tasks["constant_prompt"] == outcome).sum()}' for outcome in ('yes', 'no', 'undecided')},
        f'yes to {PRECISE:g}': f'{(built["error"] <= PRECISE).sum()}',
        'built: accuracy, %': str(percent(built, 'accuracy', HMM)),
        'majority class, %': str(percent(built, 'majority_accuracy', HMM)),
      }
    )
  return table('Tasks by whether one prompt row with a linear head solves (W^T b) * (A w) = c v; means ± 95%', rows)


def proof_table(tasks: pd.DataFrame) -> Table:
  """Outcomes of the search for a proof that no prompt is right, by |H|."""
  outcomes = {'certified': 'no prompt is right', 'open': 'no such proof', 'undecided': 'undecided'}
  counts = pd.crosstab(tasks['num_states'], tasks['no_prompt']).reindex(columns=outcomes, fill_value=0)
  frame = counts.rename(columns=outcomes).rename_axis(index='|H|', columns=None)
  frame.insert(0, 'tasks', frame.sum(axis=1))
  title = 'Tasks by whether it is proven that no prompt of any length with a linear head is right on all test inputs'
  return Table(title, frame.reset_index().astype(str))


def certificate_table(cases: pd.DataFrame) -> Table:
  """From KL to accuracy at each checkpoint, by |H|."""
  rows = [
    {
      '|H|': f'{size}',
      'HMMs': f'{tasks["trial"].nunique()}',
      'step': f'{step:g}',
      'KL, nats': f'{by_unit(tasks, "kl", HMM).mean():.2g}',
      'TV': f'{by_unit(tasks, "total_variation", HMM).mean():.2g}',
      **{label: str(percent(tasks, field, HMM)) for field, label in BOUNDS.items()},
    }
    for (size, step), tasks in cases.groupby(['num_states', 'step'])
  ]
  return table('A head fixed on the exact G, put to BERT: percent of test inputs, mean ± 95% interval over HMMs', rows)


def accuracy_tables(linearity: pd.DataFrame, prompts: pd.DataFrame, grid: pd.DataFrame) -> dict[str, Table]:
  """Accuracies of heads and prompts of prompt_vs_head by kind of task; none where its records lack one of the tasks."""
  # Two draws of a task differ in its majority class.
  fields = ['num_states', 'trial', 'task', 'majority_accuracy']
  if grid.empty or len(linearity.merge(grid[fields].drop_duplicates())) < len(linearity):
    return {}
  accuracies = grid.pivot(index=fields, columns=['model', 'method'], values='accuracy')
  accuracies.columns = accuracies.columns.map(' '.join)
  linearity = linearity.assign(kind=_in_words(linearity, ('linear', 'separable'), CELLS))
  prompts = by_epsilon(prompts)
  prompts['kind'] = _in_words(prompts, ('3.5', 'constant_prompt'), CONDITIONS)
  heads = {
    'exact head_converged': 'converged head, exact G',
    'exact head': 'head, exact G',
    'bert head_converged': 'converged head, BERT',
    'bert head': 'head, BERT',
    'bert prompt': 'prompt, BERT',
  }
  starts = {
    'exact oracle_prompt': 'oracle prompt, exact G',
    'exact prompt': 'prompt, exact G',
    'bert prompt': 'prompt, BERT',
  }
  keys = {'num_states': '|H|', 'epsilon': 'epsilon', 'kind': 'holds'}
  return {
    'accuracy': _accuracy_table(linearity.join(accuracies, on=fields), {'kind': 'score and labels'}, heads),
    'prompt_accuracy': _accuracy_table(prompts.join(accuracies, on=fields), keys, starts),
  }


def _accuracy_table(tasks: pd.DataFrame, keys: dict[str, str], methods: dict[str, str]) -> Table:
  rows = [
    {
      **{heading: key if isinstance(key, str) else f'{key:g}' for heading, key in zip(keys.values(), kind)},
      'HMMs': f'{of_kind.groupby(list(HMM)).ngroups}',
      'tasks': f'{len(of_kind)}',
      **{label: str(percent(of_kind, method, HMM)) for method, label in methods.items()},
      'majority class': str(percent(of_kind, 'majority_accuracy', HMM)),
    }
    for kind, of_kind in tasks.groupby(list(keys))
  ]
  return table('Test accuracy in percent of tasks of each kind, mean ± 95% interval over HMMs', rows, len(keys))


def _in_words(tasks: pd.DataFrame, fields: Sequence[str], words: dict[tuple, str]) -> pd.Categorical:
  """The words for what the tasks have in two fields; missing where there are none."""
  kinds = zip(*(tasks[field] for field in fields))
  return pd.Categorical([words.get(kind) for kind in kinds], categories=list(words.values()))
