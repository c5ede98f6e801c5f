"""A figure inside the page: its drawing, and its values at their places, where the pointer shows them."""

import base64
from collections.abc import Iterator
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
import matplotlib.figure
from matplotlib.ticker import FuncFormatter
import numpy as np

from experiments.analysis.figures import as_bytes
from experiments.analysis.table import Table, table

# A larger SVG is shown as a PNG; more values have no place.
_MOST_BYTES, _MOST_VALUES = 600_000, 3000


class Picture(NamedTuple):
  """A figure: its width, its drawing as a data URL, its values, and their places in percent from left and top."""

  inches: float
  source: str
  values: Table
  places: list[np.ndarray]


def picture(name: str, figure: matplotlib.figure.Figure, svg: bytes) -> Picture:
  """The figure, which has been drawn as `svg`."""
  kind, data = ('svg+xml', svg) if len(svg) <= _MOST_BYTES else ('png', as_bytes(figure, 'png'))
  source = f'data:image/{kind};base64,{base64.b64encode(data).decode()}'
  values = [value for axes in figure.axes for value in _values(axes)][:_MOST_VALUES]
  rows, places = [row for row, _ in values], [place for _, place in values]
  return Picture(figure.get_figwidth(), source, table(f'Values of {name}', rows), places)


def _values(axes: Axes) -> Iterator[tuple[dict[str, str], np.ndarray]]:
  """The row and the place of each point of the lines in the legend, and of those named after one, with a _ in front."""
  names, to_figure = axes.get_legend_handles_labels()[1], axes.figure.transFigure.inverted()
  for line in axes.lines:
    name = str(line.get_label()).removeprefix('_')
    values, intervals = np.asarray(line.get_xydata(), float), _intervals(axes, f'_{name}')
    for (x, y), at in zip(values, to_figure.transform(line.get_transform().transform(values))):
      if name in names and np.isfinite(at).all():
        place, value = {axes.get_xlabel() or 'x': _shown(axes, x)}, {axes.get_ylabel() or 'y': f'{y:.4g}'}
        row = {'panel': axes.get_title(), 'line': name, **place, **value, '95% interval': intervals.get(x, '')}
        # As it was before `figures.with_labels`.
        row = {heading.replace('\\$', '$'): cell.replace('\\$', '$') for heading, cell in row.items()}
        yield row, 100 * (at * (1, -1) + (0, 1))


def _shown(axes: Axes, x: float) -> str:
  """A place on the x axis: its number, or the nearest of labels that were given."""
  formatter, ticks = axes.xaxis.get_major_formatter(), axes.get_xticks()
  return formatter(ticks[np.abs(ticks - x).argmin()]) if isinstance(formatter, FuncFormatter) else f'{x:.4g}'


def _intervals(axes: Axes, name: str) -> dict[float, str]:
  """The error bars of this name, by place."""
  bars = [bar for bar in axes.containers if isinstance(bar, ErrorbarContainer) and bar.get_label() == name]
  segments = [segment for bar in bars for segment in bar.lines[2][0].get_segments()]
  return {low[0]: f'[{low[1]:.4g}, {high[1]:.4g}]' for low, high in segments}
