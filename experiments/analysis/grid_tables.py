"""The tables of a grid of trials, only from records."""

from collections.abc import Collection
import json
import pathlib
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from experiments.analysis.statistics import Interval, interval, welch
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
# Pairs of fits whose difference, paired by task, is tested where both were run: on one model, then on two.
_ON_BERT = (
  ('prompt', 'head'),
  ('attention', 'head'),
  ('prompt_attention', 'attention'),
  ('attention', 'attention_blind'),
  ('prompt', 'head_whitened'),
  ('prompt', 'probe'),
  ('prompt', 'probe_converged'),
  ('shift', 'prompt'),
  ('prompt_refit', 'prompt'),
)
_ON_EXACT = (('oracle_prompt', 'head_whitened'), ('oracle_prompt', 'head_best'), ('oracle_refit', 'head_best'))
_PAIRS = (
  *((f'bert {first}', f'bert {second}') for first, second in _ON_BERT),
  *((f'exact {first}', f'exact {second}') for first, second in _ON_EXACT),
  ('bert attention', 'exact attention_constant'),
  ('bert prompt', 'exact oracle_prompt'),
  *(('none table', f'bert {method}') for method in ('prompt', 'probe', 'probe_converged')),
  *((f'bert {method}', f'untrained {method}') for method in ('probe', 'probe_converged')),
  ('own prompt', 'own head'),
)
# Fits on text with a memory and on vanilla text of as many joint states; the first pair is the paper's.
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
  'contrasts': f'Differences in points, paired by task, over {{over}}; {_TESTED}',
  'texts': f'Memory text minus vanilla text of as many joint states on BERT in points, by Welch; {_TESTED}',
  'values': f'Differences in points from the first value of a field, paired by task, over {{over}}; {_TESTED}',
  'trends': (
    'Differences in points over the HMMs of all sizes, stratified by size, and their trend with the number of joint '
    'states, |H| without a memory: Spearman over HMMs, p of a permutation test; Holm over the rows of this table. '
    'Detectable: with 80% power at level 0.05 / rows'
  ),
  'beside_paper': (
    'Ours on BERT beside the digitised Figure 3. Apart: the means differ by more than the root of the sum of both '
    'squared half-widths, without correction for multiple tests'
  ),
  'lead': 'Lead over the best reader without a model in points, paired by task, mean ± 95% over {over}',
  'controls': (
    'Controls, test accuracy in percent, mean [95% interval]: BERT before pretraining, BERT of another HMM, and a '
    'converged head behind a prompt that was trained for another task'
  ),
  'head_sizes': 'osc(b) / osc(mu) of linear heads, median over tasks; osc is the largest minus the smallest entry',
  'nearest_tokens': 'Test labels in percent that change if only the k tokens nearest the [MASK] are kept',
  'moved': (
    'Total variation in percent by which prompts move the prediction at the [MASK], mean [95% interval]; any: the most '
    'that any prompt before the text moves the exact one'
  ),
  'diagnostics': "Other fits and controls beyond the paper's protocol: test accuracy in percent, mean [95% interval]",
}


