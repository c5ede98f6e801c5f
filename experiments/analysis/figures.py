"""Parts of figures, drawn only from records, all in the style of `figures.mplstyle`."""

from collections.abc import Callable, Iterable
import io
import pathlib
from typing import Any

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
import matplotlib.figure
import matplotlib.style
from matplotlib.transforms import ScaledTranslation
import numpy as np
import pandas as pd

from experiments.analysis import statistics
from experiments.analysis.statistics import Interval, percent_interval
from experiments.records import files
from experiments.settings import lists
from experiments.settings.fields import printable
from experiments.settings.groups import FigureSettings
from experiments.settings.methods import METHODS

# Metadata of each format, without the time of drawing: the same records give the same bytes.
FORMATS = {'png': {}, 'pdf': {'CreationDate': None}, 'svg': {'Date': None}}

# Fewest values for a t interval; fewer are shown one by one.
LEAST_FOR_INTERVAL = 5
# Marker and its size of a majority class that no line joins.
BAR = '_', 25

# From a place and a value to x and y.
Turn = Callable[[Any, Any], tuple[Any, Any]]

# A decorator, and no `with` block: figures have this style instead of the user's.
styled = matplotlib.style.context(pathlib.Path(__file__).parent / 'figures.mplstyle', after_reset=True)


def with_labels(records: pd.DataFrame) -> pd.DataFrame:
  """The records with texts that a figure shows as they are: printable, and no formulas."""
  return records.map(lambda value: printable(value).replace('$', r'\$') if isinstance(value, str) else value)


def panels(
  settings: FigureSettings, count: int = 1, columns: int = 4, sharey: bool = True, sharex: bool = False
) -> tuple[matplotlib.figure.Figure, Any]:
  """A figure and its panels, at most `columns` side by side."""
  columns = min(count, columns)
  rows = -(-count // columns)
  size = settings.width * (0.4 * columns + 0.6), settings.height * (0.7 * rows + 0.3)
  figure = matplotlib.figure.Figure(size, settings.dpi)
  grid = figure.subplots(rows, columns, squeeze=False, sharey=sharey, sharex=sharex).ravel()
  for axes in grid[count:]:
    axes.remove()
  return figure, grid[:count]


def style_of(method: str) -> dict[str, Any]:
  """The line style of a method."""
  return dict(color=METHODS[method].colour, marker=METHODS[method].marker, linestyle=METHODS[method].dash)


def upright(place: Any, value: Any) -> tuple[Any, Any]:
  """x and y of a value whose place is on the x axis."""
  return place, value


def sideways(place: Any, value: Any) -> tuple[Any, Any]:
  """x and y of a value whose place is a row."""
  return value, place


def draw_line(
  axes: Axes,
  samples: dict[float, np.ndarray],
  label: str,
  style: dict[str, Any],
  beside: float = 0.0,
  interval: Callable[[np.ndarray], Interval] = percent_interval,
  turn: Turn = upright,
) -> None:
  """Draw a line through the mean at each place, with the 95% interval of five values or more, else each as a dot.

  The line is shifted by `beside` points, so that none hides another; its dots stand a little to the left, or below.
  Intervals and dots are named after it, with a _ in front, which keeps them out of the legend.
  """

  def move(artists: Iterable[Artist], points: float) -> None:
    # After drawing, so that axis limits follow the places themselves.
    shift = ScaledTranslation(*turn(points / 72, 0), axes.figure.dpi_scale_trans)
    for artist in artists:
      artist.set_transform(axes.transData + shift)

  intervals = {place: interval(values) for place, values in samples.items()}
  means = [each.mean for each in intervals.values()]
  move(axes.plot(*turn(list(intervals), means), label=label, zorder=3, **style), beside)
  colour = style['color']
  barred = {place: each for place, each in intervals.items() if len(each.values) >= LEAST_FOR_INTERVAL}
  dotted = {place: each for place, each in intervals.items() if 1 < len(each.values) < LEAST_FOR_INTERVAL}
  if barred:
    centers = np.array([each.mean for each in barred.values()])
    lengths = np.abs(np.array([each.ends for each in barred.values()]).T - centers)
    at, sizes = turn(list(barred), centers), turn(lengths, None)
    look: dict[str, Any] = dict(fmt='none', ecolor=colour, elinewidth=0.9, label=f'_{label}')
    bars = axes.errorbar(at[0], at[1], sizes[0], sizes[1], **look)
    move(bars.get_children(), beside)
  if dotted:
    dot: dict[str, Any] = dict(marker='.', markersize=4.5, markeredgewidth=0.5, linestyle='', color=colour)
    places = np.repeat(list(dotted), [len(each.values) for each in dotted.values()])
    values, fill = np.concatenate([each.values for each in dotted.values()]), style.get('markerfacecolor', colour)
    move(axes.plot(*turn(places, values), markerfacecolor=fill, label=f'_{label}', **dot), beside - 4)


def draw_majority(
  axes: Axes,
  samples: dict[float, np.ndarray],
  label: str = 'majority class',
  dash: str = '-.',
  turn: Turn = upright,
) -> None:
  """The mean accuracy, or error, of the majority class at each place: a line, or a bar if there is one place."""
  means = [values.mean() for values in samples.values()]
  # The legend shows marker and dash, so that there is one of them; the bar is as wide as the dash there.
  bar, length = BAR if turn is upright else ('|', 9)
  marker, dash = (bar, '') if len(samples) == 1 else ('', dash)
  axes.plot(
    *turn(list(samples), means),
    color='0.45',
    marker=marker,
    markersize=length,
    linestyle=dash,
    linewidth=1.4,
    label=label,
  )


def caption(records: pd.DataFrame, *more: str) -> str:
  """The caption of a figure: experiment, scale and seed of the records, fields that other records differ in, `more`."""
  others = [name for name in records if lists.is_column(name) and records[name].nunique() == 1]
  fields = [name for name in others if name not in ('seed', 'distribution')]
  words = (f'{name} {", ".join(map(str, records[name].unique()))}' for name in ('scale', 'seed', *fields))
  named = ', '.join([records['experiment'].iloc[0], *words])
  return '; '.join(filter(None, [named, statistics.process(records), *more]))


def set_title(figure: matplotlib.figure.Figure, title: str, records: pd.DataFrame, *more: str) -> None:
  """Write a title at the top, and small below it the caption of the records."""
  at = lambda points: 1 - points / 72 / figure.get_figheight()
  figure.set_layout_engine('constrained', rect=(0, 0, 1, at(32)))
  figure.text(0.5, at(4), title, ha='center', va='top', fontsize='large')
  figure.suptitle(caption(records, *more), y=at(18), color='0.35')


def finish(figure: matplotlib.figure.Figure, records: pd.DataFrame, title: str, *more: str) -> None:
  """Write title and caption above the panels and their common legend below them."""
  set_title(figure, title, records, *more)
  entries = {label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels())}
  side_by_side = len({axes.get_position().x0 for axes in figure.axes})
  for columns in range(min(len(entries), 2 * side_by_side), 0, -1):
    legend = figure.legend(list(entries.values()), list(entries), loc='outside lower center', ncols=columns)
    if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
      break
    legend.remove()


