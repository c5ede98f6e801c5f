"""The error budget: signed steps from 100% to the accuracy that the paper's protocol reaches, only from records.

A step is the difference of two fits on the same test inputs, paired by task within the HMM. An interval is over HMMs,
of the mean over each one's tasks. A negative step means that the next fit does better. The best head is fitted to the
test texts, so it counts with its accuracy on validation texts.
"""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
import numpy as np
import pandas as pd

from experiments.analysis import figures
from experiments.analysis.grid_tables import Grid
from experiments.analysis.statistics import holm, Interval, interval, LEVEL, stratified
from experiments.analysis.tables import select, Table, table
from experiments.settings.groups import FigureSettings

_LINEAR = 'linear readability'
# From 100% to the protocol on BERT, by title: each loss in order, and the fit that it leads to.
WAYS = {
  'linear head': {
    'information lost': 'exact neighbours',
    _LINEAR: 'exact head_best',
    'surrogate': 'exact head_whitened',
    'approximation': 'bert head_whitened',
    'conditioning': 'bert head_converged',
    'optimisation': 'bert head',
  },
  'attention head': {
    'readability, sample and surrogate': 'exact attention_converged',
    'approximation': 'bert attention_converged',
    'optimisation': 'bert attention',
  },
  'prompt': {
    'beyond the oracle prompt': 'exact oracle_prompt',
    'approximation and optimisation': 'bert prompt',
  },
}
# Colour and hatch of each loss; the hatch tells them apart in grey.
_STYLES = {
  'information lost': ('0.45', ''),
  _LINEAR: ('0.82', ''),
  'surrogate': ('#0072B2', '\\\\\\\\'),
  'approximation': ('#E69F00', '....'),
  'conditioning': ('#CC79A7', '||||'),
  'optimisation': ('#56B4E9', ''),
  'readability, sample and surrogate': ('#0072B2', '////'),
  'beyond the oracle prompt': ('#D55E00', '////'),
  'approximation and optimisation': ('#E69F00', 'xxxx'),
}
# Panels of `conditioning`: title, model, and field of the record.
_CONDITIONS = (
  ('exact G, by ridge', 'exact', 'ridge_accuracies'),
  ('BERT, by ridge', 'bert', 'ridge_accuracies'),
  ('own model, by ridge', 'own', 'ridge_accuracies'),
  ("exact G, by noise in units of BERT's error", 'bert', 'noise_accuracies'),
)
# The column of what is proven to be lost by every linear head, of the first two losses.
PROVEN = 'no linear head,\nproven'
_TITLE = 'Accuracy lost in points, mean ± 95% over HMMs; largest: p < 0.05, Holm over rows'


def losses(grid: Grid) -> dict[tuple[str, str], pd.DataFrame]:
  """The points that each step loses, by title and text of each way that was run whole on a kind of text.

  A row is an HMM, its `size` and `trial`, with the mean over its tasks. A column is a loss, or PROVEN.
  """
  found = {}
  for text, records in grid.records.groupby('text'):
    of_text = grid._replace(records=records, rows=[*grid.rows, 'size'])
    accuracies = 100 * of_text.wide()
    # Only the best head has this field.
    at_most = 100 * of_text.wide('accuracy_at_most').max(axis=1)
    for title, way in WAYS.items():
      reached = accuracies.reindex(columns=[*way.values()]).dropna()
      if reached.empty:
        continue
      before = reached.shift(axis=1, fill_value=100.0)
      lost = (before - reached).set_axis([*way], axis=1)
      if _LINEAR in way:
        proven = (100 - at_most).reindex(lost.index)
        lost.insert(2, PROVEN, proven.fillna(100 - reached[way[_LINEAR]]))
      hmms = lost.groupby(level=['size', 'trial'], sort=False)
      found[title, str(text)] = hmms.mean()
  return found


def intervals(lost: pd.DataFrame) -> dict[str, Interval]:
  """The mean of each loss over HMMs, stratified by size."""
  return {loss: stratified(lost[loss], ['size']) for loss in lost}


def largest(lost: pd.DataFrame) -> tuple[str, float]:
  """The largest loss, and the p-value that it exceeds 0 and all other losses; NaN if untestable.

  The p-value is the largest of the t tests of these differences over HMMs.
  """
  lost = lost.drop(columns=PROVEN, errors='ignore')
  first = lost.mean().idxmax()
  differences = -lost.sub(lost[first], axis=0)
  # The largest itself is compared with 0.
  differences[first] = lost[first]
  return first, np.max([difference.p_value for difference in intervals(differences).values()])


