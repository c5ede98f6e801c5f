"""A figure inside the page: the SVG on file, in which each point of a line has its value and interval as a label."""

import base64
from collections.abc import Iterator
import pathlib
import re

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
import matplotlib.figure
import numpy as np

from experiments.analysis.page.html import Picture
from experiments.analysis.table import format_number, table
from experiments.records import files

# A larger SVG is shown as a PNG; more points are not labelled.
_MOST_BYTES, _MOST_POINTS = 600_000, 3000
_POINT = Markup('<circle class="value" tabindex="-1" role="img" cx="{:.1f}" cy="{:.1f}" r="6" aria-label="{}"/>')

# The cells of a row by the headings of their columns.
Row = dict[str, str]


def picture(figure: matplotlib.figure.Figure, stem: pathlib.Path) -> Picture:
  """The figure, last drawn into the SVG at `stem`, and the table of the values of its lines."""
  svg = files.read_bytes(stem.with_suffix('.svg')).decode()
  points = list(_points(figure))[:_MOST_POINTS]
  if len(svg) > _MOST_BYTES:
    data = base64.b64encode(files.read_bytes(stem.with_suffix('.png'))).decode()
    markup = Markup('<img src="data:image/png;base64,{}" alt="{}">').format(data, stem.name)
  else:
    circles = Markup().join(_POINT.format(*place, _label(axes, row)) for axes, place, row in points)
    # Without the XML declaration, metadata with addresses, and comments with texts.
    drawing = re.sub(r'<metadata>.*?</metadata>|<!--.*?-->', '', svg[svg.index('<svg ') + 5 :], flags=re.DOTALL)
    opening = Markup('<svg role="group" aria-label="{}" ').format(stem.name)
    markup = opening + Markup(drawing.replace('</svg>', f'{circles}</svg>'))
  rows = [row for _, _, row in points]
  return Picture(stem.name, markup, table(f'Values of {stem.name}', rows) if rows else None)


def _label(axes: Axes, row: Row) -> str:
  interval = f' [{row["low"]}, {row["high"]}]' if row['low'] else ''
  line = ', '.join(filter(None, [row['panel'], row['line']]))
  return f'{line}; {_plain(axes.get_xlabel())} {row["at"]}: {row["value"]}{interval}'


def _points(figure: matplotlib.figure.Figure) -> Iterator[tuple[Axes, np.ndarray, Row]]:
  """The points of the named lines, and of those named after one: panel, place in the SVG, row of the table."""
  # An SVG has 72 dots an inch, and its origin at the top.
  figure.set_dpi(72)
  for axes in figure.axes:
    ticks = {tick: label.get_text() for tick, label in zip(axes.get_xticks(), axes.get_xticklabels())}
    names = {line.get_label() for line in axes.lines}
    for line in axes.lines:
      own = str(line.get_label())
      name = own.removeprefix('_')
      if own.startswith('_') and name not in names:
        continue
      intervals, values = _intervals(axes, own), np.asarray(line.get_xydata(), float)
      for (x, y), (across, up) in zip(values, line.get_transform().transform(values)):
        if np.isfinite([across, up]).all():
          # A tick that is a formula has a number too.
          at = ticks.get(x, '$')
          row = {'panel': axes.get_title(), 'line': name, 'at': f'{x:.4g}' if '$' in at else at, 'value': f'{y:.4g}'}
          row |= {end: format_number(value, '.4g') for end, value in zip(('low', 'high'), intervals.get(x, (np.nan,) * 2))}
          place = np.array([across, 72 * figure.get_figheight() - up])
          yield axes, place, {heading: _plain(text) for heading, text in row.items()}


def _intervals(axes: Axes, line: str) -> dict[float, tuple[float, float]]:
  """The ends of the error bars that are named after a line, by place."""
  bars = [bar for bar in axes.containers if isinstance(bar, ErrorbarContainer) and bar.get_label() == f'_{line}']
  segments = [segment for bar in bars for segment in bar.lines[2][0].get_segments()]
  return {low[0]: (low[1], high[1]) for low, high in segments}


def _plain(text: str) -> str:
  """A text as it was before `figures.with_labels`."""
  return text.replace('\\$', '$')
