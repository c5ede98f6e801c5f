"""The tables and the figure of the facts about Figure 3 (left), only from records."""

from collections.abc import Sequence
import pathlib

import matplotlib
import matplotlib.figure
import pandas as pd

from experiments.analysis import figures as figures_lib
from experiments.analysis.statistics import percent
from experiments.analysis.table import median_range, share, Table, table
from experiments.records import load
from experiments.studies.which_theorem.settings import WhichTheoremSettings

# The records of prompt_vs_head:evidence.
GRID = pathlib.Path(__file__).parents[3] / 'docs' / 'results' / 'small' / 'figure_3_left'
# The unit of every interval.
_HMM = ['num_states', 'trial']
# osc(b) / osc(mu) up to which a head is called moderate.
_MODERATE = 1e3
# A task's (linear score, separable labels).
_CELLS = {
  (True, True): 'linear, separable',
  (False, True): 'not linear, separable',
  (False, False): 'not linear, not separable',
  (True, False): 'linear, not separable',
}
# Methods of prompt_vs_head by model, whose accuracies stand beside these facts.
_METHODS = {
  'exact head_converged': 'raw converged head, exact G',
  'exact head': 'head, exact G',
  'bert head_converged': 'raw converged head, BERT',
  'bert head': 'head, BERT',
  'bert prompt': 'prompt, BERT',
}
_MAJORITY = {'majority_accuracy': 'majority class, %'}


def tables(records: pd.DataFrame, settings: WhichTheoremSettings) -> dict[str, Table]:
  """All tables; that of accuracies only if the grid's records in docs/results have these tasks."""
  return {
    'cells': _cell_table(records, 'separable', 'all test inputs'),
    'clear_cells': _cell_table(records, 'clear_separable', 'test inputs without near ties'),
    'distances': _distance_table(records),
    **accuracy_table(records, load(GRID)),
  }


def _cell_table(tasks: pd.DataFrame, field: str, inputs: str) -> Table:
  """Counts of tasks by linear score and separable labels, by |H|."""
  counts = pd.get_dummies(_kinds(tasks, field))
  counts['open'] = ~counts.any(axis=1)
  shares = {field: 'separable, % of decided', 'near_tie_share': 'near ties, %', **_MAJORITY}
  title = f'Tasks by whether the score is exactly linear in G, and labels are separable: {inputs}'
  return _table(title, tasks.join(counts), 'num_states', shares, list(counts))


def _distance_table(tasks: pd.DataFrame) -> Table:
  """Distances from Assumptions 3.1 and 3.5, and from linearity; a column for each |H|."""
  columns = {f'H = {size}': _distances(of_size) for size, of_size in tasks.groupby('num_states')}
  title = 'Distance from the assumptions: counts and means [95% intervals over HMMs, percent], medians (ranges)'
  return Table(title, pd.DataFrame(columns).rename_axis('').reset_index(), 1)


def _distances(tasks: pd.DataFrame) -> dict[str, str]:
  """The cells of one |H| in the table of distances, by the names of their rows."""
  hmms = tasks.drop_duplicates('trial')
  counts = {
    f'3.5, epsilon {float(level):g}, rank {rank}': tasks['3.5'].str[level].str[rank]
    for level, ranks in tasks['3.5'].iat[0].items()
    for rank in ranks
  }
  counts['3.5, search cut off'] = ~pd.DataFrame(list(tasks['exhaustive'])).all(axis=1)
  counts[f'linear by a head of at most {_MODERATE:g} mu'] = tasks['head_size'] <= _MODERATE
  return {
    'least singular value of W': median_range(hmms['smallest_singular_value']),
    'dimension of S': ', '.join(f'{size:g}' for size in sorted(set(tasks['reached_dimension']))),
    **{f'3.1, rank {rank}: HMMs': share(hmms['3.1'].str[rank]) for rank in hmms['3.1'].iat[0]},
    **{f'{name}: tasks': f'{holds.sum()}/{len(holds)}' for name, holds in counts.items()},
    'osc(b) / osc(mu) of the least exact head': median_range(tasks['head_size'].dropna()),
    'least-squares residual on G, % of SD': str(percent(tasks, 'unexplained', _HMM)),
  }


