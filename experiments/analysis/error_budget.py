"""Where the missing accuracy goes: signed steps from 100% to what the paper's protocol reaches, from records alone.

A step is the difference of two methods on the same test inputs, paired by task within the HMM; an interval is over
HMMs, of each the mean over its tasks first. Steps may be negative: then the next method does better.
"""

from collections.abc import Iterator
import itertools
import textwrap
from typing import Any

from matplotlib.axes import Axes
import matplotlib.figure
import matplotlib.patheffects
import numpy as np
import pandas as pd

from experiments.analysis import figures, report, statistics
from experiments.analysis.report import Points
from experiments.analysis.statistics import Interval
from experiments.analysis.tables import Table, table
from experiments.settings.grid import Point
from experiments.settings.groups import FigureSettings
from experiments.settings.methods import METHODS

# The fields that name an HMM: a distribution and the number of a draw of it.
_HMM = [*Point._fields, 'trial']

# A way from 100% to the protocol on BERT: in order, what is lost and the model and the method that it leads to.
Way = tuple[tuple[str, str, str], ...]
# By title. A prompt of BERT is of another class than the oracle prompt, and may beat it.
WAYS: dict[str, Way] = {
  'linear head': (
    ('degeneracy', 'exact', 'head_best'),
    ('sample and surrogate', 'exact', 'head_converged'),
    ('approximation', 'bert', 'head_converged'),
    ('optimisation', 'bert', 'head'),
  ),
  'attention head': (
    ('degeneracy, sample and surrogate', 'exact', 'attention_converged'),
    ('approximation', 'bert', 'attention_converged'),
    ('optimisation', 'bert', 'attention'),
  ),
  'prompt (one of BERT is of another class than the oracle prompt, and may beat it)': (
    ('beyond the oracle prompt', 'exact', 'oracle_prompt'),
    ('optimisation on exact G', 'exact', 'prompt'),
    ('BERT for exact G', 'bert', 'prompt'),
  ),
}

# Of each loss: colour and hatch, of which the hatch is what grey leaves.
_STYLES = {
  'degeneracy': ('#000000', ''),
  'sample and surrogate': ('#0072B2', '\\\\\\\\'),
  'approximation': ('#E69F00', '....'),
  'optimisation': ('#56B4E9', ''),
  'degeneracy, sample and surrogate': ('#0072B2', '////'),
  'beyond the oracle prompt': ('#D55E00', '////'),
  'optimisation on exact G': ('#56B4E9', 'xxxx'),
  'BERT for exact G': ('#E69F00', 'oo'),
}
# Makes a black interval readable on a black bar.
_HALO: list[matplotlib.patheffects.AbstractPathEffect] = [
  matplotlib.patheffects.withStroke(linewidth=2.4, foreground='white')
]


def levels(records: pd.DataFrame, way: Way) -> np.ndarray:
  """Accuracies in percent, a row for each HMM that has tasks with all stages of a way, the mean over these.

  The columns are 100% and the stages in order. Of several distributions each HMM counts once.
  """
  accuracy = records.pivot(index=[*_HMM, 'task'], columns=['model', 'method'], values='accuracy')
  stages = [tuple(stage) for _, *stage in way]
  of_tasks = 100 * accuracy.reindex(columns=stages).dropna().astype(float)
  return np.insert(of_tasks.groupby(level=_HMM).mean().to_numpy(), 0, 100.0, axis=1)


def lost(records: pd.DataFrame, way: Way) -> list[Interval]:
  """The points of accuracy that each step of a way loses, with intervals over HMMs."""
  return [statistics.mean_interval(losses) for losses in -np.diff(levels(records, way)).T]


def at_most(records: pd.DataFrame) -> pd.DataFrame:
  """The records with the accuracy that no linear head passes in place of that of the best one that was found."""
  return records.assign(accuracy=records['accuracy_at_most'].fillna(records['accuracy']))


def largest_loss(records: pd.DataFrame, way: Way) -> str | None:
  """The loss that is significantly above 0 and above every other loss of the way; None where there is none.

  That is where the 95% interval of the difference over HMMs is above 0; both with the best head that was found and
  with the most that any head may reach. Heads between these two are not checked.
  """
  found = set[str | None]()
  for rows in (records, at_most(records)):
    losses = -np.diff(levels(rows, way))
    first = losses.mean(0).argmax()
    differences = losses[:, [first]] - losses
    # The largest itself is compared with no loss at all.
    differences[:, first] = losses[:, first]
    is_apart = all(one.mean - one.half_width > 0 for one in map(statistics.mean_interval, differences.T))
    found.add(way[first][0] if is_apart else None)
  return found.pop() if len(found) == 1 else None