def trim_percent_ticks(axis: Axis) -> None:
  """Remove ticks above 100%: an axis may reach past what an accuracy can be, a tick should not."""
  low, high = axis.get_view_interval()
  axis.set_ticks([tick for tick in axis.get_ticklocs() if low <= tick <= min(high, 100)])


def counted(counts: Iterable[int], unit: str, spread: bool = True) -> str:
  """n, what it counts, and how `draw_line` shows the spread, as in 'tasks of one HMM per size: n = 4, each a dot'."""
  few, most = min(counts), max(counts)
  dots, bars = few < LEAST_FOR_INTERVAL and most > 1, most >= LEAST_FOR_INTERVAL
  shown = ' or '.join(['each a dot'] * dots + ['95% t intervals'] * bars) if spread else ''
  return f'{unit}: n = {f"{few} to " * (few < most)}{most}{shown and ", "}{shown}'


@matplotlib.style.context('default')
def save(figure: matplotlib.figure.Figure, stem: pathlib.Path) -> list[pathlib.Path]:
  """Write the figure in each of FORMATS, the same bytes for the same records; return the paths."""
  paths = {extension: stem.with_suffix(f'.{extension}') for extension in FORMATS}
  for extension, path in paths.items():
    files.write_whole(path, as_bytes(figure, extension))
    # The layout of the first format is that of all. With an engine, even 'none', matplotlib draws everything twice; by
    # its default settings None is no engine.
    figure.set_layout_engine(None)
  return list(paths.values())


@styled
def as_bytes(figure: matplotlib.figure.Figure, extension: str) -> bytes:
  """The figure in one of FORMATS."""
  buffer = io.BytesIO()
  figure.savefig(buffer, format=extension, metadata=FORMATS[extension])
  return buffer.getvalue()
