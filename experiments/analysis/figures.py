"""Figures of records by one grammar: `lines` of means with their intervals, a panel for each value of a field."""

from collections.abc import Callable, Iterable, Sequence
import io
import pathlib
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
import matplotlib.style
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
# Ticks of a logarithmic axis of percentages.
_LOG_TICKS = (0, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)

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
  then: Callable[[Axes], object] = lambda axes: None,
) -> Figure | None:
  """A line for each value of `by` through the means of a field over units; None without records.

  Positive numbers stand by their logarithms, so that slopes mean something; other values of x at equal distances. Lines
  stand a little beside each other, so that none hides another. Three units or more have their 95% interval.

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
    then: is called with the axes of each panel.
  """
  records = records.dropna(subset=field)
  if records.empty:
    return None
  style = style or cycle(records[by].unique())
  is_number = records[x].dtype.kind in 'if'
  codes, values_of_x = pd.factorize(records[x], sort=is_number)
  at = _places(values_of_x)
  records = records.assign(at=at[codes])
  groups = records.groupby(panel or (lambda index: ''), sort=False)
  labels = [lists.shown(value).replace('e-0', 'e-') for value in values_of_x]
  turned: Style = {}
  if len(''.join(labels)) > 30:
    turned = dict(rotation=45, ha='right', rotation_mode='anchor')
  figure, grid = panels(settings, groups.ngroups, columns, sharex=True)
  counts: list[int] = []
  for axes, (value, rows) in zip(grid, groups):
    values = by_unit(rows, [by, 'at'], field, unit)
    counts.extend(values.groupby(level=[0, 1]).size())
    _draw_lines(axes, values, cell, style, at, is_number)
    axes.set_title(value)
    axes.set_xticks(at, labels, **turned)
    then(axes)
  for axes in grid[::columns]:
    axes.set_ylabel(ylabel)
  # No panel is below these.
  for axes in grid[-columns:]:
    axes.set_xlabel(xlabel)
    axes.tick_params(labelbottom=True)
  finish(figure, records, title, number_of(counts, over), 'bars: 95% t intervals')
  return figure


def _draw_lines(
  axes: Axes,
  values: pd.Series,
  cell: Callable[[Any], Interval],
  style: Callable[[Any], Style],
  at: np.ndarray,
  is_number: bool,
) -> None:
  """Draw the means of each value of the first level of the index, beside each other at each place, with intervals.

  Nothing lies between places that are names.
  """
  cells = values.groupby(level=[0, 1], sort=False).agg(cell)
  names = cells.index.unique(0)
  step = _step(at, len(names))
  first = step * (1 - len(names)) / 2
  for index, name in enumerate(names):
    of_line = cells[name].sort_index()
    places = of_line.index + first + step * index
    means = np.array([one.mean for one in of_line])
    (line,) = axes.plot(places, means, zorder=3, **style(name))
    if not is_number:
      line.set_linestyle('')
    colour = line.get_color()
    ends = np.transpose([one.ends for one in of_line])
    lengths = abs(ends - means)
    axes.errorbar(places, means, lengths, fmt='none', ecolor=colour, elinewidth=0.9)


def _step(at: np.ndarray, count: int) -> float:
  """The distance of so many lines at one place, which leaves neighbouring places apart."""
  if len(at) < 2:
    return 1.0
  room = 0.55 * np.diff(at).min()
  return min(room / count, 0.012 * np.ptp(at))


def _places(values: Any) -> np.ndarray:
  """The places on the x axis of distinct values in their order."""
  numbers = np.asarray(values)
  if numbers.dtype.kind in 'if' and (numbers > 0).all():
    return np.log(numbers)
  return np.arange(len(numbers), dtype=float)


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


def panels(settings: FigureSettings, count: int = 1, columns: int = 4, **shared: Any) -> tuple[Figure, Any]:
  """A figure and its panels, at most `columns` side by side, which share the y axis unless `shared` says otherwise."""
  columns = min(count, columns)
  rows = -(-count // columns)
  width = settings.width * (0.4 * columns + 0.6)
  height = settings.height * (0.7 * rows + 0.3)
  figure = Figure((width, height), settings.dpi)
  options: dict[str, Any] = {'sharey': True, **shared}
  grid = figure.subplots(rows, columns, squeeze=False, **options).ravel()
  for axes in grid[count:]:
    axes.remove()
  return figure, grid[:count]


def set_title(figure: Figure, records: pd.DataFrame, title: str, *more: str) -> None:
  """Write a title at the top, and below it the experiment of the records and each of their settings of one value."""
  values = {name: records[name].unique() for name in records if name == 'scale' or lists.is_column(name)}
  words = [f'{name} {lists.shown(given[0])}' for name, given in values.items() if len(given) == 1 and given[0] != '']
  caption = '; '.join([', '.join([records['experiment'].iloc[0], *words]), *more])
  figure.suptitle(f'{title}\n{caption}')


def finish(figure: Figure, records: pd.DataFrame, title: str, *more: str) -> None:
  """Write title and caption above the panels and their common legend below them."""
  set_title(figure, records, title, *more)
  entries: dict[str, Any] = {}
  for axes in figure.axes:
    handles, labels = axes.get_legend_handles_labels()
    entries |= zip(labels, handles)
  # Most labels take less than 2.8 inches.
  columns = max(1, int(figure.get_figwidth() / 2.8))
  figure.legend([*entries.values()], [*entries], loc='outside lower center', ncols=columns)


def number_of(counts: Iterable[int], over: str) -> str:
  """n and what it counts, as in 'HMMs: n = 4 to 7'."""
  ends = sorted({min(counts), max(counts)})
  return f'{over}: n = {" to ".join(map(str, ends))}'


def log_axis_with_zero(axes: Axes) -> None:
  """Make the y axis of percentages logarithmic, and linear from 0.1 down to 0."""
  _, top = axes.get_ylim()
  axes.set_yscale('symlog', linthresh=0.1, linscale=0.5)
  axes.set_yticks(_LOG_TICKS, map('{:g}'.format, _LOG_TICKS))
  axes.minorticks_off()
  # An interval that reaches below 0 is cut there; a mark at 0 is whole.
  axes.set_ylim(-0.03, top)


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
