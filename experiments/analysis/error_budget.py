"""Where the missing accuracy goes: signed steps from 100% to what the paper's protocol reaches, from records alone.

A step is the difference of two methods on the same test inputs, paired by task within the HMM; an interval is over
HMMs, of each the mean over its tasks first. Steps may be negative: then the next method does better.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from matplotlib.axes import Axes
import matplotlib.figure
import matplotlib.patches
import matplotlib.patheffects
import numpy as np
import pandas as pd

from experiments.analysis import figures, report, statistics
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
  """One step of a budget, in percent, over the HMMs that have tasks with both of its stages.

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


def steps(records: pd.DataFrame, budget: Budget, field: str = 'accuracy') -> list[Step | None]:
  """The steps of a budget over the HMMs of records; None where no task has both stages of a step.

  Args:
    records: of one distribution, or of several, of which each HMM counts once.
    budget: one of BUDGETS.
    field: of the best head: 'accuracy', of the one found, or 'accuracy_at_most', which no head passes.
  """
  levels, found = _levels(records, budget, field), list[Step | None]()
  for index, loss in enumerate(budget.losses):
    means = levels[[index, index + 1]].dropna().groupby(level=_HMM).mean()
    lost = statistics.mean_interval(means[index] - means[index + 1])
    found.append(Step(loss, means[index].mean(), means[index + 1].mean(), lost) if len(means) else None)
  return found


def _proven(records: pd.DataFrame, budget: Budget) -> Step | None:
  """The least that the first step loses, by proofs; None where no best head is the first stage."""
  return steps(records, budget, 'accuracy_at_most')[0] if budget.stages[0][1] == 'head_best' else None


def _levels(records: pd.DataFrame, budget: Budget, field: str) -> pd.DataFrame:
  """Accuracies in percent, a row for each HMM and task and a column for each stage by its number, 0 being 100%."""
  places = {stage: place for place, stage in enumerate(budget.stages, 1)}
  place = pd.Series([places.get(stage) for stage in zip(records['model'], records['method'])], records.index)
  value = records['accuracy'].where(records['method'] != 'head_best', records[field]).astype(float)
  reached = records.assign(place=place, value=100 * value).dropna(subset='place')
  levels = reached.pivot(index=[*_HMM, 'task'], columns='place', values='value')
  return levels.reindex(columns=range(len(places) + 1)).fillna({0: 100.0})


def largest_loss(records: pd.DataFrame, budget: Budget) -> str | None:
  """The loss that is significantly above 0 and above every other loss of the budget; None where there is none.

  That is where the 95% interval of the difference over HMMs, on tasks with all stages, is above 0; both with the
  best head that was found and with the most that any head may reach. Heads between these two are not checked.
  """
  names = {_largest(_levels(records, budget, field), budget) for field in ('accuracy', 'accuracy_at_most')}
  return names.pop() if len(names) == 1 else None


def _largest(levels: pd.DataFrame, budget: Budget) -> str | None:
  losses = -levels.dropna().diff(axis=1).iloc[:, 1:].groupby(level=_HMM).mean()
  if losses.empty:
    return None
  first = losses.mean().idxmax()
  differences = [losses[first], *(losses[first] - losses[other] for other in losses if other != first)]
  is_apart = all(mean - half_width > 0 for mean, half_width, _ in map(statistics.mean_interval, differences))
  return budget.losses[first - 1] if is_apart else None


def _complete(records: pd.DataFrame) -> Iterator[tuple[Budget, str, dict[Point, pd.DataFrame]]]:
  """Each budget and kind of text of which there are all stages, with the records of each of its distributions."""
  for budget in BUDGETS:
    for text in ('memory', 'vanilla'):
      points = statistics.by_point(report.text_records(records, text))
      whole = {point: rows for point, rows in points.items() if None not in steps(rows, budget)}
      if whole:
        yield budget, text, whole


def _title(budget: Budget, text: str, records: pd.DataFrame) -> str:
  return f'{budget.title}, {text} text' if (records['memory_size'] > 0).nunique() > 1 else budget.title


def _size(points: dict[Point, pd.DataFrame]) -> tuple[str, list[str]]:
  """The size in which distributions of one kind of text differ, and its value in each."""
  if not next(iter(points)).memory_size:
    return '|H|', [str(point.num_states) for point in points]
  if len({point.num_cells for point in points}) == len(points):
    return 'N', [str(point.num_cells) for point in points]
  if len({(point.num_states, point.num_cells) for point in points}) == 1:
    return '|M|', [str(point.memory_size) for point in points]
  return 'distribution', [str(point) for point in points]


