"""Figures of records by one grammar: `lines` of means with their intervals, a panel for each value of a field."""

from collections.abc import Callable, Iterable, Sequence
import io
import math
import pathlib
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
import matplotlib.style
from matplotlib.transforms import ScaledTranslation
import numpy as np
import pandas as pd

from experiments.analysis.statistics import Interval, percent
from experiments.analysis.tables import by_unit
from experiments.records import files
from experiments.settings import lists
from experiments.settings.fields import printable
from experiments.settings.groups import FigureSettings
from experiments.settings.methods import METHODS

# Metadata of each format, without the time of drawing: the same records give the same bytes.
FORMATS = {'png': {}, 'pdf': {'CreationDate': None}, 'svg': {'Date': None}}
# Fewest values for a t interval; fewer are shown one by one.
LEAST_FOR_INTERVAL = 5
# Ticks of a logarithmic axis of percentages, which is linear up to the second.
_LOG_TICKS = np.array([0, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100])

# A label and the keywords of `Axes.plot`.
Style = dict[str, Any]

# A decorator, and no `with` block: figures have this style instead of the user's.
styled = matplotlib.style.context(pathlib.Path(__file__).parent / 'figures.mplstyle', after_reset=True)


def with_labels(records: pd.DataFrame) -> pd.DataFrame:
  """The records with texts that a figure shows as they are: printable, and no formulas."""
  return records.map(lambda value: printable(value).replace('$', r'\$') if isinstance(value, str) else value)


@styled
def lines(
  records: pd.DataFrame,
  settings: FigureSettings,
  title: str,
  *,
  x: str,
  by: str,
  unit: Sequence[str],
  over: str,
  style: Callable[[Any], Style] | None = None,
  xlabel: str = '',
  field: str = 'accuracy',
  ylabel: str = 'test accuracy (%)',
  cell: Callable[[Any], Interval] = percent,
  panel: str = '',
  columns: int = 4,
  then: Callable[[Axes, pd.DataFrame], object] = lambda axes, rows: None,
) -> Figure | None:
  """A line for each value of `by` through the means of a field over units; None without records.

  Positive numbers stand by their logarithms, so that slopes mean something; other values of x at equal distances. Lines
  stand a few points beside each other, so that none hides another. Five units or more have their 95% interval, fewer
  are each a dot.

  Args:
    records: a row for each value.
    settings: the size of the figure.
    title: of the figure.
    x: the column of places.
    by: the column of which each value has a line, in the order of the records.
    unit: the columns that name an independent unit.
    over: the word for units, in the caption.
    style: from a value of `by` to the label and the look of its line; None: `cycle`.
    xlabel: of each column of panels.
    field: the column of values.
    ylabel: of each row of panels.
    cell: from the values of units to their interval.
    panel: the column of which each value has a panel, in the order of the records; '' for one panel.
    columns: most panels side by side.
    then: is called with the axes and the records of each panel, where `place` is the place on the x axis.
  """
  records = records.dropna(subset=field)
  if records.empty:
    return None
  style = style or cycle(records[by].unique())
  is_number = records[x].dtype.kind in 'if'
  codes, values_of_x = pd.factorize(records[x], sort=is_number)
  at = _places(values_of_x)
  records = records.assign(place=at[codes])
  groups = dict(iter(records.groupby(panel, sort=False))) if panel else {'': records}
  figure, grid = panels(settings, len(groups), columns, sharex=True)
  counts: list[int] = []
  for axes, (value, rows) in zip(grid, groups.items()):
    values = by_unit(rows, [by, 'place'], field, unit)
    counts.extend(values.groupby(level=[0, 1]).size())
    _draw_lines(axes, values, cell, style, at)
    axes.set_title(value)
    then(axes, rows)
    if not is_number:
      _separate(axes)
    _name_places(axes, at, values_of_x)
  for axes in grid[::columns]:
    axes.set_ylabel(ylabel)
  # No panel is below these.
  for axes in grid[-columns:]:
    axes.set_xlabel(xlabel)
    axes.tick_params(labelbottom=True)
  trim_percent_ticks(grid[0].yaxis)
  finish(figure, records, title, counted(counts, over))
  return figure


