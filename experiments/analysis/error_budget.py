"""The error budget: signed steps from 100% to the accuracy that the paper's protocol reaches, only from records.

A step is the difference of two fits on the same test inputs, paired by task within the HMM. An interval is over HMMs,
of the mean over each one's tasks. A negative step means that the next fit does better. The best head is fitted to the
test texts, so it counts with its accuracy on validation texts.
"""

from matplotlib.figure import Figure
import numpy as np
import pandas as pd

from experiments.analysis import figures
from experiments.analysis.grid_tables import Grid
from experiments.analysis.statistics import holm, Interval, interval, LEVEL, stratified
from experiments.analysis.tables import exploded, select, Table, table
from experiments.settings.groups import FigureSettings
from experiments.settings.methods import MODEL_NAMES

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
# Panels of `conditioning`: the field of the record, and its words after a model.
_CONDITIONS = {
  'ridge_accuracies': 'by ridge',
  'noise_accuracies': 'by noise on the exact G in units of its error',
}
# The column of what is proven to be lost by every linear head, of the first two losses.
PROVEN = 'no linear head,\nproven'
# Columns that tell distributions apart, and those of a figure.
_ROWS = ['experiment', 'scale', 'seed', 'text', 'joint_states', 'place']
_TITLE = 'Accuracy lost in points, mean ± 95% over HMMs; largest: p < 0.05, Holm over rows'


def losses(grid: Grid) -> dict[tuple[str, str], pd.DataFrame]:
  """The points that each step loses, by title and text of each way that was run whole on a kind of text.

  A row is an HMM, with the mean over its tasks. A column is a loss, or PROVEN.
  """
  grid = grid._replace(rows=_ROWS)
  # Only the best head has this field.
  at_most = 100 * grid.wide('accuracy_at_most').max(axis=1)
  found = {}
  for text, accuracies in grid.wide().groupby(level='text'):
    for title, way in WAYS.items():
      reached = 100 * accuracies.reindex(columns=[*way.values()]).dropna()
      before = reached.shift(axis=1, fill_value=100.0)
      lost = (before - reached).set_axis([*way], axis=1)
      if _LINEAR in way:
        proven = (100 - at_most).reindex(lost.index)
        lost.insert(2, PROVEN, proven.fillna(100 - reached[way[_LINEAR]]))
      if len(lost):
        found[title, str(text)] = lost.groupby(level=[*_ROWS, 'trial'], sort=False).mean()
  return found


def intervals(lost: pd.DataFrame) -> dict[str, Interval]:
  """The mean of each loss over HMMs, stratified by size."""
  return {loss: stratified(lost[loss], ['place']) for loss in lost}


def largest(lost: pd.DataFrame) -> tuple[str, float]:
  """The largest loss, and the p-value that it exceeds 0 and all other losses; NaN if untestable.

  The p-value is the largest of the t tests of these differences over HMMs.
  """
  lost = lost.drop(columns=PROVEN, errors='ignore')
  first = lost.mean().idxmax()
  # The largest itself is compared with 0.
  differences = lost.assign(**{first: 0.0}).rsub(lost[first], axis=0)
  return first, np.max([difference.p_value for difference in intervals(differences).values()])


def tables(grid: Grid) -> dict[str, Table]:
  """The table `budget`: a row for each way, kind of text and size, and one for all sizes if there are several."""
  rows = []
  for (way, text), lost in losses(grid).items():
    sizes = dict(iter(lost.groupby(level='place', sort=False)))
    if len(sizes) > 1:
      sizes['all'] = lost
    for size, of_size in sizes.items():
      row = {'way': way, 'text': text, 'size': size, 'n': len(of_size)}
      row['largest'], row['p'] = largest(of_size)
      row |= intervals(of_size)
      rows.append(row)
  if not rows:
    return {}
  frame = pd.DataFrame(rows)
  is_significant = holm(frame.pop('p')) < LEVEL
  frame['largest'] = frame['largest'].where(is_significant, 'not significant')
  return {'budget': table(_TITLE, frame)}


def figure(grid: Grid, settings: FigureSettings) -> Figure | None:
  """The points that each step loses against |M|^N |H|, a panel for each way and kind of text; None without one."""
  parts = [pd.DataFrame(columns=['points'])]
  for (way, text), lost in losses(grid).items():
    long = lost.rename_axis(columns='loss').stack().rename('points').reset_index()
    parts.append(long.assign(panel=f'{way}, {text} text'))
  return figures.lines(
    pd.concat(parts),
    settings,
    'Accuracy lost at each step',
    x='joint_states',
    by='loss',
    unit=['trial'],
    over=grid.over,
    field='points',
    xlabel='number of states |H|, with a memory |M||H|',
    ylabel='points lost',
    cell=interval,
    panel='panel',
    columns=1,
  )


def conditioning(grid: Grid, settings: FigureSettings) -> Figure | None:
  """Accuracy of converged heads against the ridge, on each model, and against noise on the exact G; a line per size."""
  parts = []
  for field, words in _CONDITIONS.items():
    pairs = exploded(select(grid.records, method='head_whitened'), field)
    places, accuracies = pairs[field].str[0].astype(float), pairs[field].str[1]
    panel = pairs['model'].map(MODEL_NAMES) + ', ' + words
    parts.append(pairs.assign(x=places, accuracy=accuracies, panel=panel))
  return figures.lines(
    pd.concat(parts),
    settings,
    'Accuracy of converged heads',
    x='x',
    by='place',
    unit=grid.unit,
    over=grid.over,
    panel='panel',
    columns=2,
    xlabel='ridge, or noise',
  )