def _complete(records: pd.DataFrame) -> Iterator[tuple[str, Way, Points]]:
  """The title and way of each that all stages were run of, by kind of text, with the records of each distribution."""
  points = statistics.by_point(records).items()
  for (title, way), text in itertools.product(WAYS.items(), ('memory', 'vanilla')):
    whole = {point: rows for point, rows in points if report.text_name(point) == text and len(levels(rows, way))}
    if whole:
      yield f'{title}, {text} text', way, whole


def _size(points: Points) -> tuple[str, list[str]]:
  """The size in which distributions of one kind of text differ, and its value in each."""
  for field, name in (('num_states', '|H|'), ('num_cells', 'N'), ('memory_size', '|M|')):
    values = [str(getattr(point, field)) for point in points]
    if len(set(values)) == len(values):
      return name, values
  return 'distribution', [str(point) for point in points]


def tables(records: pd.DataFrame) -> dict[str, Table]:
  """A table for each way and kind of text that all stages were run of: a row a distribution, and one of all."""
  found = {}
  for title, way, points in _complete(records):
    name, sizes = _size(points)
    rows = [{name: size} | _row(of_point, way) for size, of_point in zip(sizes, points.values())]
    if len(points) > 1:
      rows.append({name: 'all'} | _row(pd.concat(points.values()), way))
    whole = f'Points of accuracy lost, mean ± half-width of the 95% interval over HMMs: {title}'
    found[f'budget_{way[-1][-1]}_{report.text_name(next(iter(points)))}'] = table(whole, rows)
  return found


def _row(records: pd.DataFrame, way: Way) -> report.Row:
  reached = levels(records, way)
  row = {'n': str(len(reached))}
  for (loss, model, method), interval in zip(way, lost(records, way)):
    row[f'{loss}\nto {METHODS[method].label}, {report.MODEL_NAMES[model]}'] = str(interval)
    if method == 'head_best':
      row['of that\nproven'] = str(lost(at_most(records), way)[0])
  return row | {'accuracy': f'{reached[:, -1].mean():.1f}', 'largest': largest_loss(records, way) or 'not significant'}


@figures.styled
def figure(records: pd.DataFrame, settings: FigureSettings) -> matplotlib.figure.Figure | None:
  """A panel for each way and kind of text: the steps at each distribution; None where no way has all stages."""
  drawn = list(_complete(records))
  if not drawn:
    return None
  whole, panels = figures.panels(settings, rows=len(drawn))
  for axes, (title, way, points) in zip(panels, drawn):
    _draw(axes, way, list(points.values()))
    name, sizes = _size(points)
    axes.set_xticks(range(len(sizes)), sizes)
    axes.set(xlabel=name, ylabel='test accuracy (%)')
    counts = [len(levels(rows, way)) for rows in points.values()]
    axes.set_title(textwrap.fill(f'{title}; {figures.counted(counts, "HMMs", spread=False)}', 66))
    axes.axhline(100, color='0.6', linewidth=0.9, linestyle=':', zorder=0)
  figures.trim_percent_ticks(axes)
  figures.finish(whole, records, 'steps with 95% t intervals over HMMs; hollow: a gain')
  return whole


def _draw(axes: Axes, way: Way, groups: list[pd.DataFrame]) -> None:
  """The steps of each distribution side by side, each from where it starts to where it ends; hollow where it gains."""
  width = 0.84 / len(way)
  ends = np.array([levels(records, way).mean(0) for records in groups]).T
  half_widths = np.array([[interval.half_width for interval in lost(records, way)] for records in groups]).T
  for index, ((loss, _, method), half_width) in enumerate(zip(way, half_widths)):
    at = np.arange(len(groups)) + width * (index - (len(way) - 1) / 2)
    start, end, (colour, hatch) = ends[index], ends[index + 1], _STYLES[loss]
    # The legend shows a loss, also where the first step is a gain.
    for gains, face, edge in ((False, colour, 'white'), (True, 'white', colour)):
      shown: dict[str, Any] = dict(facecolor=face, edgecolor=edge, hatch=hatch, zorder=2)
      height, label = np.where((end > start) == gains, end - start, np.nan), '_' if gains else loss
      axes.bar(at, height, 0.9 * width, bottom=start, label=label, **shown)
    line: dict[str, Any] = dict(color='black', linewidth=1.2)
    axes.hlines(end, at - 0.45 * width, at + 0.45 * width, zorder=4, **line)
    error = axes.errorbar(at, end, half_width, fmt='none', ecolor='black', elinewidth=1, capsize=2, zorder=5)
    for artist in error.get_children():
      artist.set_path_effects(_HALO)
    if method == 'head_best':
      proven = [levels(at_most(records), way)[:, 1].mean() for records in groups]
      line |= dict(linestyle=(0, (2, 1)), path_effects=_HALO, zorder=6, label='proven degeneracy')
      axes.hlines(proven, at - 0.6 * width, at + 0.6 * width, **line)