class Grid(NamedTuple):
  """The records of a grid with the columns that its tables and figures share.

  Attributes:
    records: with `fit`, 'MODEL METHOD', `text`, 'memory' or 'vanilla', and `joint_states`, |M|^N |H|.
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


def prepared(records: pd.DataFrame) -> Grid:
  """The records as tables and figures take them.

  The best head is fitted to the test texts, so that its accuracy here is that on validation texts.
  """
  is_memory = records['memory_size'] > 0
  accuracy = records['accuracy'].where(records['method'] != 'head_best', records['validation_accuracy'])
  names = varied(records)
  records = records.assign(
    accuracy=accuracy,
    fit=records['model'] + ' ' + records['method'],
    text=np.where(is_memory, 'memory', 'vanilla'),
    joint_states=records['num_states'] * records['memory_size'] ** records['num_cells'],
    size=[str(Point(*point)) for point in zip(*(records[name] for name in Point._fields))],
  )
  if 'distribution' in records:
    records = records.assign(distribution=records['distribution'].map(lists.shown))
  process = [name for name in ['distribution'] if name in records and name not in names and records[name].any()]
  memory = ['text', 'memory_size', 'num_cells', 'joint_states'] if is_memory.any() else []
  rows = [*process, *names, *memory, 'num_states']
  is_given = 'distribution' in records and records['distribution'].astype(bool).all()
  trial = 'pretraining seed' if is_given else 'HMM'
  if records['trial'].nunique() > 1:
    return Grid(records, names, rows, ['trial'], f'{trial}s')
  return Grid(records, names, rows, ['task'], f'tasks of one {trial}')


def tables(grid: Grid, paper_overlay: bool) -> dict[str, Table]:
  """The tables that have rows, by name."""
  is_control = grid.records['model'].isin(_CONTROLS)
  is_main = grid.records['method'].isin(MAIN)
  differences = paired(grid.wide, _names(_PAIRS))
  of_text = ['text'] if 'text' in grid.rows else []
  by = [*of_text, *grid.varied]
  frames = {
    'accuracy': _accuracy(grid, is_main & ~is_control).join(_shares(grid)),
    'contrasts': contrasts(differences, grid.rows, grid.unit) if len(differences) else pd.DataFrame(),
    'texts': _texts(grid),
    'values': _values(grid),
    'trends': _trends(grid, differences, by),
    'beside_paper': _beside_paper(grid) if paper_overlay else pd.DataFrame(),
    'lead': _lead(grid),
    'controls': _controls(grid) if is_control.any() else pd.DataFrame(),
    'head_sizes': _head_sizes(grid),
    'nearest_tokens': changed_shares(grid),
    'moved': _moved(grid),
    'diagnostics': _accuracy(grid, ~is_main & ~is_control),
  }
  titles = {name: title.format(over=grid.over) for name, title in _TITLES.items()}
  return {name: table(titles[name], _with_headings(frame)) for name, frame in frames.items() if len(frame)}


def _with_headings(frame: pd.DataFrame) -> pd.DataFrame:
  """The frame with headings for names of columns; 'MODEL METHOD' has the two below each other."""
  frame = frame.rename_axis(index=HEADINGS)
  return frame.rename(columns={fit: '\n'.join(name.rsplit(', ', 1)) for fit, name in FITS.items()})


def _accuracy(grid: Grid, chosen: pd.Series) -> pd.DataFrame:
  """The number of units and the accuracies of the chosen records, a row for each distribution."""
  records = grid.records[chosen]
  if records.empty:
    return pd.DataFrame(index=pd.MultiIndex.from_tuples([], names=grid.rows))
  cells = means(records, grid.rows, 'accuracy', grid.unit, columns=['fit'])
  counts = records.groupby(grid.rows, sort=False)[grid.unit].nunique().set_axis(['n'], axis=1)
  return counts.join(cells[[fit for fit in FITS if fit in cells]])


def _shares(grid: Grid) -> pd.DataFrame:
  """Near ties, the majority class, and the distance of each model from the exact G, a row for each distribution."""
  groups = grid.records.groupby(grid.rows, sort=False)
  cells = pd.DataFrame({'near\nties': 100 * groups['near_tie_share'].mean()}).map('{:.1f}'.format)
  of_tasks = grid.records.drop_duplicates(grid.tasks)
  cells['majority'] = means(of_tasks, grid.rows, 'majority_accuracy', grid.unit)
  for heading, model, field in (
    ('KL at\n[MASK]', 'bert', 'kl_at_mask'),
    ('excess\nMLM loss', 'bert', 'excess_mlm_loss'),
    ('KL at [MASK]\nown model', 'own', 'kl_at_mask'),
  ):
    distances = select(grid.records, model=model).dropna(subset=field).groupby(grid.rows, sort=False)[field].mean()
    cells[heading] = distances.astype(float).map('{:.3f}'.format)
  return cells


def _controls(grid: Grid) -> pd.DataFrame:
  """The main methods on the controls, the distance of these from G, and a head behind another task's prompt."""
  records = grid.records
  cells = _accuracy(grid, records['model'].isin(_CONTROLS) & records['method'].isin(MAIN))
  refits = select(records, model='bert', method='prompt_refit')
  if len(refits):
    heading = 'converged head behind\nprompt of another task'
    cells[heading] = means(refits, grid.rows, 'other_task_accuracy', grid.unit)
  for model in _CONTROLS:
    distances = select(records, model=model).groupby(grid.rows, sort=False)['kl_at_mask'].mean()
    cells[f'KL at [MASK]\n{MODEL_NAMES[model]}'] = distances.astype(float).map('{:.3f}'.format)
  return cells


