"""Figures of grids of trials: accuracies of methods on models against sizes, or against fields of settings."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
import numpy as np
import pandas as pd

from experiments.analysis import figures, grid_tables
from experiments.analysis.figures import Style
from experiments.analysis.grid_tables import FITS, Grid
from experiments.analysis.statistics import interval
from experiments.analysis.tables import exploded, select
from experiments.settings import lists
from experiments.settings.groups import FigureSettings
from experiments.settings.methods import NONE

_OVERVIEW = ('bert head', 'bert probe', 'bert prompt', 'none table', 'untrained probe')
_CONTROLS = ('attention', 'attention_blind', 'attention_constant', 'head')
_HIDDEN_STATES = 'number of hidden states |H|'
_JOINT_STATES = 'number of joint states |M||H|'
# Lines on the pretrained BERT are thick and filled, those of controls have small marks.
_HOLLOW: Style = dict(markerfacecolor='white', linewidth=0.9)
_SMALL: Style = dict(_HOLLOW, markersize=4)
_LOOKS: dict[str, Style] = {
  'bert': {},
  'own': dict(markerfacecolor='0.7', linewidth=1.3),
  'exact': _HOLLOW,
  NONE: _HOLLOW,
  'untrained': _SMALL,
  'other_bert': _SMALL,
}
_MAJORITY = 'majority'


def _against(
  grid: Grid, settings: FigureSettings, title: str, x: str, xlabel: str, columns: int = 3, **more: Any
) -> Figure | None:
  """A line for each value of `line`, and for the majority class, with the same words before it.

  Each value of `panel` has panels of its own: one for each value of what else tells distributions at one place apart.
  `more` are options of `figures.lines`.
  """
  records = grid.records
  names = [name for name in grid.rows if name not in (x, 'text', 'joint_states')]
  are_several = records.groupby(['text', x])[names].nunique().max() > 1
  panel = records['panel']
  for name in filter(are_several.get, names):
    words = f'{grid_tables.HEADINGS.get(name, name)} = ' + records[name].map(lists.shown)
    panel = (panel + ', ' + words).str.removeprefix(', ')
  records = records.assign(panel=panel)
  majorities = [line.removesuffix(fit) + _MAJORITY for line, fit in zip(records['line'], records['fit'])]
  majority = records.assign(line=majorities, accuracy=records['majority_accuracy'])
  return figures.lines(
    pd.concat([records, majority]),
    settings,
    title,
    x=x,
    by='line',
    unit=grid.unit,
    over=grid.over,
    style=_style,
    xlabel=xlabel,
    panel='panel',
    columns=columns,
    **more,
  )


def _style(line: str) -> Style:
  """The label and the look of a fit, or of the majority class; the text may stand before it."""
  *text, name = line.split(': ')
  if name == _MAJORITY:
    label, look = 'majority class', dict(color='0.45', marker='_', linestyle=':' if 'memory' in text else '-.')
  else:
    model, method = name.split()
    label, look = FITS[name], {**figures.style_of(method), **_LOOKS[model]}
  return dict(look, label=': '.join([*text, label]))


def figure_3_left(grid: Grid, settings: FigureSettings) -> Figure | None:
  """Accuracy against |H|: of the pretrained model and of readers without one, then of others, beside the paper."""
  is_first = grid.records['model'].isin(['bert', 'own', NONE])
  panel = np.where(is_first, 'Pretrained model, and readers without one', 'Other models')
  order = np.argsort(~is_first, kind='stable')
  records = grid.records.assign(panel=panel).iloc[order]
  return _figure_3(grid._replace(records=records), settings, 'left', 'num_states', _HIDDEN_STATES)


def figure_3_right(grid: Grid, settings: FigureSettings) -> Figure | None:
  """Accuracy against |M||H| of the paper's two readers, on text with a memory and on vanilla text; else of all."""
  papers = {(text, fit.split()[1]) for text, fit in grid_tables.PAPER['right']}
  is_papers = [line in papers for line in zip(grid.records['text'], grid.records['method'])]
  if any(is_papers):
    records = grid.records[is_papers]
    grid = grid._replace(records=records.assign(line=records['text'] + ': ' + records['fit'], panel=''))
  return _figure_3(grid, settings, 'right', 'joint_states', _JOINT_STATES)


