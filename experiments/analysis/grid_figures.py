"""Figures of grids of trials: accuracies of methods on models against sizes, or against fields of settings."""

from collections.abc import Callable
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
import numpy as np
import pandas as pd

from experiments.analysis import figures, grid_tables
from experiments.analysis.figures import Style
from experiments.analysis.grid_tables import FITS, Grid
from experiments.analysis.tables import select
from experiments.settings import lists
from experiments.settings.groups import FigureSettings
from experiments.settings.methods import MAIN, MODEL_NAMES, NONE

_OVERVIEW = ('bert head', 'bert probe', 'bert prompt', 'none table', 'untrained probe')
_HIDDEN_STATES = 'number of hidden states |H|'
_JOINT_STATES = 'number of joint states |M||H|'
# The paper's |X|.
_NUM_TOKENS = 10
_CONTROLS = ('attention', 'attention_blind', 'attention_constant', 'head')
# Scales whose corpus is the paper's.
_PAPER_SCALES = ('paper', 'paper_v1', 'official', 'tuned')
# A colour that no method has, for a fit to vanilla text whose method is drawn on text with a memory too.
_ON_VANILLA = '#CC79A7'


def _against(
  grid: Grid,
  settings: FigureSettings,
  title: str,
  x: str,
  xlabel: str,
  then: Callable[[Axes, pd.DataFrame], object] = lambda axes, rows: None,
  **more: Any,
) -> Figure | None:
  """A line for each fit to each text, and the majority class; None if several distributions share a place.

  Then a mean would say nothing. `more` are options of `figures.lines`.
  """
  records = grid.records
  places = ['text', x, 'panel'] if 'panel' in more else ['text', x]
  if records.groupby(places)['size'].nunique().max() > 1:
    return None
  # Lines name the text if there are two.
  text = records['text'] + ': ' if records['text'].nunique() > 1 else ''
  names = records['fit'].map(FITS)
  order = records['fit'].map([*FITS].index)
  records = records.assign(text=text, line=text + names, order=order)
  records = records.sort_values(['text', 'order'], kind='stable')
  fits = records.drop_duplicates('line').set_index('line')

  def finish(axes: Axes, rows: pd.DataFrame) -> None:
    if 'majority_accuracy' in rows:
      _draw_majorities(axes, rows)
    then(axes, rows)

  more |= dict(by='line', unit=grid.unit, over=grid.over, style=lambda line: _style(line, fits))
  return figures.lines(records, settings, title, x=x, xlabel=xlabel, then=finish, **more)


def _style(line: str, fits: pd.DataFrame) -> Style:
  """The label and the look of a line: thick and filled on the pretrained BERT, in between on one's own, else hollow.

  Marks of controls, such as an untrained BERT, are small.
  """
  fit = fits.loc[line]
  style = figures.style_of(fit['method'])
  texts = select(fits, method=fit['method'])['text']
  if fit['text'] == 'vanilla: ' and texts.nunique() > 1:
    style['color'] = _ON_VANILLA
  if fit['model'] == 'bert':
    fill, width = style['color'], 1.8
  elif fit['model'] == 'own':
    fill, width = '0.7', 1.3
  else:
    fill, width = 'white', 0.9
  if fit['model'] in grid_tables.CONTROLS:
    style['markersize'] = 4
  return dict(style, label=line, markerfacecolor=fill, linewidth=width)


def _draw_majorities(axes: Axes, records: pd.DataFrame) -> None:
  """A grey line for each text through the mean share of the majority class; a bar if there is one place."""
  for text, rows in records.groupby('text'):
    means = rows.groupby('place')['majority_accuracy'].mean()
    marker = '_' if len(means) == 1 else ''
    dash = ':' if text == 'memory: ' else '-.'
    look: dict[str, Any] = dict(marker=marker, markersize=25, linestyle=dash, color='0.45', linewidth=1.4)
    axes.plot(100 * means, label=f'{text}majority class', **look)


def figure_3_left(grid: Grid, settings: FigureSettings) -> Figure | None:
  """Accuracy against |H|: of the pretrained model and of readers without one, then of others, beside the paper."""
  is_first = grid.records['model'].isin(['bert', 'own', NONE])
  others = 'Other models, and the paper' if settings.paper_overlay else 'Other models'
  panel = np.where(is_first, 'Pretrained model, and readers without one', others)
  order = np.argsort(~is_first, kind='stable')
  records = grid.records.assign(panel=panel).iloc[order]
  return _figure_3('left', grid._replace(records=records), settings, 'num_states', _HIDDEN_STATES)


def figure_3_right(grid: Grid, settings: FigureSettings) -> Figure | None:
  """Accuracy against |M||H| of text with a memory and of vanilla text."""
  grid = grid._replace(records=grid.records.assign(panel=''))
  return _figure_3('right', grid, settings, 'joint_states', _JOINT_STATES)