def _names(pairs: Collection[tuple[str, str]]) -> dict[str, tuple[str, str]]:
  """Pairs of fits by the name of their difference, which says their models."""
  named = dict[str, tuple[str, str]]()
  for first, second in pairs:
    name, model = FITS[first].split(', ')[:-1], first.split()[0]
    is_one = model == second.split()[0]
    minuend = ', '.join(name) if is_one else FITS[first]
    named[f'{minuend} - {FITS[second]}'] = first, second
  return named


def _texts(grid: Grid) -> pd.DataFrame:
  """Differences of text with a memory from vanilla text of as many joint states, which share no HMM."""
  if 'text' not in grid.rows or grid.varied:
    return pd.DataFrame()
  on_bert = select(grid.records, model='bert')
  values = by_unit(on_bert, ['text', 'method', 'joint_states', 'num_cells'], 'accuracy', grid.unit)
  of = {key: 100 * units.to_numpy() for key, units in values.groupby(level=[0, 1, 2, 3], sort=False)}
  found = dict[tuple[str, int, int], Interval]()
  for first, second in _OF_TEXTS:
    name = f'memory {METHODS[first].label} - vanilla {METHODS[second].label}'
    for text, method, size, cells in of:
      vanilla = 'vanilla', second, size, 0
      if (text, method) == ('memory', first) and vanilla in of:
        found[name, cells, size] = welch(of['memory', first, size, cells], of[vanilla])
  if not found:
    return pd.DataFrame()
  index = pd.MultiIndex.from_tuples([*found], names=['contrast', 'num_cells', 'joint_states'])
  return tested(pd.Series([*found.values()], index, object), ['contrast'])


def _values(grid: Grid) -> pd.DataFrame:
  """Differences of each fit from the first value of each varied field, which trials of one number share a key at.

  The unit of a field that changes the HMM is the trial. Seeds and given processes are no values to compare.
  """
  parts = [_from_first(grid, name) for name in grid.varied if name not in ('seed', 'distribution')]
  parts = [part for part in parts if len(part)]
  return pd.concat(parts) if parts else pd.DataFrame()


def _from_first(grid: Grid, column: str) -> pd.DataFrame:
  """The differences from the first value of a column, without those of fits that it does not decide."""
  long = grid.wide.stack().rename('accuracy').reset_index()
  first = long[column].iloc[0]
  others = [name for name in long if name not in (column, 'accuracy')]
  both = long[long[column] != first].merge(long[long[column] == first], on=others, suffixes=('', '_first'))
  both['difference'] = both['accuracy'] - both['accuracy_first']
  decided = both.groupby('fit')['difference'].transform(lambda of: (of != 0).any())
  both = both[decided.astype(bool)]
  if both.empty:
    return pd.DataFrame()
  contrast = [f'{FITS[fit]}, minus {column} = {lists.shown(first)}' for fit in both['fit']]
  differences = both.assign(contrast=contrast).set_index(['contrast', *grid.tasks])['difference']
  return contrasts(differences, grid.rows, ['trial'] if column.startswith(_OF_DRAWS) else grid.unit)