def _figure_3(grid: Grid, settings: FigureSettings, panel: str, x: str, xlabel: str) -> Figure | None:
  sizes = grid.records[x]
  scale = grid.records['scale'].iloc[0]
  look: Style = dict(color='0.2', markersize=7, markeredgewidth=1.6, linestyle='none', zorder=5)

  def draw_paper(axes: Axes) -> None:
    """Draw the paper's points within the range of our sizes."""
    # No method has these markers.
    for marker, name in zip('x+', grid_tables.PAPER[panel].values()):
      points = grid_tables.paper(panel, name, scale)
      points = points.loc[sizes.min() : sizes.max()]
      label = f'{name}, the paper (digitised)'
      axes.plot(np.log(points.index), points, marker=marker, label=label, **look)

  more: dict[str, Any] = {'then': draw_paper} if settings.paper_overlay else {}
  return _against(grid, settings, 'Test accuracy by number of states', x, xlabel, **more)


def overview(grid: Grid, settings: FigureSettings) -> Figure | None:
  """Accuracy against |H| of the fits of _OVERVIEW."""
  grid = grid._replace(records=grid.records[grid.records['fit'].isin(_OVERVIEW)])
  title = 'Readers of a pretrained BERT, of an untrained one and of tokens'
  return _against(grid, settings, title, 'num_states', _HIDDEN_STATES)


def controls(grid: Grid, settings: FigureSettings) -> Figure | None:
  """Accuracy against |M||H| of attention beside its controls and a linear head."""
  grid = grid._replace(records=grid.records[grid.records['method'].isin(_CONTROLS)])
  return _against(grid, settings, 'Attention beside its controls', 'joint_states', _JOINT_STATES)


def memory_cells(grid: Grid, settings: FigureSettings) -> Figure | None:
  """Error against the number of memory cells N, on a logarithmic axis that has a place for 0."""
  errors = 1 - grid.records[['accuracy', 'majority_accuracy']]
  return _against(
    grid._replace(records=grid.records.assign(**errors)),
    settings,
    'Test error by number of memory cells',
    'num_cells',
    'number of memory cells N',
    ylabel='test error (%)',
    then=figures.log_axis_with_zero,
  )


def against_fields(grid: Grid, settings: FigureSettings) -> Figure | None:
  """Accuracy against a field in which settings differ, of numbers if there is one."""
  fields = [name for name in grid.varied if name != 'seed'] or ['seed']
  numbers = [name for name in fields if grid.records[name].dtype.kind in 'if']
  x = max(numbers or fields, key=lambda name: grid.records[name].nunique())
  return _against(grid, settings, f'Test accuracy by {x}', x, x)


def nearest_tokens(grid: Grid, settings: FigureSettings) -> Figure | None:
  """The share of test labels that change if only k tokens are kept, a line per distribution; None without records."""
  return figures.lines(
    exploded(grid.records, 'changed_shares'),
    settings,
    'Test labels that change if only the nearest tokens are kept',
    x='index',
    by='place',
    unit=grid.unit,
    over=grid.over,
    field='changed_shares',
    xlabel='number k of tokens nearest the [MASK] that are kept',
    ylabel='labels that change (%)',
    then=figures.log_axis_with_zero,
  )


def forgetting(grid: Grid, settings: FigureSettings) -> Figure | None:
  """Mean delta after 2, 4, 8, ... tokens, a line per distribution; None without records."""
  deltas = exploded(grid.records, 'forgetting')
  return figures.lines(
    deltas[deltas['index'].isin(2 ** np.arange(1, 20))],
    settings,
    'What a text does not forget',
    x='index',
    by='place',
    unit=['trial'],
    over='trials',
    field='forgetting',
    xlabel='tokens seen',
    ylabel='mean delta, total variation (%)',
  )


def attention(grid: Grid, settings: FigureSettings) -> Figure | None:
  """Attention weight against the probability that a position reads the label's cell, in tenths; None without records.

  A mark is the mean over units of the mean weight in a tenth; tenths without positions are left out.
  """
  # A row of a profile is [mean probability, mean weight, share of positions].
  bins = exploded(select(grid.records, attention_by='read_probability'), 'attention_profile')
  return figures.lines(
    bins.assign(weight=bins['attention_profile'].str[1].astype(float), tenth=bins['index'] / 10),
    settings,
    'Attention to positions that may read the label cell',
    x='tenth',
    by='fit',
    unit=grid.unit,
    over=grid.over,
    style=_style,
    field='weight',
    xlabel='probability to read the label cell (bins of 0.1)',
    ylabel='attention weight (uniform = 1)',
    cell=interval,
    panel='place',
    columns=2,
  )