def _figure_3(panel: str, grid: Grid, settings: FigureSettings, x: str, xlabel: str) -> Figure | None:
  records = grid.records
  papers = {(text, fit.split()[1]) for text, fit in grid_tables.PAPER[panel]}
  is_papers = [line in papers for line in zip(records['text'], records['method'])]
  # The paper's lines alone, if there are more methods than it draws.
  if any(is_papers) and not records['method'].isin(MAIN).all():
    records = records[is_papers]

  def draw_beside(axes: Axes, rows: pd.DataFrame) -> None:
    places = rows.groupby(x)['place'].first()
    if settings.paper_overlay and rows['panel'].iloc[0] == records['panel'].iloc[-1]:
      _draw_paper(axes, places, panel, records['scale'].iloc[0])
    if panel == 'left' and len(places) > 1:
      _mark_vocabulary(axes, places)

  title = f'Test accuracy by {xlabel.rpartition(" ")[0]}'
  grid = grid._replace(records=records)
  return _against(grid, settings, title, x, xlabel, draw_beside, panel='panel', columns=2)


def _mark_vocabulary(axes: Axes, places: pd.Series) -> None:
  """Mark |H| = |X| within the range of our sizes, the index of `places`: past it the emission rows are dependent."""
  sizes = places.index
  if sizes.min() <= _NUM_TOKENS <= sizes.max():
    place = float(_between(_NUM_TOKENS, places))
    axes.axvline(place, color='0.6', linewidth=0.9, linestyle=':', zorder=0)
    bottom = axes.get_xaxis_transform()
    axes.text(place, 0.01, ' |H| = |X|', transform=bottom, va='bottom', fontsize='small', color='0.35')


def _between(sizes: Any, places: pd.Series) -> Any:
  """The places of sizes on the logarithmic axis of our sizes, the index of `places`; NaN outside of them."""
  return np.interp(np.log(sizes), np.log(places.index), places, left=np.nan, right=np.nan)


def _draw_paper(axes: Axes, places: pd.Series, panel: str, scale: str) -> None:
  """Draw the paper's points within the range of our sizes, the index of `places`."""
  model = 'BERT-base' if scale in _PAPER_SCALES else 'BERT-base on more text'
  style: dict[str, Any] = dict(color='0.2', markersize=7, markeredgewidth=1.6, linestyle='none', zorder=5)
  # No method has these markers.
  for marker, name in zip('x+', grid_tables.PAPER[panel].values()):
    points = grid_tables.paper(panel, name, scale)
    sizes, accuracies = points.index, points.to_numpy()
    at = _between(sizes, places)
    label = f'{name}, the paper ({model}; digitised)'
    axes.plot(at, accuracies, marker=marker, label=label, **style)


def overview(grid: Grid, settings: FigureSettings) -> Figure | None:
  """Accuracy against |H| of the fits of _OVERVIEW."""
  chosen = grid.records[grid.records['fit'].isin(_OVERVIEW)].drop(columns='majority_accuracy')
  title = 'Readers of a pretrained BERT, of an untrained one and of tokens'
  return _against(grid._replace(records=chosen), settings, title, 'num_states', _HIDDEN_STATES)


def controls(grid: Grid, settings: FigureSettings) -> Figure | None:
  """Accuracy against |M||H| of attention beside its controls and a linear head, a panel for each text and model.

  Attention on a constant G reads no model, and stands in all panels of its text.
  """
  records = grid.records[grid.records['method'].isin(_CONTROLS)]
  is_constant = records['method'] == 'attention_constant'
  models = sorted(records['model'].unique())
  parts = [records[:0]]
  for model in models:
    shown = records[is_constant | (records['model'] == model)]
    panel = shown['text'] + ' text, ' + MODEL_NAMES[model]
    parts.append(shown.assign(panel=panel))
  # Panels name the text, so that lines need not.
  shown = pd.concat(parts).sort_values('text', kind='stable').assign(text='')
  return _against(
    grid._replace(records=shown),
    settings,
    'Attention beside its controls',
    'joint_states',
    _JOINT_STATES,
    panel='panel',
    columns=len(models),
  )


def memory_cells(grid: Grid, settings: FigureSettings) -> Figure | None:
  """Error against the number of memory cells N, on a logarithmic axis that has a place for 0."""
  errors = 1 - grid.records[['accuracy', 'majority_accuracy']]
  grid = grid._replace(records=grid.records.assign(**errors))
  title, xlabel = 'Test error by number of memory cells', 'number of memory cells N'
  then = lambda axes, rows: figures.log_axis_with_zero(axes)
  return _against(grid, settings, title, 'num_cells', xlabel, then, ylabel='test error (%)')