def _draw_lines(
  axes: Axes,
  values: pd.Series,
  cell: Callable[[Any], Interval],
  style: Callable[[Any], Style],
  at: np.ndarray,
) -> None:
  """Draw a line for each value of the first level of the index, a few points beside each other at each place."""
  named = values.groupby(level=0, sort=False)
  count = len(named)
  # Points between the two nearest places, less their own markers.
  room = min(30, 0.55 * _least_distance(axes, at))
  step = min(4, room / count)
  first = step * (1 - count) / 2
  for index, (name, of_line) in enumerate(named):
    draw_line(axes, of_line.droplevel(0), cell, first + step * index, **style(name))


def draw_line(axes: Axes, values: pd.Series, cell: Callable[[Any], Interval], beside: float, **style: Any) -> None:
  """Draw a line through the mean at each place, with the interval of five values or more, else each as a dot.

  The line is shifted by `beside` points; its dots stand a little to the left.

  Args:
    axes: to draw on.
    values: of units; the first level of the index is the place.
    cell: from the values of a place to their interval.
    beside: points to the right.
    **style: the label and the look.
  """
  groups = values.groupby(level=0)
  cells = groups.agg(cell)
  means = cells.map(lambda one: one.mean)
  (line,) = axes.plot(means, zorder=3, **style)
  colour = line.get_color()
  _move(axes, [line], beside)

  many = cells[groups.size() >= LEAST_FOR_INTERVAL]
  if len(many):
    lengths = np.transpose([abs(one.ends - one.mean) for one in many])
    bars = axes.errorbar(many.index, means[many.index], lengths, fmt='none', ecolor=colour, elinewidth=0.9)
    _move(axes, bars.get_children(), beside)

  few = values[groups.transform('size').between(2, LEAST_FOR_INTERVAL - 1)]
  heights = [cell([value]).mean for value in few]
  fill = line.get_markerfacecolor()
  dots = axes.plot(few.index.get_level_values(0), heights, '.', color=colour, markersize=4.5, markerfacecolor=fill)
  _move(axes, dots, beside - 4)


def _move(axes: Axes, artists: Iterable[Any], points: float) -> None:
  """Shift what is drawn to the right; the limits of the axes follow the places themselves."""
  shift = ScaledTranslation(points / 72, 0, axes.figure.dpi_scale_trans)
  for artist in artists:
    artist.set_transform(axes.transData + shift)


def _separate(axes: Axes) -> None:
  """Leave the marks of lines alone, for nothing lies between names; a line without marks has bars."""
  for line in axes.lines:
    line.set_linestyle('')
    if not line.get_marker():
      line.set(marker='_', markersize=25)


def _places(values: Any) -> np.ndarray:
  """The places on the x axis of distinct values in their order."""
  numbers = np.asarray(values)
  if numbers.dtype.kind in 'if' and (numbers > 0).all():
    return np.log(numbers)
  return np.arange(len(numbers), dtype=float)


def _least_distance(axes: Axes, at: np.ndarray) -> float:
  """The least distance in points of places on the x axis."""
  points = 72 * axes.bbox.width / axes.figure.dpi
  if len(at) < 2:
    return points
  return points * np.diff(at).min() / (np.ptp(at) + np.diff(at).mean())


def _name_places(axes: Axes, at: np.ndarray, values: Iterable[Any]) -> None:
  """A tick for each place on the x axis with its value; many long ones are turned."""
  labels = [lists.shown(value).replace('e-0', 'e-') for value in values]
  axes.set_xticks(at, labels)
  if len(labels) > 7 and max(map(len, labels)) > 4:
    for label in axes.get_xticklabels():
      label.set(rotation=45, ha='right', rotation_mode='anchor')


def style_of(method: str) -> Style:
  """The line style of a method."""
  look = METHODS[method]
  return dict(color=look.colour, marker=look.marker, linestyle=look.dash)


@styled
def cycle(names: Iterable[Any]) -> Callable[[Any], Style]:
  """The style of each of several names in turn, labelled by it."""
  styles = matplotlib.rcParams['axes.prop_cycle']()
  found = {name: dict(label=str(name), **next(styles)) for name in names}
  return found.__getitem__


def panels(
  settings: FigureSettings, count: int = 1, columns: int = 4, sharey: bool = True, sharex: bool = False
) -> tuple[Figure, Any]:
  """A figure and its panels, at most `columns` side by side."""
  columns = min(count, columns)
  rows = math.ceil(count / columns)
  width = settings.width * (0.4 * columns + 0.6)
  height = settings.height * (0.7 * rows + 0.3)
  figure = Figure((width, height), settings.dpi)
  grid = figure.subplots(rows, columns, squeeze=False, sharey=sharey, sharex=sharex).ravel()
  for axes in grid[count:]:
    axes.remove()
  return figure, grid[:count]


