"""The error budget: signed steps from 100% to the accuracy that the paper's protocol reaches, only from records.

A step is the difference of two fits on the same test inputs, paired by task within the HMM. An interval is over HMMs,
of the mean over each one's tasks. A negative step means that the next fit does better. The best head is fitted to the
test texts, so it counts with its accuracy on validation texts.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
import numpy as np
import pandas as pd

from experiments.analysis import figures
from experiments.analysis.grid_tables import FITS, Grid, HEADINGS
from experiments.analysis.statistics import holm, Interval, LEVEL, stratified
from experiments.analysis.tables import Row, select, Table, table
from experiments.settings.groups import FigureSettings

# From 100% to the protocol on BERT, by title: each loss in order, and the fit that it leads to.
WAYS = {
  'linear head': {
    'degeneracy': 'exact head_best',
    'surrogate': 'exact head_whitened',
    'approximation': 'bert head_whitened',
    'conditioning': 'bert head_converged',
    'optimisation': 'bert head',
  },
  'attention head': {
    'degeneracy, sample and surrogate': 'exact attention_converged',
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
  'degeneracy': ('0.82', ''),
  'surrogate': ('#0072B2', '\\\\\\\\'),
  'approximation': ('#E69F00', '....'),
  'conditioning': ('#CC79A7', '||||'),
  'optimisation': ('#56B4E9', ''),
  'degeneracy, sample and surrogate': ('#0072B2', '////'),
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


class Losses(NamedTuple):
  """The points that each step of a way loses: a row for each HMM, the mean over its tasks, a column for each loss.

  Attributes:
    found: of the records.
    proven: with the proven bound on any linear head in place of the best head.
    rows: the levels of the index that tell distributions apart.
  """

  found: pd.DataFrame
  proven: pd.DataFrame
  rows: list[str]

  def groups(self) -> dict[Any, 'Losses']:
    """Those of each distribution, and of 'all' if there are several."""
    places = list(self.found.groupby(level=self.rows, sort=False))
    one_by_one = {place: self._replace(found=of, proven=self.proven.loc[of.index]) for place, of in places}
    return one_by_one if len(places) == 1 else {**one_by_one, ('all',): self}

  def over_hmms(self, values: pd.Series) -> Interval:
    """The mean over HMMs, stratified by distribution."""
    return stratified(of for _, of in values.groupby(level=self.rows))


def losses(grid: Grid, text: str, way: dict[str, str]) -> Losses:
  """The losses of a way on one kind of text; without rows if no task has all its fits."""
  records = select(grid.records, text=text)
  bound = records.assign(accuracy=records['accuracy_at_most'].fillna(records['accuracy']))
  return Losses(_lost(grid, records, way), _lost(grid, bound, way), grid.rows)


def _lost(grid: Grid, records: pd.DataFrame, way: dict[str, str]) -> pd.DataFrame:
  wide = 100 * records.pivot(index=grid.tasks, columns='fit', values='accuracy').astype(float)
  reached = wide.reindex(columns=[*way.values()]).dropna()
  reached.insert(0, 'start', 100.0)
  lost = -reached.diff(axis=1).iloc[:, 1:]
  return lost.set_axis([*way], axis=1).groupby(level=[*grid.rows, 'trial'], sort=False).mean()


def largest(of: Losses) -> tuple[str, float]:
  """The largest loss, and the p-value that it exceeds 0 and all other losses; NaN if untestable.

  The p-value is the largest of the t tests of these differences over HMMs, among the losses that were found and those
  that are proven; it is 1 if the two disagree on the largest. Heads between these two are not checked.
  """
  first = of.found.mean().idxmax()
  if of.proven.mean().idxmax() != first:
    return str(first), 1.0
  p_values = []
  for lost in (of.found, of.proven):
    differences = -lost.sub(lost[first], axis=0)
    # The largest itself is compared with 0.
    differences[first] = lost[first]
    p_values += [_p_above(of.over_hmms(values)) for _, values in differences.items()]
  return str(first), float(np.max(p_values))


def _p_above(difference: Interval) -> float:
  """The two-sided p-value if the mean is above 0, and 0 for equal values; else 1."""
  if difference.mean <= 0:
    return 1.0
  return difference.p_value if difference.standard_error else 0.0


def _budgets(grid: Grid) -> Iterator[tuple[str, str, Losses]]:
  """Title and text of each way that was run whole on a kind of text, with its losses."""
  for text in sorted(grid.records['text'].unique()):
    for title, way in WAYS.items():
      found = losses(grid, text, way)
      if len(found.found):
        yield title, text, found


def tables(grid: Grid) -> dict[str, Table]:
  """A table for each way and kind of text that was run whole: a row for each distribution, and one for all."""
  headings = [HEADINGS.get(column, column) for column in grid.rows]
  rows, p_values = list[tuple[str, str, Row, str]](), list[float]()
  for title, text, whole in _budgets(grid):
    for place, of in whole.groups().items():
      loss, p_value = largest(of)
      rows.append((title, text, dict(zip(headings, place)) | _cells(of, WAYS[title]), loss))
      p_values.append(p_value)
  titles, made = dict[str, str](), dict[str, list[Row]]()
  for (title, text, row, loss), p_value in zip(rows, holm(pd.Series(p_values, dtype=float))):
    name = f'budget_{title.replace(" ", "_")}_{text}'
    titles[name] = f'{title}, {text} text'
    made.setdefault(name, []).append({**row, 'largest': loss if p_value < LEVEL else 'not significant'})
  what = (
    f'Accuracy lost in points, mean ± half-width of the 95% interval over {grid.over}; largest loss with p < 0.05 '
    '(Holm over the rows of all budgets)'
  )
  return {name: table(f'{what}: {titles[name]}', rows) for name, rows in made.items()}


def _cells(of: Losses, way: dict[str, str]) -> Row:
  """The number of HMMs, each loss with its interval, and the accuracy at the end of the way."""
  row: Row = {'n': len(of.found)}
  for loss, fit in way.items():
    row[f'{loss}\nto {FITS[fit]}'] = of.over_hmms(of.found[loss])
    if fit == 'exact head_best':
      row['of that\nproven'] = of.over_hmms(of.proven[loss])
  return row | {'accuracy': f'{100 - of.found.sum(axis=1).mean():.1f}'}


@figures.styled
def figure(grid: Grid, settings: FigureSettings) -> Figure | None:
  """A panel for each way and kind of text: the steps at each distribution; None if no way has all fits."""
  drawn = list(_budgets(grid))
  if not drawn:
    return None
  named = grid.records[[*grid.rows, 'size']].drop_duplicates()
  sizes = {tuple(place): size for *place, size in named.itertuples(index=False)}
  whole, panels = figures.panels(settings, len(drawn), columns=1)
  for axes, (title, text, of) in zip(panels, drawn):
    groups = {sizes[place]: one for place, one in of.groups().items() if place in sizes}
    _draw(axes, [*groups.values()])
    axes.set_xticks(range(len(groups)), [*groups])
    counts = [len(one.found) for one in groups.values()]
    axes.set(title=f'{title}, {text} text; {figures.counted(counts, grid.over)}', ylabel='test accuracy (%)')
    axes.axhline(100, color='0.6', linewidth=0.9, linestyle=':', zorder=0)
  figures.trim_percent_ticks(panels[-1].yaxis)
  # The legend alone shows this one.
  panels[-1].bar(0, np.nan, facecolor='white', edgecolor='0.4', label='hollow: a gain')
  figures.finish(whole, grid.records, 'Accuracy lost at each step')
  return whole


def _draw(axes: Axes, groups: list[Losses]) -> None:
  """Draw the steps of each distribution side by side, from start to end; a gain is hollow."""
  lost = pd.DataFrame([of.found.mean() for of in groups])
  ends, width = 100 - lost.cumsum(axis=1), 0.84 / lost.shape[1]
  for index, loss in enumerate(lost):
    at = np.arange(len(groups)) + width * (index - (lost.shape[1] - 1) / 2)
    _draw_bars(axes, at, 0.9 * width, lost[loss], ends[loss])
    half_widths = [of.over_hmms(of.found[loss]).half_width for of in groups]
    axes.errorbar(at, ends[loss], half_widths, fmt='none', ecolor='black', elinewidth=1, capsize=2, zorder=4)
    line: dict[str, Any] = dict(color='black', linewidth=1.2, zorder=4)
    axes.hlines(ends[loss], at - 0.45 * width, at + 0.45 * width, **line)
    if loss == 'degeneracy':
      proven = [100 - of.proven[loss].mean() for of in groups]
      axes.hlines(proven, at - 0.6 * width, at + 0.6 * width, linestyle=':', label='proven degeneracy', **line)


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
    long = records.drop(columns='accuracy').explode(field)
    pairs = pd.DataFrame([*long[field]], long.index, ['place of x', 'accuracy'])
    parts.append(long.assign(panel=title, **pairs) if len(long) else long)
  records = pd.concat(parts)
  if records.empty:
    return None
  same: dict[str, Any] = dict(x='place of x', by='size', unit=grid.unit, over=grid.over, panel='panel')
  return figures.lines(records, settings, 'Accuracy of converged heads', xlabel='ridge, or noise', **same)
