"""The error budget: signed steps from 100% to the accuracy that the paper's protocol reaches, only from records.

A step is the difference of two methods on the same test inputs, paired by task within the HMM. An interval is over
HMMs, of the mean over each one's tasks. A negative step means that the next method does better. The best head is fitted
to the test texts, so it counts with its accuracy on validation texts (`statistics.on_fresh_texts`).
"""

from collections.abc import Iterator, Sequence
import itertools
import textwrap
from typing import Any

from matplotlib.axes import Axes
import matplotlib.figure
import numpy as np
import pandas as pd

from experiments.analysis import contrasts, figures, statistics
from experiments.analysis.statistics import Interval
from experiments.analysis.table import Row, Table, table
from experiments.settings.grid import Point
from experiments.settings.groups import FigureSettings
from experiments.settings.methods import METHODS, MODEL_NAMES

# The fields that name an HMM: a distribution and the number of a draw of it.
_HMM = [*Point._fields, 'trial']

# The records of each distribution.
Points = dict[Point, pd.DataFrame]
# A way from 100% to the protocol on BERT: in order, each loss with the model and the method that it leads to.
Way = tuple[tuple[str, str, str], ...]
# By title. A prompt of BERT is of another class than the oracle prompt, and may beat it.
WAYS: dict[str, Way] = {
  'linear head': (
    ('degeneracy', 'exact', 'head_best'),
    ('surrogate', 'exact', 'head_whitened'),
    ('approximation', 'bert', 'head_whitened'),
    ('conditioning', 'bert', 'head_converged'),
    ('optimisation', 'bert', 'head'),
  ),
  'attention head': (
    ('degeneracy, sample and surrogate', 'exact', 'attention_converged'),
    ('approximation', 'bert', 'attention_converged'),
    ('optimisation', 'bert', 'attention'),
  ),
  'prompt (a prompt of BERT may beat the oracle prompt, which is of another class)': (
    ('beyond the oracle prompt', 'exact', 'oracle_prompt'),
    ('approximation and optimisation', 'bert', 'prompt'),
  ),
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
# Panels of `conditioning`: title, model, field of the record, label of the x axis.
_CONDITIONS = (
  ('exact G', 'exact', 'ridge_accuracies', 'ridge'),
  ('pretrained BERT', 'bert', 'ridge_accuracies', 'ridge'),
  ('own model', 'own', 'ridge_accuracies', 'ridge'),
  ('exact G with noise', 'bert', 'noise_accuracies', "size of the noise, in units of BERT's error"),
)


def levels(records: pd.DataFrame, way: Way) -> tuple[pd.DataFrame, pd.DataFrame]:
  """Two frames of accuracies in percent: of the records, and with the bound on any linear head for the best head.

  A row for each HMM is the mean over its tasks that have all stages of a way. The columns are 100% and the stages in
  order.
  """
  bound = records.assign(accuracy=records['accuracy_at_most'].fillna(records['accuracy']))
  return _levels(records, way), _levels(bound, way)


def _levels(records: pd.DataFrame, way: Way) -> pd.DataFrame:
  """The mean accuracies in percent, a row for each HMM, a column for each stage of the way; column 0 is 100 percent."""
  accuracy = records.pivot(index=[*_HMM, 'task'], columns=['model', 'method'], values='accuracy')
  of_tasks = 100 * accuracy.reindex(columns=[tuple(stage) for _, *stage in way]).dropna().astype(float)
  means = of_tasks.groupby(level=_HMM).mean().set_axis(range(1, len(way) + 1), axis=1)
  means.insert(0, 0, 100.0)
  return means


def lost(reached: pd.DataFrame) -> list[Interval]:
  """The points of accuracy that each step of `levels` loses, with intervals over HMMs, stratified by distribution."""
  return [_over_sizes(losses) for _, losses in _losses(reached).items()]


def _losses(reached: pd.DataFrame) -> pd.DataFrame:
  """The points that each step of `levels` loses, a row for each HMM; columns are numbers of steps, from 1 on."""
  return -reached.diff(axis=1).drop(columns=0)


def _over_sizes(values: pd.Series) -> Interval:
  return statistics.stratified(of_size for _, of_size in values.groupby(level=[*Point._fields]))


def largest_loss(way: Way, reached: pd.DataFrame, bound: pd.DataFrame) -> tuple[str, float]:
  """The largest loss of the way, and the p-value that it exceeds 0 and all other losses; NaN if untestable.

  The p-value is the largest of the t tests of these differences over HMMs, both in the levels `reached` and in
  `bound`, the two that `levels` returns; it is 1 if the two disagree on the largest loss. Heads
  between these two are not checked.
  """
  names, p_values = set[str](), list[float]()
  for losses in map(_losses, (reached, bound)):
    first = losses.mean().idxmax()
    # The largest itself is compared with 0.
    differences = -losses.sub(losses[first], axis=0)
    differences[first] = losses[first]
    names.add(way[first - 1][0])
    p_values += [_p_above(_over_sizes(values)) for _, values in differences.items()]
  name = names.pop()
  # A second name is left where the two disagree.
  return name, 1.0 if names else float(np.max(p_values))


def _p_above(difference: Interval) -> float:
  """The two-sided p-value if the mean is above 0, and 0 for equal values; else 1."""
  if difference.mean <= 0:
    return 1.0
  return difference.p_value if difference.standard_error else 0.0


def _budgets(
  records: pd.DataFrame,
) -> Iterator[tuple[str, str, Way, str, dict[str, tuple[pd.DataFrame, pd.DataFrame]]]]:
  """The table's name, the title, the way, the heading and `levels` by label, of each way and text that was run whole.

  A label names a distribution, and the heading says by what.
  """
  process, points = statistics.process(records), statistics.by_point(records)
  for (title, way), text in itertools.product(WAYS.items(), ('memory', 'vanilla')):
    of_text = {point: levels(rows, way) for point, rows in points.items() if point.text == text}
    whole = {point: both for point, both in of_text.items() if len(both[0])}
    if whole:
      heading, labels = ('process', [process]) if process else _heading_and_labels([*whole])
      name = f'budget_{way[-1][-1]}_{text}'
      yield name, f'{title}, {text} text', way, heading, dict(zip(labels, whole.values()))


def _heading_and_labels(points: list[Point]) -> tuple[str, list[str]]:
  """The heading of labels that tell distributions of one kind of text apart, and the label of each.

  It is the first of |H|, N and |M| in which all differ, else the whole distribution.
  """
  for field, name in (('num_states', '|H|'), ('num_cells', 'N'), ('memory_size', '|M|')):
    values = [str(getattr(point, field)) for point in points]
    if len(set(values)) == len(values):
      return name, values
  return 'distribution', [str(point) for point in points]


def tables(records: pd.DataFrame) -> dict[str, Table]:
  """A table for each way and kind of text whose stages were all run: a row for each distribution, and one for all."""
  made, tests = dict[str, tuple[str, list[Row]]](), list[tuple[Row, str, float]]()
  for name, title, way, heading, groups in _budgets(records):
    if len(groups) > 1:
      groups['all'] = tuple(map(pd.concat, zip(*groups.values())))
    rows = [{heading: label} | _row(way, *group) for label, group in groups.items()]
    made[name] = title, rows
    tests += [(row, *largest_loss(way, *group)) for row, group in zip(rows, groups.values())]
  # Corrected over all sizes and budgets together.
  for (row, loss, _), p_value in zip(tests, statistics.holm([p_value for *_, p_value in tests])):
    row['largest'] = loss if p_value < contrasts.LEVEL else 'not significant'
  over = f'{statistics.trial_noun(records)}s'
  whole = (
    f'Accuracy lost in points, mean ± half-width of the 95% interval over {over}; largest loss with p < 0.05 (Holm)'
  )
  return {name: table(f'{whole}: {title}', rows) for name, (title, rows) in made.items()}


def _row(way: Way, reached: pd.DataFrame, bound: pd.DataFrame) -> Row:
  """The number of HMMs, each loss with its interval, and the accuracy at the end of the way."""
  row = {'n': str(len(reached))}
  for (loss, model, method), interval in zip(way, lost(reached)):
    row[f'{loss}\nto {METHODS[method].label}, {MODEL_NAMES[model]}'] = str(interval)
    if method == 'head_best':
      row['of that\nproven'] = str(lost(bound)[0])
  return row | {'accuracy': f'{reached[len(way)].mean():.1f}'}


@figures.styled
def figure(records: pd.DataFrame, settings: FigureSettings) -> matplotlib.figure.Figure | None:
  """A panel for each way and kind of text: the steps at each distribution; None if no way has all stages."""
  drawn = list(_budgets(records))
  if not drawn:
    return None
  over = f'{statistics.trial_noun(records)}s'
  whole, panels = figures.panels(settings, len(drawn), columns=1)
  for axes, (_, title, way, heading, groups) in zip(panels, drawn):
    _draw(axes, way, *zip(*groups.values()))
    axes.set_xticks(range(len(groups)), [*groups])
    axes.set(xlabel=heading, ylabel='test accuracy (%)')
    counts = [len(reached) for reached, _ in groups.values()]
    axes.set_title(textwrap.fill(f'{title}; {figures.counted(counts, over, spread=False)}', 66))
    axes.axhline(100, color='0.6', linewidth=0.9, linestyle=':', zorder=0)
  figures.trim_percent_ticks(axes.yaxis)
  # The legend alone shows this one.
  axes.bar(0, np.nan, bottom=100, facecolor='white', edgecolor='0.4', label='hollow: a gain')
  figures.finish(whole, records, 'Accuracy lost at each step', f'95% t intervals of each step over {over}')
  return whole


@figures.styled
def conditioning(records: pd.DataFrame, settings: FigureSettings) -> matplotlib.figure.Figure | None:
  """Accuracy of whitened heads against the ridge, on each model, and against noise on the exact G; one line per size.

  A model without such a head has no panel; None if none has one.
  """
  records = statistics.select(records, method='head_whitened')
  if records.empty:
    return None
  conditions = [
    (*condition, points)
    for condition in _CONDITIONS
    if (points := statistics.by_point(statistics.select(records, model=condition[1]).dropna(subset=condition[2])))
  ]
  whole, panels = figures.panels(settings, len(conditions))
  for axes, (title, _, field, label, points) in zip(panels, conditions):
    for point, rows in points.items():
      # HMMs have equally many tasks, so that the mean over these is that over HMMs.
      (places, *_), accuracies = np.moveaxis(np.array(rows[field].tolist()), -1, 0)
      axes.plot(places, 100 * accuracies.mean(0), label=str(point))
    axes.set(title=title, xscale='log', xlabel=label)
  panels[0].set_ylabel('test accuracy (%)')
  title, over = 'Accuracy of converged heads', f'means over {statistics.trial_noun(records)}s'
  figures.finish(whole, records, title, over)
  return whole


def _draw(axes: Axes, way: Way, reached: Sequence[pd.DataFrame], bounds: Sequence[pd.DataFrame]) -> None:
  """Draw the steps of each distribution side by side, from start to end; a gain is hollow."""
  width = 0.84 / len(way)
  ends = np.array([of_group.mean() for of_group in reached]).T
  half_widths = np.array([[interval.half_width for interval in lost(of_group)] for of_group in reached]).T
  for index, ((loss, _, method), half_width) in enumerate(zip(way, half_widths)):
    at = np.arange(len(reached)) + width * (index - (len(way) - 1) / 2)
    start, end, (colour, hatch) = ends[index], ends[index + 1], _STYLES[loss]
    # The legend shows a loss, also where the first step is a gain.
    for gains, face, edge in ((False, colour, 'white'), (True, 'white', colour)):
      shown: dict[str, Any] = dict(facecolor=face, edgecolor=edge, hatch=hatch, zorder=2)
      height, label = np.where((end > start) == gains, end - start, np.nan), f'_{loss}' if gains else loss
      axes.bar(at, height, 0.9 * width, bottom=start, label=label, **shown)
    line: dict[str, Any] = dict(color='black', linewidth=1.2, zorder=4)
    axes.hlines(end, at - 0.45 * width, at + 0.45 * width, **line)
    axes.errorbar(at, end, half_width, fmt='none', ecolor='black', elinewidth=1, capsize=2, label=f'_{loss}')
    if method == 'head_best':
      proven = [bound[1].mean() for bound in bounds]
      axes.hlines(proven, at - 0.6 * width, at + 0.6 * width, linestyle=':', label='proven degeneracy', **line)