def tables(grid: Grid) -> dict[str, Table]:
  """The table `budget`: a row for each way, kind of text and size, and one for all sizes if there are several."""
  rows = []
  for (way, text), lost in losses(grid).items():
    by_size = dict(iter(lost.groupby(level='size', sort=False)))
    if len(by_size) > 1:
      by_size['all'] = lost
    for size, of_size in by_size.items():
      row = {'way': way, 'text': text, 'size': size, 'n': len(of_size)}
      row['largest'], row['p'] = largest(of_size)
      rows.append(row | intervals(of_size))
  if not rows:
    return {}
  frame = pd.DataFrame(rows)
  is_significant = holm(frame.pop('p')) < LEVEL
  frame['largest'] = frame['largest'].where(is_significant, 'not significant')
  return {'budget': table(_TITLE, frame)}


@figures.styled
def figure(grid: Grid, settings: FigureSettings) -> Figure | None:
  """A panel for each way and kind of text: the steps at each size; None if no way has all fits."""
  drawn = losses(grid)
  if not drawn:
    return None
  whole, panels = figures.panels(settings, len(drawn), columns=1)
  for axes, ((title, text), lost) in zip(panels, drawn.items()):
    sizes = lost.groupby(level='size', sort=False)
    _draw(axes, sizes.agg(interval))
    counted = figures.counted(sizes.size(), grid.over)
    axes.set_title(f'{title}, {text} text; {counted}')
    axes.set_ylabel('test accuracy (%)')
    axes.axhline(100, color='0.6', linewidth=0.9, linestyle=':', zorder=0)
  figures.trim_percent_ticks(panels[-1].yaxis)
  # The legend alone shows this one.
  panels[-1].bar(0, np.nan, facecolor='white', edgecolor='0.4', label='hollow: a gain')
  figures.finish(whole, grid.records, 'Accuracy lost at each step')
  return whole


def _draw(axes: Axes, cells: pd.DataFrame) -> None:
  """Draw the steps of each size, a row of intervals, side by side from 100% to the end; a gain is hollow."""
  means = cells.map(lambda one: one.mean)
  half_widths = cells.map(lambda one: one.half_width)
  lost = means.drop(columns=PROVEN, errors='ignore')
  ends = 100 - lost.cumsum(axis=1)
  width = 0.84 / lost.shape[1]
  line: dict[str, Any] = dict(color='black', linewidth=1.2, zorder=4)
  # The middle of each size's first step.
  at = np.arange(len(lost)) - width * (lost.shape[1] - 1) / 2
  for loss in lost:
    _draw_bars(axes, at, 0.9 * width, lost[loss], ends[loss])
    axes.errorbar(
      at,
      ends[loss],
      half_widths[loss],
      fmt='none',
      ecolor='black',
      elinewidth=1,
      capsize=2,
      zorder=4,
    )
    axes.hlines(ends[loss], at - 0.45 * width, at + 0.45 * width, **line)
    if loss == _LINEAR:
      axes.hlines(
        100 - means[PROVEN],
        at - 0.6 * width,
        at + 0.6 * width,
        linestyle=':',
        label='no linear head, proven',
        **line,
      )
    at = at + width
  axes.set_xticks(range(len(lost)), lost.index)


def _draw_bars(axes: Axes, at: np.ndarray, width: float, lost: pd.Series, ends: pd.Series) -> None:
  """A bar for each distribution, from the end of a step up by what it loses; `lost` has its name."""
  colour, hatch = _STYLES[str(lost.name)]
  is_gain = lost < 0
  faces, edges = np.where(is_gain, 'white', colour), np.where(is_gain, colour, 'white')
  axes.bar(at, lost, width, bottom=ends, color=faces, edgecolor=edges, hatch=hatch, zorder=2)
  # The legend shows a loss, also where the first step is a gain.
  axes.bar(0, np.nan, color=colour, edgecolor='white', hatch=hatch, label=lost.name)


def conditioning(grid: Grid, settings: FigureSettings) -> Figure | None:
  """Accuracy of converged heads against the ridge, on each model, and against noise on the exact G; a line per size."""
  parts = []
  for title, model, field in _CONDITIONS:
    records = select(grid.records, method='head_whitened', model=model).dropna(subset=field)
    long = records.explode(field, ignore_index=True)
    # A place on the x axis, and the accuracy there.
    long['x'], long['accuracy'] = long[field].str[0].astype(float), long[field].str[1]
    parts.append(long.assign(panel=title))
  return figures.lines(
    pd.concat(parts),
    settings,
    'Accuracy of converged heads',
    x='x',
    by='size',
    unit=grid.unit,
    over=grid.over,
    panel='panel',
    xlabel='ridge, or noise',
  )