def _trends(grid: Grid, differences: pd.Series, by: list[str]) -> pd.DataFrame:
  if grid.unit != ['trial'] or differences.empty:
    return pd.DataFrame()
  strata = [name for name in grid.rows if name not in by and name != 'joint_states']
  if 'joint_states' in grid.rows:
    return pooled(differences, by, [*strata, 'joint_states'], 'joint_states', grid.unit)
  return pooled(differences, by, strata, 'num_states', grid.unit)


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
  places = ['text', 'joint_states', 'fit']
  ours = means(grid.records, places, 'accuracy', grid.unit)
  rows = dict[Any, Row]()
  for (text, fit), name in PAPER[panel].items():
    half_widths = paper(panel, name, scale, 'ci95')
    for size, mean in paper(panel, name, scale).items():
      if (text, size, fit) in ours:
        own = ours[text, size, fit]
        apart = abs(own.mean - mean) > np.hypot(own.half_width, half_widths.get(size, 0))
        numbers = {'ours': own, 'paper': mean, 'difference': f'{own.mean - mean:+.1f}'}
        rows[text, METHODS[fit.split()[1]].label, size] = {**numbers, 'apart': 'yes' if apart else 'no'}
  if not rows:
    return pd.DataFrame()
  return pd.DataFrame([*rows.values()], pd.MultiIndex.from_tuples([*rows], names=['text', 'method', 'joint_states']))


def _lead(grid: Grid) -> pd.DataFrame:
  """The lead of each fit over the best reader without a model on the same task, a row for each distribution."""
  is_reader = grid.records['model'] == NONE
  rivals, records = grid.records[is_reader], grid.records[~is_reader]
  if rivals.empty or records.empty:
    return pd.DataFrame()
  records = records.assign(lead=100 * lead(records, rivals, grid.tasks))
  cells = means(records, grid.rows, 'lead', grid.unit, interval, ['fit'])
  return cells[[fit for fit in FITS if fit in cells]]


def _head_sizes(grid: Grid) -> pd.DataFrame:
  if 'head_size' not in grid.records or (known := grid.records.dropna(subset='head_size')).empty:
    return pd.DataFrame()
  medians = known.groupby([*grid.rows, 'fit'], sort=False)['head_size'].median().unstack(sort=False)
  return medians[[fit for fit in FITS if fit in medians]].map('{:.1g}'.format)


def changed_shares(grid: Grid) -> pd.DataFrame:
  """The mean share of labels in percent that change, a row for each distribution, a column for each k kept."""
  of_table = select(grid.records, method='table')
  if of_table.empty:
    return pd.DataFrame()
  shares = pd.DataFrame([*of_table['changed_shares']], pd.MultiIndex.from_frame(of_table[grid.rows]))
  percents = 100 * shares.groupby(level=grid.rows, sort=False).mean()
  return percents.rename(columns='k = {}'.format).map('{:.1f}'.format)


def _moved(grid: Grid) -> pd.DataFrame:
  """Distances by which tuned, text and random prompts move each model, and by which any prefix moves the exact one."""
  if 'tv_moved' not in grid.records or grid.records['tv_moved'].isna().all():
    return pd.DataFrame()
  kinds = {'tuned': 'tv_moved', 'text': 'tv_moved_by_text', 'random': 'tv_moved_by_random'}
  parts = []
  for kind, field in kinds.items():
    cells = means(grid.records, grid.rows, field, grid.unit, columns=['fit'])
    parts.append(cells.set_axis([f'{FITS[fit]}\n{kind}' for fit in cells], axis=1))
  cells = pd.concat(parts, axis=1)
  cells['any'] = means(grid.records, grid.rows, 'tv_movable', grid.unit)
  return cells
