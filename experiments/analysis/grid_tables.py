"""The tables of a grid of trials, only from records."""

from collections.abc import Iterable
import json
import pathlib
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from experiments.analysis.statistics import Interval, interval, percent, welch
from experiments.analysis.tables import (
  by_unit,
  contrasts,
  lead,
  means,
  paired,
  pooled,
  Row,
  select,
  Table,
  table,
  tested,
  varied,
)
from experiments.settings import lists
from experiments.settings.grid import Point
from experiments.settings.methods import MAIN, METHODS, MODEL_NAMES, NONE

REFERENCE = json.loads((pathlib.Path(__file__).parent / 'figure_3_reference.json').read_text('utf-8'))
# Lines of each panel of the paper's Figure 3: kind of text and fit, and their name in the reference.
PAPER = {
  'left': {('vanilla', 'bert head'): 'head', ('vanilla', 'bert prompt'): 'prompt'},
  'right': {('memory', 'bert attention'): 'memory', ('vanilla', 'bert head'): 'vanilla'},
}
# Every fit, 'MODEL METHOD', in the order of columns.
FITS = {
  f'{model} {method}': f'{METHODS[method].label}, {name}' for model, name in MODEL_NAMES.items() for method in METHODS
}
_CONTROLS = ('untrained', 'other_bert')
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
_TESTED = 'p of t tests, Holm over the rows of a contrast. Detectable: with 80% power at level 0.05 / tests'
_TITLES = {
  'accuracy': 'Test accuracy in percent, mean [95% interval]',
  'contrasts': f'Differences in points, paired by task; {_TESTED}',
  'texts': f'Memory text minus vanilla text of as many joint states on BERT in points, by Welch; {_TESTED}',
  'values': f'Differences in points from the first value of a field, paired by task; {_TESTED}',
  'trends': (
    'Differences in points over the HMMs of all sizes, stratified by size, and their trend with the number of joint '
    'states: Spearman over HMMs, p of a permutation test; Holm over the rows of this table. Detectable: with 80% power '
    'at level 0.05 / rows'
  ),
  'beside_paper': 'Ours on BERT beside the digitised Figure 3. Apart: by more than both half-widths, added in squares',
  'lead': 'Lead over the best reader without a model in points, paired by task',
  'head_sizes': 'osc(b) / osc(mu) of linear heads, median over tasks; osc is the largest minus the smallest entry',
  'moved': 'Total variation in percent by which prompts move the prediction at the [MASK]; any: by any prompt at most',
  'diagnostics': "Fits and models beyond the paper's protocol: test accuracy in percent, mean [95% interval]",
}


