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
from experiments.settings.methods import MAIN, MODEL_NAMES

_OVERVIEW = ('bert head', 'bert probe', 'bert prompt', 'none table', 'untrained probe')
_HIDDEN_STATES = 'number of hidden states |H|'
_JOINT_STATES = 'number of joint states |M||H|'
# The paper's |X|.
_NUM_TOKENS = 10
_CONTROLS = ('attention', 'attention_blind', 'attention_constant', 'head')
# A colour that no method has, for a fit to vanilla text whose method is drawn on text with a memory too.
_ON_VANILLA = '#CC79A7'

# What finishes a panel, from its axes and its records.
Then = Callable[[Axes, pd.DataFrame], object]


def _against(
  grid: Grid,
  records: pd.DataFrame,
  settings: FigureSettings,
  title: str,
  x: str,
  xlabel: str,
  then: Then = lambda axes, rows: None,
  panel: str = '',
  **more: Any,
) -> Figure | None:
  """A line for each method on each model, of each text if there are two, and the majority class.

  None if several distributions of a text share a place.
  """
  # A mean over several distributions at one place says nothing.
  places = [records['memory_size'] > 0, x, *filter(None, [panel])]
  if records.groupby(places)['size'].nunique().max() > 1:
    return None
  of_two = records['text'].nunique() > 1
  names = records['fit'].map(FITS)
  order = records['fit'].map([*FITS].index)
  records = records.assign(line=records['text'] + ': ' + names if of_two else names)
  records = records.iloc[np.lexsort((order, records['text']))]
  styles = {line: _style(rows, line, records) for line, rows in records.groupby('line')}

  def finished(axes: Axes, rows: pd.DataFrame) -> None:
    if 'majority_accuracy' in rows:
      _draw_majorities(axes, rows, of_two)
    then(axes, rows)

  same: dict[str, Any] = dict(by='line', unit=grid.unit, over=grid.over, style=styles.__getitem__)
  return figures.lines(records, settings, title, x=x, xlabel=xlabel, then=finished, panel=panel, **same, **more)


def _style(rows: pd.DataFrame, line: str, records: pd.DataFrame) -> Style:
  """The label and the look of a line: thick and filled on the pretrained BERT, in between on one's own, else hollow."""
  of = rows.iloc[0]
  style = figures.style_of(of['method'])
  if of['text'] == 'vanilla' and select(records, method=of['method'])['text'].nunique() > 1:
    style['color'] = _ON_VANILLA
  fill, width = {'bert': (style['color'], 1.8), 'own': ('0.7', 1.3)}.get(of['model'], ('white', 0.9))
  return dict(style, label=line, markerfacecolor=fill, linewidth=width)


def _draw_majorities(axes: Axes, records: pd.DataFrame, of_two: bool) -> None:
  for text, rows in records.groupby('text'):
    label = f'{text}: majority class' if of_two else 'majority class'
    dash = ':' if of_two and text == 'memory' else '-.'
    figures.draw_level(axes, rows, 'majority_accuracy', label, dash)


def figure_3_left(grid: Grid, settings: FigureSettings) -> Figure | None:
  """Accuracy against |H| by method and model; beside an untrained BERT, 'exact' and 'other_bert' are left out."""
  records = grid.records
  if (records['model'] == 'untrained').any():
    records = records[records['model'].isin(['bert', 'untrained', 'own', 'none'])]
  return _figure_3('left', grid, records, settings, 'num_states', _HIDDEN_STATES)


def figure_3_right(grid: Grid, settings: FigureSettings) -> Figure | None:
  """Accuracy against |M||H| of text with a memory and of vanilla text."""
  return _figure_3('right', grid, grid.records, settings, 'joint_states', _JOINT_STATES)


def _figure_3(
  panel: str, grid: Grid, records: pd.DataFrame, settings: FigureSettings, x: str, xlabel: str
) -> Figure | None:
  papers = list(zip(records['text'], records['fit'].str.split().str[1]))
  methods = {(text, fit.split()[1]) for text, fit in grid_tables.PAPER[panel]}
  drawn = np.array([paper in methods for paper in papers])
  # The paper's lines alone, if there are more methods than it draws.
  if drawn.any() and not records['method'].isin(MAIN).all():
    records = records[drawn]

  def draw_beside(axes: Axes, rows: pd.DataFrame) -> None:
    """The paper's points, and in the left panel a mark at its |X|."""
    places = rows.groupby(x)['place'].first()
    if settings.paper_overlay:
      _draw_paper(axes, places, panel, grid.records['scale'].iloc[0])
    sizes = places.index
    if panel == 'left' and sizes.min() <= _NUM_TOKENS <= sizes.max() and len(sizes) > 1:
      _mark_vocabulary(axes, float(np.interp(_NUM_TOKENS, sizes, places)))

  title = f'Test accuracy by {xlabel.rpartition(" ")[0]}'
  return _against(grid, records, settings, title, x, xlabel, draw_beside)


