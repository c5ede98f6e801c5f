"""Where the missing accuracy goes: signed steps from 100% to what the paper's protocol reaches, from records alone.

A step is the difference of two methods on the same test inputs, paired by task within the HMM; an interval is over
HMMs, of each the mean over its tasks first. Steps may be negative: then the next method does better.
"""

import itertools
from typing import NamedTuple

from matplotlib.artist import setp
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

# A model and a method on it.
Stage = tuple[str, str]
# The fields that name an HMM: a distribution and the number of a draw of it.
_HMM = [*Point._fields, 'trial']


class Budget(NamedTuple):
  """Stages that lead from 100% to the protocol on BERT, and what is lost on the way to each.

  Attributes:
    title: of its table and panel.
    stages: in order, after 100%.
    losses: the name of what is lost on the way to each stage.
  """

  title: str
  stages: tuple[Stage, ...]
  losses: tuple[str, ...]


BUDGETS = (
  Budget(
    'linear head',
    (('exact', 'head_best'), ('exact', 'head_converged'), ('bert', 'head_converged'), ('bert', 'head')),
    ('degeneracy', 'sample and surrogate', 'approximation', 'optimisation'),
  ),
  Budget(
    'attention head',
    (('exact', 'attention_converged'), ('bert', 'attention_converged'), ('bert', 'attention')),
    ('degeneracy, sample and surrogate', 'approximation', 'optimisation'),
  ),
  Budget(
    'prompt (one of BERT is of another class than the oracle prompt, and may beat it)',
    (('exact', 'oracle_prompt'), ('exact', 'prompt'), ('bert', 'prompt')),
    ('beyond the oracle prompt', 'optimisation on exact G', 'BERT for exact G'),
  ),
)

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
_HALO = [matplotlib.patheffects.withStroke(linewidth=2.4, foreground='white')]


class Step(NamedTuple):
  """One step of a budget, in percent, over the HMMs that have tasks with all of its stages.

  Attributes:
    loss: what it is called.
    start: mean accuracy before it.
    end: mean accuracy after it.
    lost: the interval of start - end over HMMs.
  """

  loss: str
  start: float
  end: float
  lost: Interval


def _levels(records: pd.DataFrame, budget: Budget) -> np.ndarray:
  """Accuracies in percent, a row for each HMM, the mean over its tasks; a column for 100% and for each stage."""
  accuracy = records.pivot(index=[*_HMM, 'task'], columns=['model', 'method'], values='accuracy')
  of_tasks = 100 * accuracy.reindex(columns=list(budget.stages)).dropna().astype(float)
  return np.insert(of_tasks.groupby(level=_HMM).mean().to_numpy(), 0, 100.0, axis=1)


def steps(records: pd.DataFrame, budget: Budget) -> list[Step]:
  """The steps of a budget over the HMMs of records; none where no task has all stages.

  Args:
    records: of one distribution, or of several, of which each HMM counts once.
    budget: one of BUDGETS.
  """
  levels = _levels(records, budget)
  pairs = itertools.pairwise(levels.T) if len(levels) else ()
  lost = [(start.mean(), end.mean(), statistics.mean_interval(start - end)) for start, end in pairs]
  return [Step(loss, *step) for loss, step in zip(budget.losses, lost)]


def at_most(records: pd.DataFrame) -> pd.DataFrame:
  """The records with the accuracy that no linear head passes in place of that of the best one that was found."""
  return records.assign(accuracy=records['accuracy_at_most'].fillna(records['accuracy']))


def largest_loss(records: pd.DataFrame, budget: Budget) -> str | None:
  """The loss that is significantly above 0 and above every other loss of the budget; None where there is none.

  That is where the 95% interval of the difference over HMMs is above 0; both with the best head that was found and
  with the most that any head may reach. Heads between these two are not checked.
  """
  names = {_largest(rows, budget) for rows in (records, at_most(records))}
  return names.pop() if len(names) == 1 else None


def _largest(records: pd.DataFrame, budget: Budget) -> str | None:
  losses = -np.diff(_levels(records, budget))
  first = losses.mean(0).argmax()
  # The largest itself is compared with no loss at all.
  others = np.where(np.arange(losses.shape[1]) == first, 0, losses)
  differences = [statistics.mean_interval(values) for values in (losses[:, [first]] - others).T]
  return budget.losses[first] if all(one.mean - one.half_width > 0 for one in differences) else None