def set_title(figure: Figure, records: pd.DataFrame, title: str, *more: str) -> None:
  """Write a title at the top, and small below it the caption of the records."""
  points = 72 * figure.get_figheight()
  figure.set_layout_engine('constrained', rect=(0, 0, 1, 1 - 32 / points))
  figure.text(0.5, 1 - 4 / points, title, ha='center', va='top', fontsize='large')
  figure.suptitle('; '.join([_caption(records), *more]), y=1 - 18 / points, color='0.35')


def finish(figure: Figure, records: pd.DataFrame, title: str, *more: str) -> None:
  """Write title and caption above the panels and their common legend below them."""
  set_title(figure, records, title, *more)
  entries: dict[str, Any] = {}
  for axes in figure.axes:
    handles, labels = axes.get_legend_handles_labels()
    entries |= zip(labels, handles)
  # As many columns as fit, at most two below each panel.
  side_by_side = len({axes.get_position().x0 for axes in figure.axes})
  most = min(2 * side_by_side, len(entries))
  for columns in range(most, 0, -1):
    legend = figure.legend([*entries.values()], [*entries], loc='outside lower center', ncols=columns)
    if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
      break
    legend.remove()


def _caption(records: pd.DataFrame) -> str:
  """Experiment and scale of the records, and each field of settings that has one value."""
  words = [str(records['experiment'].iloc[0])]
  for name, values in records.items():
    if name == 'scale' or lists.is_column(name):
      first, *others = values.unique()
      if first != '' and not others:
        words.append(f'{name} {lists.shown(first)}')
  return ', '.join(words)


def number_of(counts: Iterable[int], over: str) -> str:
  """n and what it counts, as in 'HMMs: n = 4 to 7'."""
  few, most = min(counts), max(counts)
  return f'{over}: n = {few} to {most}' if few < most else f'{over}: n = {most}'


def counted(counts: Iterable[int], over: str) -> str:
  """`number_of`, and how `draw_line` shows the spread, as in 'HMMs: n = 4, each a dot'."""
  shown = [number_of(counts, over)]
  if min(counts) < LEAST_FOR_INTERVAL and max(counts) > 1:
    shown.append('each a dot')
  if max(counts) >= LEAST_FOR_INTERVAL:
    shown.append('95% t intervals')
  return ', '.join(shown)


def trim_percent_ticks(axis: Axis) -> None:
  """Remove ticks above 100%: an axis may reach past what an accuracy can be, a tick should not."""
  low, high = axis.get_view_interval()
  ticks = axis.get_ticklocs()
  axis.set_ticks(ticks[(low <= ticks) & (ticks <= min(high, 100))])


def log_axis_with_zero(axes: Axes) -> None:
  """Make the y axis of percentages logarithmic, and linear from 0.1 down to 0."""
  top = axes.get_ylim()[1]
  axes.set_yscale('symlog', linthresh=_LOG_TICKS[1], linscale=0.5)
  axes.set_yticks(_LOG_TICKS[_LOG_TICKS <= top])
  axes.yaxis.set_major_formatter('{x:g}')
  axes.minorticks_off()
  # An interval that reaches below 0 is cut there; a mark at 0 is whole.
  axes.set_ylim(-_LOG_TICKS[1] / 4, top)


@matplotlib.style.context('default')
def save(figure: Figure, stem: pathlib.Path) -> list[pathlib.Path]:
  """Write the figure in each of FORMATS, the same bytes for the same records; return the paths."""
  paths = {extension: stem.with_suffix(f'.{extension}') for extension in FORMATS}
  for extension, path in paths.items():
    files.write_whole(path, as_bytes(figure, extension))
    # The layout of the first format is that of all. With an engine, even 'none', matplotlib draws everything twice; by
    # its default settings None is no engine.
    figure.set_layout_engine(None)
  return list(paths.values())


@styled
def as_bytes(figure: Figure, extension: str) -> bytes:
  """The figure in one of FORMATS."""
  buffer = io.BytesIO()
  figure.savefig(buffer, format=extension, metadata=FORMATS[extension])
  return buffer.getvalue()