def against_fields(grid: Grid, settings: FigureSettings) -> Figure | None:
  """Accuracy against a field in which settings differ, of numbers if there is one; a panel for each value of others."""
  records = grid.records
  fields = [name for name in grid.varied if name != 'seed'] or ['seed']
  numbers = [name for name in fields if records[name].dtype.kind in 'if']
  x = max(numbers or fields, key=lambda name: records[name].nunique())
  others = [name for name in grid.rows if name != x and records[name].nunique() > 1]
  records = records.sort_values(others, kind='stable')
  panel = pd.Series('', records.index)
  for name in others:
    heading = grid_tables.HEADINGS.get(name, name)
    panel += f', {heading} = ' + records[name].map(lists.shown)
  grid = grid._replace(records=records.assign(panel=panel.str.removeprefix(', ')))
  return _against(grid, settings, f'Test accuracy by {x}', x, x, panel='panel', columns=3)


def nearest_tokens(grid: Grid, settings: FigureSettings) -> Figure | None:
  """The share of test labels that change if only k tokens are kept, a line per distribution; None without records."""
  return figures.lines(
    _exploded(grid.records, 'changed_shares'),
    settings,
    'Test labels that change if only the nearest tokens are kept',
    x='index',
    by='size',
    unit=grid.unit,
    over=grid.over,
    field='changed_shares',
    xlabel='number k of tokens nearest the [MASK] that are kept',
    ylabel='labels that change (%)',
    then=lambda axes, rows: figures.log_axis_with_zero(axes),
  )


def forgetting(grid: Grid, settings: FigureSettings) -> Figure | None:
  """Mean delta after 2, 4, 8, ... tokens, a line per size; None if records differ in more than the process."""
  if {*grid.varied} - {'distribution'}:
    return None
  deltas = _exploded(grid.records, 'forgetting')
  return figures.lines(
    deltas[deltas['index'].isin(2 ** np.arange(1, 20))],
    settings,
    'What a text does not forget',
    x='index',
    by='size',
    # Trials of a process that is given share their HMM, which is the unit.
    unit=['distribution' if 'distribution' in grid.rows else 'trial'],
    over='HMMs',
    field='forgetting',
    xlabel='tokens seen',
    ylabel='mean delta, total variation (%)',
  )


def _exploded(records: pd.DataFrame, field: str) -> pd.DataFrame:
  """A row for each number in the lists of a field, with its `index` there; no rows if no record has the field."""
  if field not in records:
    return pd.DataFrame(columns=[field, 'index'])
  known = records.dropna(subset=field)
  index = [range(len(values)) for values in known[field]]
  long = known.assign(index=index).explode(['index', field])
  return long.astype({'index': int, field: float})


@figures.styled
def attention(grid: Grid, settings: FigureSettings) -> Figure | None:
  """Attention weight against the probability that a position reads the label's cell; None where every one does.

  Each line is a distribution and a model, the mean over its tasks; the area of a marker is the share of positions
  that it stands for.
  """
  records = select(grid.records, attention_by='read_probability')
  if records.empty:
    return None
  figure, (axes,) = figures.panels(settings)
  styles = figures.cycle(records['size'].unique())
  for (size, model), rows in records.groupby(['size', 'model'], sort=False):
    label = f'{size}, {MODEL_NAMES[model]}'
    _draw_profile(axes, rows, styles(size)['color'], label, model == 'bert')
  axes.axhline(1, color='0.6', linewidth=0.9, linestyle=':', zorder=0)
  axes.set_xlabel(r'$P[J_i = j^\star \mid X_{-i}]$, probability that position i reads the label cell')
  axes.set_ylabel('mean attention weight (uniform = 1)')
  axes.set_ylim(bottom=0)
  title = 'Attention to positions that may read the label cell'
  counts = records.groupby(['size', 'model'])[grid.unit[0]].nunique()
  over = figures.number_of(counts, f'mean over {grid.over}')
  figures.finish(figure, records, title, over, 'area: share of positions')
  return figure


def _draw_profile(axes: Axes, records: pd.DataFrame, colour: str, label: str, is_filled: bool) -> None:
  """Draw the mean weight in each nonempty bin of the probability, tasks weighted by their positions in it."""
  # Of each task and bin: the means over its positions of probability and weight, and its share of all positions.
  profiles = np.array([*records['attention_profile']], float)
  is_nonempty = profiles[:, :, 2].any(axis=0)
  means = profiles[:, is_nonempty, :2]
  shares = profiles[:, is_nonempty, 2:]
  sums = np.nansum(means * shares, axis=0)
  at, heights = (sums / shares.sum(0)).T
  fill, width = (colour, 1.8) if is_filled else ('white', 0.9)
  axes.plot(at, heights, color=colour, linewidth=width, label=label)
  area = 16 + 300 * shares.mean(0)
  axes.scatter(at, heights, area, color=fill, edgecolors=colour, zorder=3, clip_on=False)