def _num_hmms(points: dict[Point, pd.DataFrame], budget: Budget) -> str:
  counts = [len(step.lost.values) for rows in points.values() for step in steps(rows, budget) if step]
  few, most = min(counts), max(counts)
  return f'n = {few} to {most}' if few < most else f'n = {most}'


def tables(records: pd.DataFrame) -> dict[str, Table]:
  """A table for each budget and kind of text that all stages were run of: a row a distribution, and one of all."""
  found = {}
  for budget, text, points in _complete(records):
    name, sizes = _size(points)
    rows = [_row(name, size, of_point, budget) for size, of_point in zip(sizes, points.values())]
    if len(points) > 1:
      rows.append(_row(name, 'all', pd.concat(points.values()), budget))
    title = f'Points of accuracy lost, mean ± half-width of the 95% interval over HMMs: {_title(budget, text, records)}'
    found[f'budget_{budget.stages[-1][1]}_{text}'] = table(title, rows)
  return found


def _row(name: str, size: str, records: pd.DataFrame, budget: Budget) -> report.Row:
  taken = [step for step in steps(records, budget) if step]
  row = {name: size, 'n': str(max(len(step.lost.values) for step in taken))}
  for (model, method), step in zip(budget.stages, taken):
    row[f'{step.loss}\nto {METHODS[method].label}, {report.MODEL_NAMES[model]}'] = str(step.lost)
    if step is taken[0] and (proven := _proven(records, budget)):
      row['of that\nproven'] = str(proven.lost)
  return row | {'accuracy': f'{taken[-1].end:.1f}', 'largest': largest_loss(records, budget) or 'not significant'}


@figures.styled
def figure(records: pd.DataFrame, settings: FigureSettings) -> matplotlib.figure.Figure | None:
  """A panel for each budget and kind of text: the steps at each distribution; None where no budget has all stages."""
  drawn = list(_complete(records))
  if not drawn:
    return None
  size = 1.5 * settings.width, settings.height * (0.15 + 0.6 * len(drawn))
  whole = matplotlib.figure.Figure(size, settings.dpi)
  for axes, (budget, text, points) in zip(whole.subplots(len(drawn), 1, sharey=True, squeeze=False)[:, 0], drawn):
    for place, rows in enumerate(points.values()):
      _draw(axes, place, rows, budget)
    name, sizes = _size(points)
    axes.set_xticks(range(len(sizes)), sizes)
    axes.set_xlabel(name)
    axes.set_ylabel('test accuracy (%)')
    axes.set_title(f'{_title(budget, text, records)}; {_num_hmms(points, budget)}')
    axes.axhline(100, color='0.6', linewidth=0.9, linestyle=':', zorder=0)
    handles, _ = axes.get_legend_handles_labels()
    handles += [matplotlib.patches.Patch(label=loss, **_face(loss, False)) for loss in budget.losses]
    axes.legend(handles=handles, loc='upper left', bbox_to_anchor=(1, 1))
  figures.trim_percent_ticks(axes)
  whole.suptitle(figures.caption(records, 'steps with 95% t intervals over HMMs; hollow: a gain'))
  return whole


def _face(loss: str, gains: bool) -> dict[str, Any]:
  colour, hatch = _STYLES[loss]
  return dict(facecolor='white' if gains else colour, edgecolor=colour if gains else 'white', hatch=hatch)


def _draw(axes: Axes, place: int, records: pd.DataFrame, budget: Budget) -> None:
  """The steps of one distribution side by side, each from where it starts to where it ends; hollow where it gains."""
  width = 0.84 / len(budget.losses)
  stroke: dict[str, Any] = dict(color='black', marker='', linewidth=1.2)
  for index, step in enumerate(step for step in steps(records, budget) if step):
    at = place + width * (index - (len(budget.losses) - 1) / 2)
    face = _face(step.loss, step.end > step.start)
    axes.bar(at, step.end - step.start, 0.9 * width, bottom=step.start, zorder=2, **face)
    axes.plot([at - 0.45 * width, at + 0.45 * width], [step.end] * 2, linestyle='-', zorder=4, **stroke)
    if np.isfinite(step.lost.half_width):
      line: dict[str, Any] = dict(fmt='none', ecolor='black', elinewidth=1.0, capsize=2, zorder=5)
      _, caps, (stem,) = axes.errorbar([at], [step.end], yerr=[step.lost.half_width], **line)
      for artist in (*caps, stem):
        artist.set_path_effects(_HALO)
  if bound := _proven(records, budget):
    at, label = place - width * (len(budget.losses) - 1) / 2, '_' if place else 'proven degeneracy'
    style: dict[str, Any] = dict(linestyle=(0, (2, 1)), zorder=6, path_effects=_HALO, **stroke)
    axes.plot([at - 0.6 * width, at + 0.6 * width], [bound.end] * 2, label=label, **style)