class Grid(NamedTuple):
  """The records of a grid with the columns that its tables and figures share.

  Attributes:
    records: with `fit`, 'MODEL METHOD', `text`, 'memory' or 'vanilla', `joint_states`, |M|^N |H|, and `size` in words.
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

  @property
  def wide(self) -> pd.DataFrame:
    """Accuracies in percent, a row for each task and a column for each fit."""
    return 100 * self.records.pivot(index=self.tasks, columns='fit', values='accuracy').astype(float)

  def fits(self, field: str, cell: Any = percent) -> pd.DataFrame:
    """The means of a field over units, a row for each distribution and a column for each fit that has it."""
    if field not in self.records or self.records[field].isna().all():
      return pd.DataFrame()
    cells = means(self.records, self.rows, field, self.unit, cell, ['fit'])
    return cells[[fit for fit in FITS if fit in cells]]


def prepared(records: pd.DataFrame) -> Grid:
  """The records as tables and figures take them.

  The best head is fitted to the test texts, so that its accuracy here is that on validation texts.
  """
  is_memory, names = records['memory_size'] > 0, varied(records)
  records = records.assign(
    accuracy=records['accuracy'].where(records['method'] != 'head_best', records['validation_accuracy']),
    fit=records['model'] + ' ' + records['method'],
    text=np.where(is_memory, 'memory', 'vanilla'),
    joint_states=records['num_states'] * records['memory_size'] ** records['num_cells'],
    size=[str(Point(*point)) for point in zip(*(records[name] for name in Point._fields))],
  )
  is_given = False
  if 'distribution' in records:
    is_given = records['distribution'].astype(bool).all()
    records = records.assign(distribution=records['distribution'].map(lists.shown))
  process = ['distribution'] if is_given and 'distribution' not in names else []
  memory = ['text', 'memory_size', 'num_cells', 'joint_states'] if is_memory.any() else []
  rows = [*process, *names, *memory, 'num_states']
  trial = 'pretraining seed' if is_given else 'HMM'
  if records['trial'].nunique() > 1:
    return Grid(records, names, rows, ['trial'], f'{trial}s')
  return Grid(records, names, rows, ['task'], f'tasks of one {trial}')


def at_end(records: pd.DataFrame) -> pd.DataFrame:
  """The records without those of a BERT before the last step at which it is read; its end has no step."""
  if 'step' not in records:
    return records
  fits = [name for name in (*varied(records), *Point._fields, 'trial', 'task', 'model', 'method') if name in records]
  step = records['step'].astype(float).fillna(np.inf)
  return records[step == step.groupby([records[name] for name in fits]).transform('max')]


def tables(grid: Grid, paper_overlay: bool) -> dict[str, Table]:
  """The tables that have rows, by name."""
  is_main = grid.records['method'].isin(MAIN) & ~grid.records['model'].isin(_CONTROLS)
  main, other = (grid._replace(records=grid.records[chosen]) for chosen in (is_main, ~is_main))
  differences = paired(grid.wide, _names(pair.split(' - ') for pair in _PAIRS))
  frames = {
    'accuracy': _accuracy(main),
    'contrasts': contrasts(differences, grid.rows, grid.unit),
    'texts': _texts(grid),
    'values': _values(grid),
    'trends': _trends(grid, differences),
    'beside_paper': _beside_paper(grid) if paper_overlay else pd.DataFrame(),
    'lead': _lead(grid),
    'head_sizes': grid.fits('head_size', lambda sizes: f'{np.median(sizes):.1g}'),
    'moved': _moved(grid),
    'diagnostics': _joined(other.fits('accuracy'), _of_other_tasks(other)),
  }
  made = dict[str, Table]()
  for name, frame in frames.items():
    if frame.shape[1]:
      made[name] = table(f'{_TITLES[name]}; over {grid.over}', _with_headings(frame))
  return made


def _with_headings(frame: pd.DataFrame) -> pd.DataFrame:
  """The frame with headings for names of columns; 'MODEL METHOD' has the two below each other."""
  frame = frame.rename_axis(index=HEADINGS)
  return frame.rename(columns={fit: '\n'.join(name.rsplit(', ', 1)) for fit, name in FITS.items()})


def _joined(*frames: pd.DataFrame) -> pd.DataFrame:
  """Frames side by side, without empty ones, whose index has no names."""
  parts = [frame for frame in frames if len(frame)]
  return pd.concat(parts, axis=1) if parts else pd.DataFrame()


def _accuracy(grid: Grid) -> pd.DataFrame:
  """Beside accuracies units, near ties, the majority class, and the distance of each model from the exact G."""
  if grid.records.empty:
    return pd.DataFrame()
  groups = grid.records.groupby(grid.rows, sort=False)
  counts = groups[grid.unit].nunique().set_axis(['n'], axis=1)
  cells = (100 * groups['near_tie_share'].mean()).map('{:.1f}'.format).to_frame('near\nties')
  cells['majority'] = means(grid.records, grid.rows, 'majority_accuracy', grid.unit)
  for field, heading in (('kl_at_mask', 'KL at [MASK]'), ('excess_mlm_loss', 'excess MLM loss')):
    measured = grid.records[grid.records['model'] != 'exact'].dropna(subset=field)
    for model, records in measured.groupby('model', sort=False):
      distances = records.groupby(grid.rows, sort=False)[field].mean().astype(float)
      cells[f'{heading}\n{MODEL_NAMES[model]}'] = distances.map('{:.3f}'.format)
  return _joined(counts, grid.fits('accuracy'), cells)


def _of_other_tasks(grid: Grid) -> pd.DataFrame:
  """The accuracy of a converged head behind a prompt that was trained for another task."""
  refits = select(grid.records, fit='bert prompt_refit')
  if refits.empty:
    return pd.DataFrame()
  cells = means(refits, grid.rows, 'other_task_accuracy', grid.unit)
  return cells.to_frame('converged head behind\nprompt of another task')


def _names(pairs: Iterable[Any]) -> dict[str, tuple[str, str]]:
  """Pairs of fits by the name of their difference, which says their models."""
  named = dict[str, tuple[str, str]]()
  for first, second in pairs:
    label, _, model = FITS[first].rpartition(', ')
    is_one = FITS[second].endswith(f', {model}')
    named[f'{label if is_one else FITS[first]} - {FITS[second]}'] = first, second
  return named


def _texts(grid: Grid) -> pd.DataFrame:
  """Differences of text with a memory from vanilla text of as many joint states, which share no HMM."""
  if 'text' not in grid.rows or grid.varied:
    return pd.DataFrame()
  places = ['text', 'method', 'joint_states', 'num_cells']
  on_bert = by_unit(select(grid.records, model='bert'), places, 'accuracy', grid.unit)
  units = {place: 100 * values.to_numpy() for place, values in on_bert.groupby(level=places, sort=False)}
  found = dict[Any, Interval]()
  for first, second in _OF_TEXTS:
    name = f'memory {METHODS[first].label} - vanilla {METHODS[second].label}'
    for (text, method, size, cells), values in units.items():
      vanilla = units.get(('vanilla', second, size, 0))
      if (text, method) == ('memory', first) and vanilla is not None:
        found[name, cells, size] = welch(values, vanilla)
  if not found:
    return pd.DataFrame()
  return tested(pd.Series(found).rename_axis(['contrast', 'num_cells', 'joint_states']), ['contrast'])


def _values(grid: Grid) -> pd.DataFrame:
  """Differences of each fit from the first value of each varied field, which trials of one number share a key at.

  The unit of a field that changes the HMM is the trial. Seeds and given processes are no values to compare.
  """
  parts = [_from_first(grid, name) for name in grid.varied if name not in ('seed', 'distribution')]
  return pd.concat([pd.DataFrame(), *parts])


def _from_first(grid: Grid, column: str) -> pd.DataFrame:
  """The differences from the first value of a column, without those of fits that it does not decide."""
  wide = grid.wide
  first = wide.index.get_level_values(column)[0]
  reference = wide.xs(first, level=column)
  others = wide.drop(index=first, level=column)
  places = others.index.droplevel(column)
  differences = others - reference.reindex(places).set_axis(others.index)
  differences = differences.loc[:, (differences.fillna(0) != 0).any()]
  names = {fit: f'{FITS[fit]}, minus {column} = {lists.shown(first)}' for fit in differences}
  long = differences.rename(columns=names).rename_axis(columns='contrast').stack()
  return contrasts(long, grid.rows, ['trial'] if column.startswith(_OF_DRAWS) else grid.unit)


def _trends(grid: Grid, differences: pd.Series) -> pd.DataFrame:
  if grid.unit != ['trial']:
    return pd.DataFrame()
  size = 'joint_states' if 'joint_states' in grid.rows else 'num_states'
  by = [name for name in grid.rows if name == 'text' or name in grid.varied]
  return pooled(differences, by, [name for name in grid.rows if name not in by], size, grid.unit)


def paper(panel: str, name: str, scale: str, statistic: str = 'mean') -> dict[int, float]:
  """The 'mean' accuracy in percent by size, or half-widths 'ci95' of its 95% interval, as digitised from Figure 3.

  Sizes are |H| in the panel 'left' and |M||H| in the panel 'right'.
  """
  # `paper_v1` is compared with the first text's figure, every other scale with the later text's.
  shown = REFERENCE[f'{panel}_{"arxiv_v1" if scale == "paper_v1" else "later_version"}']
  sizes = shown['num_states' if panel == 'left' else 'memory_times_states']
  return dict(zip(sizes, shown[name][statistic] or ()))


def _beside_paper(grid: Grid) -> pd.DataFrame:
  """A row for each fit that the paper draws: ours and the paper's. An unknown half-width counts as 0."""
  panel, scale = 'right' if 'text' in grid.rows else 'left', grid.records['scale'].iloc[0]
  ours = means(grid.records, ['text', 'fit', 'joint_states'], 'accuracy', grid.unit)
  rows = list[Row]()
  for (text, fit), name in PAPER[panel].items():
    half_widths = paper(panel, name, scale, 'ci95')
    for size, mean in paper(panel, name, scale).items():
      own = ours.get((text, fit, size))
      if own is not None:
        difference = own.mean - mean
        apart = abs(difference) > np.hypot(own.half_width, half_widths.get(size, 0))
        row = {'text': text, 'fit': FITS[fit], HEADINGS['joint_states']: size, 'ours': own, 'paper': mean}
        rows.append({**row, 'difference': f'{difference:+.1f}', 'apart': 'yes' if apart else 'no'})
  return pd.DataFrame(rows)


def _lead(grid: Grid) -> pd.DataFrame:
  """The lead of each fit over the best reader without a model on the same task, a row for each distribution."""
  is_reader = grid.records['model'] == NONE
  rivals, records = grid.records[is_reader], grid.records[~is_reader]
  leads = 100 * lead(records, rivals, grid.tasks)
  return grid._replace(records=records.assign(lead=leads)).fits('lead', interval)


def _moved(grid: Grid) -> pd.DataFrame:
  """Distances by which tuned, text and random prompts move each model, and by which any prefix moves the exact one."""
  parts = []
  for kind, field in {'tuned': 'tv_moved', 'text': 'tv_moved_by_text', 'random': 'tv_moved_by_random'}.items():
    cells = grid.fits(field)
    parts.append(cells.set_axis([f'{FITS[fit]}\n{kind}' for fit in cells], axis=1))
  cells = _joined(*parts)
  return cells.assign(any=means(grid.records, grid.rows, 'tv_movable', grid.unit)) if len(cells) else cells