def _mark_vocabulary(axes: Axes, place: float) -> None:
  """Past |X| the emission rows are dependent."""
  axes.axvline(place, color='0.6', linewidth=0.9, linestyle=':', zorder=0)
  at = dict(transform=axes.get_xaxis_transform(), va='bottom', fontsize='small', color='0.35')
  axes.text(place, 0.01, ' |H| = |X|', **at)  # type: ignore[arg-type]


def _draw_paper(axes: Axes, places: pd.Series, panel: str, scale: str) -> None:
  """The paper's points within the range of our sizes, the index of `places` on the x axis."""
  of = 'BERT-base' if scale in ('paper', 'paper_v1', 'official', 'tuned') else 'BERT-base on more text'
  style: dict[str, Any] = dict(color='0.2', markersize=7, markeredgewidth=1.6, linestyle='none', zorder=5)
  # No method has these markers.
  for marker, name in zip('x+', grid_tables.PAPER[panel].values()):
    points = pd.Series(grid_tables.paper(panel, name, scale))
    points = points[points.index.isin(range(places.index.min(), places.index.max() + 1))]
    at = np.interp(points.index, places.index, places)
    axes.plot(at, points, label=f'{name}, the paper ({of}; digitised)', marker=marker, **style)


def overview(grid: Grid, settings: FigureSettings) -> Figure | None:
  """Accuracy against |H| of the fits of _OVERVIEW; None for one size alone."""
  chosen = grid.records[grid.records['fit'].isin(_OVERVIEW)].drop(columns='majority_accuracy')
  if chosen['num_states'].nunique() < 2:
    return None
  title = 'Readers of a pretrained BERT, of an untrained one and of tokens'
  return _against(grid, chosen, settings, title, 'num_states', _HIDDEN_STATES)


def controls(grid: Grid, settings: FigureSettings) -> Figure | None:
  """Accuracy against |M||H| of attention beside its controls and a linear head; None if no control was run.

  A panel for each text and model. Attention on a constant G reads no model, and stands in all panels of its text.
  """
  records = grid.records[grid.records['method'].isin(_CONTROLS)]
  is_constant = records['method'] == 'attention_constant'
  if not (is_constant | (records['method'] == 'attention_blind')).any():
    return None
  models = sorted(records['model'].unique())
  parts = [records[is_constant | (records['model'] == model)].assign(panel=MODEL_NAMES[model]) for model in models]
  shown = pd.concat(parts).sort_values('text', kind='stable')
  # Panels name the text, so that lines need not.
  shown = shown.assign(panel=shown['text'] + ' text, ' + shown['panel'], text='')
  more: dict[str, Any] = dict(panel='panel', columns=len(models))
  title = 'Attention beside its controls'
  return _against(grid, shown, settings, title, 'joint_states', _JOINT_STATES, **more)


def memory_cells(grid: Grid, settings: FigureSettings) -> Figure | None:
  """Error against the number of memory cells N, on a logarithmic axis that has a place for 0."""
  fields = ['accuracy', 'majority_accuracy']
  records = grid.records.assign(**{field: 1 - grid.records[field] for field in fields})
  errors = records['accuracy'][records['accuracy'] > 0]
  then = lambda axes, _: figures.log_axis_with_zero(axes, 100 * min(errors, default=0.001))
  title, xlabel = 'Test error by number of memory cells', 'number of memory cells N'
  return _against(grid, records, settings, title, 'num_cells', xlabel, then, ylabel='test error (%)')


def against_fields(grid: Grid, settings: FigureSettings) -> Figure | None:
  """Accuracy against a field in which settings differ, of numbers if there is one; a panel for each value of others."""
  records = grid.records
  numbers = [name for name in grid.varied if name != 'seed' and records[name].dtype.kind in 'if']
  names = [*numbers, *(name for name in grid.varied if name not in numbers)]
  first = max(numbers or names, key=lambda name: records[name].nunique())
  others = [name for name in names if name != first]
  if first != 'distribution':
    # A process has its sizes.
    others += [name for name in ('memory_size', 'num_cells', 'num_states') if records[name].nunique() > 1]
  panel = pd.Series('', records.index)
  for name in others:
    panel += f', {grid_tables.HEADINGS.get(name, name)} = ' + records[name].map(lists.shown)
  records = records.assign(panel=panel.str.removeprefix(', ')).sort_values(others, kind='stable')
  return _against(grid, records, settings, f'Test accuracy by {first}', first, first, panel='panel', columns=3)


