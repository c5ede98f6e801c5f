"""A figure inside the page: its drawing, and its values at their places, where the pointer shows them."""

import base64
from collections.abc import Iterator
import itertools
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.category import StrCategoryFormatter
from matplotlib.container import BarContainer, ErrorbarContainer
import matplotlib.figure
from matplotlib.ticker import FuncFormatter
import numpy as np

from experiments.analysis.tables import Table, table

# A larger SVG is shown as a PNG; more values have no place.
_MOST_BYTES, _MOST_VALUES = 600_000, 3000
# How matplotlib labels what nobody named.
_UNNAMED = ('_child', '_container', '_nolegend_')


class Picture(NamedTuple):
  """A figure: its width, its drawing as a data URL, its values, and their places in percent from left and top."""

  inches: float
  source: str
  values: Table
  places: list[np.ndarray]


def picture(name: str, figure: matplotlib.figure.Figure, svg: bytes, png: bytes) -> Picture:
  """The figure, which has been drawn as `svg` and `png`."""
  kind, data = ('svg+xml', svg) if len(svg) <= _MOST_BYTES else ('png', png)
  source = f'data:image/{kind};base64,{base64.b64encode(data).decode()}'
  values = [value for axes in figure.axes for value in _values(axes)][:_MOST_VALUES]
  rows, places = [row for row, _ in values], [place for _, place in values]
  return Picture(figure.get_figwidth(), source, table(f'Values of {name}', rows), places)


def _values(axes: Axes) -> Iterator[tuple[dict[str, str], np.ndarray]]:
  """The row and the place of each point of what has a name, in the legend or with a _ in front that keeps it out."""
  to_figure = axes.figure.transFigure.inverted()
  for label, transform, points, starts in _series(axes):
    for point, start, at in zip(points, starts, to_figure.transform(transform.transform(points))):
      if not label.startswith(_UNNAMED) and np.isfinite(at).all():
        yield _row(axes, label.lstrip('_'), point, start), 100 * (at * (1, -1) + (0, 1))


def _series(axes: Axes) -> Iterator[tuple[Any, ...]]:
  """Label, transform and points of lines and of ends of bars, and the y where each bar that floats starts, else 0."""
  for line in axes.lines:
    yield line.get_label(), line.get_transform(), line.get_xydata(), itertools.repeat(0)
  for parts in axes.containers:
    if isinstance(parts, BarContainer):
      is_upright = parts.orientation == 'vertical'
      ends = [bar.get_corners()[2:] if is_upright else bar.get_corners()[1:3] for bar in parts]
      yield parts.get_label(), axes.transData, np.mean(ends, 1), [bar.get_y() * is_upright for bar in parts]
    elif parts[0]:
      yield parts.get_label(), axes.transData, parts[0].get_xydata(), itertools.repeat(0)


def _row(axes: Axes, name: str, point: np.ndarray, start: float) -> dict[str, str]:
  """The cells of a point. A row of a dot plot is named once."""
  x, y = (_shown(axis, value) for axis, value in zip((axes.xaxis, axes.yaxis), point))
  cells = {'panel': axes.get_title(), 'line': name, axes.get_xlabel() or 'x': x}
  cells[axes.get_ylabel() or axes.figure.axes[0].get_ylabel() or 'y'] = '' if y == name else y
  cells['change'] = f'{point[1] - start:+.4g}' if start else ''
  cells['95% interval'] = _interval(axes, name, point, start)
  # As it was before `figures.with_labels`.
  return {heading.replace('\\$', '$'): cell.replace('\\$', '$') for heading, cell in cells.items()}


def _shown(axis: Axis, value: float) -> str:
  """A place on an axis: its number, or the nearest of labels that were given."""
  formatter, ticks = axis.get_major_formatter(), axis.get_ticklocs()
  is_named = isinstance(formatter, (FuncFormatter, StrCategoryFormatter))
  return formatter(ticks[np.abs(ticks - value).argmin()]) if is_named else f'{value:.4g}'


def _interval(axes: Axes, name: str, point: np.ndarray, start: float) -> str:
  """The error bar of this name through a point, less the start of a bar; '' without one."""
  for bar in axes.containers:
    if isinstance(bar, ErrorbarContainer) and str(bar.get_label()).lstrip('_') == name:
      for ends in bar.lines[2][0].get_segments():
        # An error bar of unknown length has no ends.
        if len(ends) and np.allclose(point.clip(*ends), point):
          return '[{:.4g}, {:.4g}]'.format(*ends[:, 0 if bar.has_xerr else 1] - start)
  return ''
