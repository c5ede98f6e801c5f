"""The tables of a grid of trials, only from records."""

import json
import pathlib
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from experiments.analysis.statistics import interval, percent, welch
from experiments.analysis.tables import (
  by_unit,
  contrasts,
  lead,
  means,
  paired,
  places,
  pooled,
  select,
  Table,
  table,
  tested_apart,
  varied,
)
from experiments.settings import lists
from experiments.settings.methods import MAIN, METHODS, MODEL_NAMES, NONE

_REFERENCE = json.loads((pathlib.Path(__file__).parent / 'figure_3_reference.json').read_text('utf-8'))
# Lines of each panel of the paper's Figure 3: kind of text and fit, and their name in the reference.
PAPER = {
  'left': {('vanilla', 'bert head'): 'head', ('vanilla', 'bert prompt'): 'prompt'},
  'right': {('memory', 'bert attention'): 'memory', ('vanilla', 'bert head'): 'vanilla'},
}
# Every fit, 'MODEL METHOD', in the order of columns.
FITS = {
  f'{model} {method}': f'{METHODS[method].label}, {name}' for model, name in MODEL_NAMES.items() for method in METHODS
}
CONTROLS = ('untrained', 'other_bert')
# Differences, paired by task, that are tested where both fits were run.
_PAIRS = (
  'bert prompt - bert head',
  'bert attention - bert head',
  'bert prompt_attention - bert attention',
  'bert attention - bert attention_blind',
  'bert prompt - bert head_whitened',
  'bert prompt - bert probe',
  'bert prompt - bert probe_converged',
  'bert shift - bert prompt',
  'bert prompt_refit - bert prompt',
  'exact oracle_prompt - exact head_whitened',
  'exact oracle_prompt - exact head_best',
  'exact oracle_refit - exact head_best',
  'bert attention - exact attention_constant',
  'bert prompt - exact oracle_prompt',
  'none table - bert prompt',
  'none table - bert probe',
  'none table - bert probe_converged',
  'bert probe - untrained probe',
  'bert probe_converged - untrained probe_converged',
  'own prompt - own head',
)
# Methods on text with a memory and on vanilla text of as many joint states; the first pair is the paper's.
_OF_TEXTS = (('attention', 'head'), ('attention', 'attention'), ('head', 'head'), ('prompt', 'prompt'))
# Fields that change the HMM that a trial draws from its key.
_OF_DRAWS = ('hmm.', 'memory.joint_')
HEADINGS = {
  'distribution': 'process',
  'memory_size': '|M|',
  'num_cells': 'N',
  'num_states': '|H|',
  'joint_states': '|M|^N |H|',
}
_DISTANCES = {'kl_at_mask': 'KL at [MASK]', 'excess_mlm_loss': 'excess MLM loss'}
_TESTED = 'Holm over the rows of a contrast; detectable: 80% power at level 0.05 / tests'


class Grid(NamedTuple):
  """The records of a grid with the columns that its tables and figures share.

  Attributes:
    records: with `fit`, 'MODEL METHOD', `text`, 'memory' or 'vanilla', `joint_states`, |M|^N |H|, and `place` in words;
      `line` and `panel` of figures.
    varied: the columns of settings in which they differ.
    rows: the columns that tell distributions, at values of `varied`, apart.
    unit: the column that numbers independent units. Tasks of a trial share an HMM and a pretrained model, so of several
      trials it is the trial; of one it is the task, and intervals speak of tasks given that HMM and that model.
    over: the word for units: a trial draws an HMM, or on a given process only a pretraining seed.
  """

  records: pd.DataFrame
  varied: list[str]
  rows: list[str]
  unit: list[str]
  over: str

  @property
  def tasks(self) -> list[str]:
    """The columns that name a task."""
    return [*self.rows, 'trial', 'task']

  def wide(self, field: str = 'accuracy') -> pd.DataFrame:
    """A field, a row for each task and a column for each fit; NaN without the field."""
    records = self.records.reindex(columns=[*self.tasks, 'fit', field])
    return records.pivot(index=self.tasks, columns='fit', values=field).astype(float)

  def fits(self, field: str, cell: Any = percent, suffix: str = '') -> pd.DataFrame:
    """The means of a field over units, a row for each distribution and a column for each fit that has it.

    Headings name the method above the model, and end with `suffix`.
    """
    cells = means(self.records, self.rows, field, self.unit, cell, ['fit'])
    cells = cells[[fit for fit in FITS if fit in cells]]
    return cells.rename(columns=lambda fit: heading(fit) + suffix)

  def at_end(self) -> 'Grid':
    """The grid without fits to a BERT before the last step at which it is read; its end has no step."""
    if 'step' not in self.records:
      return self
    # Steps are sorted, and the missing step of the end comes last.
    last = self.records.sort_values('step').drop_duplicates([*self.tasks, 'fit'], keep='last')
    return self._replace(records=last.sort_index())


