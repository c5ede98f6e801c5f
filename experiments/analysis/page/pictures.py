"""A figure inside the page: its SVG, in which each point of a line has its value and interval as a label."""

import base64
from collections.abc import Iterator
import contextlib
import re

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
import matplotlib.figure
import numpy as np

from experiments.analysis import figures
from experiments.analysis.page.html import Picture
from experiments.analysis.table import format_number, table

# A larger SVG is shown as a PNG; more points are not labelled.
_MOST_BYTES, _MOST_POINTS = 600_000, 3000
_POINT = Markup('<circle class="value" tabindex="-1" role="img" cx="{:.1f}" cy="{:.1f}" r="6" aria-label="{}"/>')

# The cells of a row by the headings of their columns.
Row = dict[str, str]


def picture(name: str, figure: matplotlib.figure.Figure, svg: bytes) -> Picture:
  """The figure, last drawn as `svg`, and the table of the values of its lines."""
  points = list(_points(figure))[:_MOST_POINTS]
  if len(svg) > _MOST_BYTES:
    data = base64.b64encode(figures.as_bytes(figure, 'png')).decode()
    markup = Markup('<img src="data:image/png;base64,{}" alt="{}">').format(data, name)
  else:
    circles = Markup().join(_POINT.format(*place, _label(axes, row)) for axes, place, row in points)
    # Without the XML declaration, metadata with addresses, and comments with texts.
    drawing = re.sub(r'<metadata>.*?</metadata>|<!--.*?-->', '', svg.decode().partition('<svg ')[2], flags=re.DOTALL)
    opening = Markup('<svg role="group" aria-label="{}" ').format(name)
    markup = opening + Markup(drawing.replace('</svg>', f'{circles}</svg>'))
  rows = [row for _, _, row in points]
  return Picture(figure.get_figwidth(), markup, table(f'Values of {name}', rows) if rows else None)


def _label(axes: Axes, row: Row) -> str:
  interval = f' [{row["low"]}, {row["high"]}]' if row['low'] else ''
  line = ', '.join(filter(None, [row['panel'], row['line']]))
  return f'{line}; {_plain(axes.get_xlabel())} {row["at"]}: {row["value"]}{interval}'


def _points(figure: matplotlib.figure.Figure) -> Iterator[tuple[Axes, tuple[float, float], Row]]:
  """The points of the named lines, and of those named after one: panel, place in the SVG, row of the table."""
  for axes in figure.axes:
    ticks = {tick: label.get_text() for tick, label in zip(axes.get_xticks(), axes.get_xticklabels())}
    names = {line.get_label() for line in axes.lines}
    for line in axes.lines:
      own = str(line.get_label())
      if own.startswith('_') and own[1:] not in names:
        continue
      intervals, values = _intervals(axes, own), np.asarray(line.get_xydata(), float)
      with _dots_per_inch(figure, 72):
        places = line.get_transform().transform(values)
      for (x, y), (across, up) in zip(values, places):
        if np.isfinite([across, up]).all():
          # A tick that is a formula has a number too.
          at = ticks.get(x, '$')
          row = {'panel': axes.get_title(), 'line': own.removeprefix('_'), 'at': f'{x:.4g}' if '$' in at else at}
          row['value'] = f'{y:.4g}'
          row['low'], row['high'] = (format_number(end, '.4g') for end in intervals.get(x, (np.nan, np.nan)))
          # The origin of an SVG is at its top.
          place = across, 72 * figure.get_figheight() - up
          yield axes, place, {heading: _plain(text) for heading, text in row.items()}


@contextlib.contextmanager
def _dots_per_inch(figure: matplotlib.figure.Figure, dpi: float) -> Iterator[None]:
  """The figure with other dots; an SVG has 72 an inch."""
  before = figure.get_dpi()
  figure.set_dpi(dpi)
  yield
  figure.set_dpi(before)


def _intervals(axes: Axes, line: str) -> dict[float, tuple[float, float]]:
  """The ends of the error bars that are named after a line, by place."""
  bars = [bar for bar in axes.containers if isinstance(bar, ErrorbarContainer) and bar.get_label() == f'_{line}']
  segments = [segment for bar in bars for segment in bar.lines[2][0].get_segments()]
  return {low[0]: (low[1], high[1]) for low, high in segments}


def _plain(text: str) -> str:
  """A text as it was before `figures.with_labels`."""
  return text.replace('\\$', '$')