def nearest_tokens(grid: Grid, settings: FigureSettings) -> Figure | None:
  """The share of test labels that change if only k tokens are kept, a line per distribution; None without records."""
  records = select(grid.records, method='table')
  if 'changed_shares' not in records:
    return None
  curves = [pd.Series(shares) for shares in records['changed_shares']]
  return _of_curves(
    grid,
    records,
    curves,
    settings,
    'Test labels that change if only the nearest tokens are kept',
    'number k of tokens nearest the [MASK] that are kept',
    'labels that change (%)',
    then=lambda axes, _: figures.log_axis_with_zero(axes, 0.1),
  )


def forgetting(grid: Grid, settings: FigureSettings) -> Figure | None:
  """Mean delta after 2, 4, 8, ... tokens, a line per size; None if records differ in more than the process."""
  if 'forgetting' not in grid.records or {*grid.varied} - {'distribution'}:
    return None
  records = grid.records.dropna(subset='forgetting').drop_duplicates(grid.tasks)
  if 'distribution' in records and records['distribution'].astype(bool).all():
    # Trials of a process that is given share their HMM, which is the unit.
    records = records.assign(trial=records['distribution'])
  powers = 2 ** np.arange(1, 20)
  curves = [pd.Series(delta, dtype=float).reindex(powers).dropna() for delta in records['forgetting']]
  grid = grid._replace(unit=['trial'], over='HMMs')
  title, ylabel = 'What a text does not forget', 'mean delta, total variation (%)'
  return _of_curves(grid, records, curves, settings, title, 'tokens seen', ylabel)


def _of_curves(
  grid: Grid,
  records: pd.DataFrame,
  curves: list[pd.Series],
  settings: FigureSettings,
  title: str,
  xlabel: str,
  ylabel: str,
  **more: Any,
) -> Figure | None:
  """A line for each distribution through the means of a curve of each record."""
  if records.empty:
    return None
  long = records.loc[records.index.repeat([len(curve) for curve in curves])]
  curve = pd.concat(curves)
  long = long.assign(x=curve.index, y=curve.to_numpy())
  same: dict[str, Any] = dict(x='x', by='size', field='y', unit=grid.unit, over=grid.over)
  return figures.lines(long, settings, title, xlabel=xlabel, ylabel=ylabel, **same, **more)


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
  colours = figures.cycle(records['size'].unique())
  for (size, model), rows in records.groupby(['size', 'model'], sort=False):
    _draw_profile(axes, rows, colours(size)['color'], f'{size}, {MODEL_NAMES[model]}', model == 'bert')
  axes.axhline(1, color='0.6', linewidth=0.9, linestyle=':', zorder=0)
  place = r'$P[J_i = j^\star \mid X_{-i}]$, probability that position i reads the label cell'
  axes.set(xlabel=place, ylabel='mean attention weight (uniform = 1)')
  axes.set_ylim(bottom=0)
  title = 'Attention to positions that may read the label cell'
  counts = records.groupby(['size', 'model'])[grid.unit].nunique().iloc[:, 0]
  over = figures.number_of(counts, f'mean over {grid.over}')
  figures.finish(figure, records, title, over, 'area: share of positions')
  return figure


def _draw_profile(axes: Axes, records: pd.DataFrame, colour: str, label: str, is_filled: bool) -> None:
  """Draw the mean weight in each nonempty bin of the probability, tasks weighted by their positions in it."""
  # The means of a bin and its share of the positions; the index is the number of the bin within its task.
  columns = ['probability', 'weight', 'share']
  profiles = [pd.DataFrame(profile, columns=columns) for profile in records['attention_profile']]
  bins = pd.concat(profiles).dropna().astype(float)
  share = bins['share'].groupby(level=0).sum()
  products = bins[['probability', 'weight']].mul(bins['share'], axis=0)
  means = products.groupby(level=0).sum().div(share, axis=0)
  fill, width = (colour, 1.8) if is_filled else ('white', 0.9)
  axes.plot(means['probability'], means['weight'], color=colour, linewidth=width, label=label)
  area = 16 + 300 * share / len(records)
  axes.scatter(means['probability'], means['weight'], area, color=fill, edgecolors=colour, zorder=3, clip_on=False)