def accuracy_table(tasks: pd.DataFrame, grid: pd.DataFrame) -> dict[str, Table]:
  """Accuracies of methods of prompt_vs_head by kind of task; none if it has none of the tasks."""
  if grid.empty:
    return {}
  # Two draws of a task differ in its majority class.
  fields = ['num_states', 'trial', 'task', 'majority_accuracy']
  accuracies = grid.pivot(index=fields, columns=['model', 'method'], values='accuracy')
  accuracies.columns = accuracies.columns.map(' '.join)
  scored = tasks.join(accuracies, fields, 'inner')
  if scored.empty:
    return {}
  scored['score and labels'] = _kinds(scored, 'separable')
  title = 'Test accuracy in percent of tasks of each kind, mean [95% interval over HMMs]'
  return {'accuracy': _table(title, scored, 'score and labels', {**_METHODS, **_MAJORITY}, num_texts=1)}


def _kinds(tasks: pd.DataFrame, field: str) -> pd.Series:
  """The words for tasks by linear score and labels separable by `field`; missing if that is open."""
  kinds = tasks[['linear', field]].itertuples(index=False, name=None)
  return pd.Series(pd.Categorical([_CELLS.get(kind) for kind in kinds], list(_CELLS.values())), tasks.index)


def _table(
  title: str, tasks: pd.DataFrame, by: str, shares: dict[str, str], counts: Sequence[str] = (), num_texts: int = 0
) -> Table:
  """A row for each group of tasks.

  Args:
    title: of the table.
    tasks: records.
    by: the field that makes the groups.
    shares: headings of fields whose mean over HMMs stands in percent with its interval.
    counts: fields that are true or false, of which the true ones are counted.
    num_texts: leading columns that hold words.
  """
  rows = []
  for value, group in tasks.groupby(by):
    numbers = {'HMMs': group.groupby(_HMM).ngroups, 'tasks': len(group), **group[[*counts]].sum()}
    percents = {heading: str(percent(group, field, _HMM)) for field, heading in shares.items()}
    rows.append({by: value} | numbers | percents)
  return table(title, pd.DataFrame(rows).astype(str).rename(columns={'num_states': '|H|'}), num_texts)


@figures_lib.styled
def figures(records: pd.DataFrame, settings: WhichTheoremSettings) -> dict[str, matplotlib.figure.Figure]:
  """The share of tasks of which each fact holds against |H|."""
  support, rank = (str(min(levels)) for levels in (settings.levels.support_levels, settings.levels.rank_levels))
  tasks = records.assign(is_moderate=records['head_size'] <= _MODERATE, relaxed=records['3.5'].str[support].str[rank])
  figure, (axes,) = figures_lib.panels(settings.figure)
  facts = {
    'linear': 'score exactly linear in G',
    'is_moderate': f'... by a head of at most {_MODERATE:g} mu',
    'separable': 'labels separable, of decided tasks',
    'clear_separable': 'labels separable but for near ties',
    'relaxed': 'Assumption 3.5, exact supports',
  }
  for number, ((field, label), style) in enumerate(zip(facts.items(), matplotlib.rcParams['axes.prop_cycle']())):
    samples = {float(size): percent(rows, field, _HMM).values for size, rows in tasks.groupby('num_states')}
    figures_lib.draw_line(axes, samples, label, style, 3 * (number - 2))
  axes.set_xticks(tasks['num_states'].unique())
  axes.set(xlabel='number of hidden states |H|', ylabel='share of tasks (%)')
  figures_lib.trim_percent_ticks(axes.yaxis)
  counts = tasks.groupby('num_states')['trial'].nunique()
  figures_lib.finish(figure, tasks, 'Tasks of which each fact holds', figures_lib.counted(counts, 'HMMs'))
  return {'which_theorem': figure}