def prepared(records: pd.DataFrame) -> Grid:
  """The records as tables and figures take them.

  The best head is fitted to the test texts, so that its accuracy here is that on validation texts.
  """
  names = varied(records)
  is_memory = records['memory_size'] > 0
  is_fitted = records['method'] == 'head_best'
  records = records.assign(
    accuracy=records['accuracy'].mask(is_fitted, records['validation_accuracy']),
    fit=records['model'] + ' ' + records['method'],
    text=np.where(is_memory, 'memory', 'vanilla'),
    joint_states=records['num_states'] * records['memory_size'] ** records['num_cells'],
    place=places(records),
  )
  # What figures draw together, unless they say otherwise.
  records['line'] = records['fit']
  records['panel'] = records['text'] if records['text'].nunique() > 1 else ''
  rows = [*names, 'num_states']
  if is_memory.any():
    rows = [*names, 'text', 'memory_size', 'num_cells', 'joint_states', 'num_states']
  trial = 'HMM'
  if 'distribution' in records:
    if records['distribution'].all():
      trial = 'pretraining seed'
      rows = list(dict.fromkeys(['distribution', *rows]))
    records['distribution'] = records['distribution'].map(lists.shown)
  if records['trial'].nunique() > 1:
    return Grid(records, names, rows, ['trial'], f'{trial}s')
  return Grid(records, names, rows, ['task'], f'tasks of one {trial}')


def tables(grid: Grid, paper_overlay: bool) -> dict[str, Table]:
  """The tables that have rows, by name."""
  is_main = grid.records['method'].isin(MAIN) & ~grid.records['model'].isin(CONTROLS)
  main = grid._replace(records=grid.records[is_main])
  other = grid._replace(records=grid.records[~is_main])
  differences = paired(100 * grid.wide(), _PAIRS).rename(index=_in_words, level='contrast')
  described = {
    'accuracy': (_accuracy(main), 'Test accuracy in percent, mean [95% interval]'),
    'contrasts': (
      tested_apart(contrasts(differences, grid.rows, grid.unit)),
      f'Differences in points, paired by task; {_TESTED}',
    ),
    'texts': (
      tested_apart(_texts(grid)),
      f'Memory text minus vanilla text of as many joint states on BERT, in points, Welch; {_TESTED}',
    ),
    'values': (
      _values(grid),
      f'Differences in points from the first value of a field, paired by task; {_TESTED}',
    ),
    'trends': (
      _trends(grid, differences),
      'Differences in points over the HMMs of all sizes, stratified by size, and their trend with the number of joint '
      'states: Spearman over HMMs, p of a permutation test; Holm over the rows of this table. Detectable: with 80% '
      'power at level 0.05 / rows',
    ),
    'beside_paper': (
      _beside_paper(grid) if paper_overlay else pd.DataFrame(),
      'Ours on BERT beside the digitised Figure 3',
    ),
    'lead': (_lead(grid), 'Lead over the best reader without a model in points, paired by task'),
    'head_sizes': (
      grid._replace(unit=['trial', 'task']).fits('head_size', lambda sizes: f'{np.median(sizes):.1g}'),
      'osc(b) / osc(mu) of linear heads; osc: largest minus least; median',
    ),
    'moved': (_moved(grid), 'Total variation in percent by which prompts move the prediction at the [MASK]'),
    'diagnostics': (
      _diagnostics(other),
      "Fits and models beyond the paper's protocol: test accuracy in percent, mean [95% interval]",
    ),
  }
  over = dict.fromkeys(described, grid.over) | {'head_sizes': 'tasks of all HMMs'}
  return {
    name: table(f'{title}; over {over[name]}', frame.rename_axis(index=HEADINGS))
    for name, (frame, title) in described.items()
    if len(frame)
  }


def heading(fit: str) -> str:
  """The heading of a column of one of FITS, its method above its model."""
  return '\n'.join(FITS[fit].rsplit(', ', 1))


def _in_words(pair: str) -> str:
  """A difference of fits in words, with their model once if it is the same."""
  first, second = pair.split(' - ')
  words, _, model = FITS[first].rpartition(', ')
  is_same = FITS[second].endswith(f', {model}')
  return f'{words if is_same else FITS[first]} - {FITS[second]}'


def _accuracy(grid: Grid) -> pd.DataFrame:
  """Accuracies beside units, near ties, the majority class, and the distance of each model from the exact G."""
  groups = grid.records.groupby(grid.rows, sort=False)
  near_ties = means(grid.records, grid.rows, 'near_tie_share', grid.unit, lambda shares: f'{100 * shares.mean():.1f}')
  majority = means(grid.records, grid.rows, 'majority_accuracy', grid.unit)
  parts = [
    groups[grid.unit].nunique().set_axis(['n'], axis=1),
    grid.fits('accuracy'),
    near_ties.rename('near\nties'),
    majority.rename('majority'),
  ]
  pretrained = grid.records[grid.records['model'] != 'exact']
  for field, heading in _DISTANCES.items():
    distances = means(pretrained, grid.rows, field, grid.unit, lambda nats: f'{nats.mean():.3f}', ['model'])
    parts.append(distances.set_axis([f'{heading}\n{MODEL_NAMES[model]}' for model in distances], axis=1))
  return pd.concat(parts, axis=1)