def _complete(records: pd.DataFrame) -> list[tuple[Budget, str, Points]]:
  """Each budget and kind of text of which there are all stages, with the records of each of its distributions."""
  found = []
  for budget, text in itertools.product(BUDGETS, ('memory', 'vanilla')):
    points = statistics.by_point(records).items()
    whole = {point: rows for point, rows in points if report.text_name(point) == text and steps(rows, budget)}
    found += [(budget, text, whole)] if whole else []
  return found


def _size(points: Points) -> tuple[str, list[str]]:
  """The size in which distributions of one kind of text differ, and its value in each."""
  for field, name in (('num_states', '|H|'), ('num_cells', 'N'), ('memory_size', '|M|')):
    values = [str(getattr(point, field)) for point in points]
    if len(set(values)) == len(values):
      return name, values
  return 'distribution', [str(point) for point in points]


def tables(records: pd.DataFrame) -> dict[str, Table]:
  """A table for each budget and kind of text that all stages were run of: a row a distribution, and one of all."""
  found = {}
  for budget, text, points in _complete(records):
    name, sizes = _size(points)
    rows = [{name: size} | _row(of_point, budget) for size, of_point in zip(sizes, points.values())]
    if len(points) > 1:
      rows.append({name: 'all'} | _row(pd.concat(points.values()), budget))
    title = f'Points of accuracy lost, mean ± half-width of the 95% interval over HMMs: {budget.title}, {text} text'
    found[f'budget_{budget.stages[-1][1]}_{text}'] = table(title, rows)
  return found


def _row(records: pd.DataFrame, budget: Budget) -> report.Row:
  taken = steps(records, budget)
  row = {'n': str(len(taken[0].lost.values))}
  for (model, method), step in zip(budget.stages, taken):
    row[f'{step.loss}\nto {METHODS[method].label}, {report.MODEL_NAMES[model]}'] = str(step.lost)
    if method == 'head_best':
      row['of that\nproven'] = str(steps(at_most(records), budget)[0].lost)
  return row | {'accuracy': f'{taken[-1].end:.1f}', 'largest': largest_loss(records, budget) or 'not significant'}


@figures.styled
def figure(records: pd.DataFrame, settings: FigureSettings) -> matplotlib.figure.Figure | None:
  """A panel for each budget and kind of text: the steps at each distribution; None where no budget has all stages."""
  drawn = _complete(records)
  if not drawn:
    return None
  whole, panels = figures.panels(settings, rows=len(drawn))
  for axes, (budget, text, points) in zip(panels, drawn):
    _draw(axes, budget, list(points.values()))
    name, sizes = _size(points)
    axes.set_xticks(range(len(sizes)), sizes)
    axes.set(xlabel=name, ylabel='test accuracy (%)')
    counts = [len(_levels(rows, budget)) for rows in points.values()]
    axes.set_title(f'{budget.title}, {text} text; {figures.counted(counts, "HMMs", spread=False)}')
    axes.axhline(100, color='0.6', linewidth=0.9, linestyle=':', zorder=0)
  figures.trim_percent_ticks(axes)
  figures.finish(whole, figures.caption(records, 'steps with 95% t intervals over HMMs; hollow: a gain'))
  return whole


def _draw(axes: Axes, budget: Budget, groups: list[pd.DataFrame]) -> None:
  """The steps of each distribution side by side, each from where it starts to where it ends; hollow where it gains."""
  width = 0.84 / len(budget.losses)
  taken = [steps(records, budget) for records in groups]
  for index, loss in enumerate(budget.losses):
    at = np.arange(len(groups)) + width * (index - (len(budget.losses) - 1) / 2)
    of_loss = [of_group[index] for of_group in taken]
    start, end, half_width = np.array([(step.start, step.end, step.lost.half_width) for step in of_loss]).T
    colour, hatch = _STYLES[loss]
    for shown, face in (
      (end <= start, dict(facecolor=colour, edgecolor='white', label=loss)),
      (end > start, dict(facecolor='white', edgecolor=colour)),
    ):
      axes.bar(at, np.where(shown, end - start, np.nan), 0.9 * width, bottom=start, hatch=hatch, zorder=2, **face)
    axes.hlines(end, at - 0.45 * width, at + 0.45 * width, color='black', linewidth=1.2, zorder=4)
    line = axes.errorbar(at, end, half_width, fmt='none', ecolor='black', elinewidth=1.0, capsize=2, zorder=5)
    setp(line.get_children(), path_effects=_HALO)
    if budget.stages[index][1] == 'head_best':
      proven = [steps(at_most(records), budget)[0].end for records in groups]
      dashes = dict(color='black', linewidth=1.2, linestyle=(0, (2, 1)), zorder=6, path_effects=_HALO)
      axes.hlines(proven, at - 0.6 * width, at + 0.6 * width, label='proven degeneracy', **dashes)