def _diagnostics(grid: Grid) -> pd.DataFrame:
  """Accuracies, also of converged heads behind a prompt that was trained for another task."""
  refits = grid._replace(records=select(grid.records, fit='bert prompt_refit'))
  return grid.fits('accuracy').join(refits.fits('other_task_accuracy', suffix=',\nanother task'))


def _texts(grid: Grid) -> pd.Series:
  """The intervals of text with a memory minus vanilla text of as many joint states, which share no HMM."""
  levels = [*grid.varied, 'num_cells', 'joint_states']
  on_bert = select(grid.records, model='bert')
  rows = ['text', 'method', *levels]
  values = 100 * by_unit(on_bert, rows, 'accuracy', grid.unit)
  groups = dict(iter(values.groupby(level=rows, sort=False)))
  found = {}
  for first, second in _OF_TEXTS:
    contrast = f'memory {METHODS[first].label} - vanilla {METHODS[second].label}'
    for (text, method, *point, cells, size), memory in groups.items():
      vanilla = groups.get(('vanilla', second, *point, 0, size))
      if (text, method) == ('memory', first) and vanilla is not None:
        found[contrast, *point, cells, size] = welch(memory, vanilla)
  index = pd.MultiIndex.from_tuples([*found], names=['contrast', *levels])
  return pd.Series([*found.values()], index, object)


def _values(grid: Grid) -> pd.DataFrame:
  """The differences of each fit from the first value of each field that varies, where they share a key.

  Seeds and given processes are no values to compare.
  """
  columns = [name for name in grid.varied if name not in ('seed', 'distribution')]
  return pd.concat([pd.DataFrame(), *(_from_first(grid, column) for column in columns)])


def _from_first(grid: Grid, column: str) -> pd.DataFrame:
  """The differences from the first value of a column, without those of fits that it does not decide.

  The unit of a field that changes the HMM is the trial.
  """
  first = grid.records[column].iloc[0]
  name = f'{column} = {lists.shown(first)}'
  records = grid.records.assign(contrast=grid.records['fit'].map(FITS) + f', minus {name}')
  accuracies = records.set_index(['contrast', *grid.tasks])['accuracy']
  # Both have an index of tasks: pandas finds the first value of each.
  differences = 100 * (accuracies - accuracies.xs(first, level=column)).dropna()
  differences = differences.drop(index=first, level=column)
  decided = differences.groupby(level='contrast').filter(lambda of: of.any())
  unit = grid.unit
  if column.startswith(_OF_DRAWS):
    unit = ['trial']
  return tested_apart(contrasts(decided, grid.rows, unit))


def _trends(grid: Grid, differences: pd.Series) -> pd.DataFrame:
  if grid.unit != ['trial']:
    return pd.DataFrame()
  by = [name for name in grid.rows if name == 'text' or name in grid.varied]
  strata = [name for name in grid.rows if name not in by]
  size = 'joint_states' if 'joint_states' in strata else 'num_states'
  return pooled(differences, by, strata, size, grid.unit)


def paper(panel: str, name: str, scale: str) -> pd.Series:
  """The mean accuracy in percent by size, as digitised from Figure 3.

  Sizes are |H| in the panel 'left' and |M||H| in the panel 'right'.
  """
  # `paper_v1` is compared with the first text's figure, every other scale with the later text's.
  shown = _REFERENCE[f'{panel}_{"arxiv_v1" if scale == "paper_v1" else "later_version"}']
  return pd.Series(shown[name]['mean'], shown['num_states' if panel == 'left' else 'memory_times_states'])


def _beside_paper(grid: Grid) -> pd.DataFrame:
  """A row for each point that both the paper and we have: ours, the paper's and the difference."""
  panel = 'right' if 'text' in grid.rows else 'left'
  scale = grid.records['scale'].iloc[0]
  ours = means(grid.records, ['text', 'fit', 'joint_states'], 'accuracy', grid.unit)
  lines = {line: paper(panel, name, scale) for line, name in PAPER[panel].items()}
  papers = pd.concat(lines, names=ours.index.names)
  beside = pd.DataFrame({'ours': ours, 'paper': papers}).dropna()
  differences = beside['ours'].map(lambda own: own.mean) - beside['paper']
  beside['difference'] = differences.map('{:+.1f}'.format)
  return beside.rename(index=FITS, level='fit')


def _lead(grid: Grid) -> pd.DataFrame:
  """The lead of each fit over the best reader without a model on the same task, a row for each distribution."""
  is_reader = grid.records['model'] == NONE
  leads = 100 * lead(grid.records[~is_reader], grid.records[is_reader], grid.tasks)
  return grid._replace(records=grid.records.assign(lead=leads)).fits('lead', interval)


def _moved(grid: Grid) -> pd.DataFrame:
  """Distances by which tuned, text and random prompts move each model, and by which any prefix moves the exact one."""
  kinds = {'tuned': 'tv_moved', 'text': 'tv_moved_by_text', 'random': 'tv_moved_by_random'}
  cells = pd.concat([grid.fits(field, suffix=f'\n{kind}') for kind, field in kinds.items()], axis=1)
  return cells.assign(any=means(grid.records, grid.rows, 'tv_movable', grid.unit))
