"""Figures, drawn from records alone, all in the style of `figures.mplstyle`."""

from collections.abc import Callable
import io
import itertools
import pathlib
from typing import Any

import matplotlib
from matplotlib.axes import Axes
import matplotlib.figure
import matplotlib.style
from matplotlib.transforms import ScaledTranslation
import numpy as np
import pandas as pd

from experiments.analysis import report, statistics
from experiments.records import files
from experiments.settings.grid import AXES, Point
from experiments.settings.groups import FigureSettings
from experiments.settings.methods import METHODS, PROTOCOL

FORMATS = ('png', 'pdf', 'svg')

# The fewest values of which a t interval says more than the values themselves.
LEAST_FOR_INTERVAL = 5

MODEL_NAMES = {'bert': 'pretrained BERT', 'exact': 'exact G'}
_ERROR_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)

# A decorator, and no `with` block: what is drawn inside is drawn in this style, whatever the user's own.
styled = matplotlib.style.context(pathlib.Path(__file__).parent / 'figures.mplstyle', after_reset=True)

# The value of a distribution on the x axis.
_Size = Callable[[Point], int]
# A label, how it is drawn, and what it is of.
_Line = tuple[str, dict[str, Any], pd.DataFrame]


@styled
def figure_3_left(records: pd.DataFrame, settings: FigureSettings) -> matplotlib.figure.Figure:
  """Accuracy against |H| for each method on each model."""
  figure, (axes,) = panels(settings)
  size, records = AXES['figure_3_left'], _paper_records(records, vanilla=('head', 'prompt'))
  _draw_lines(axes, _lines(records), size)
  draw_majority(axes, _samples(records, size, 'majority_accuracy'))
  if settings.paper_overlay:
    for method in ('head', 'prompt'):
      values = report.paper_left(method, records['scale'].iloc[0])
      _draw_paper(axes, records, size, values, METHODS[method].marker, METHODS[method].label)
  low, high = axes.dataLim.intervalx
  if low <= 10 <= high:
    # Past |X| = 10 the emission rows cannot be independent.
    axes.axvline(10, color='0.6', linewidth=0.9, linestyle=':', zorder=0)
    axes.text(10, 1.01, '|H| = |X|', transform=axes.get_xaxis_transform(), ha='center', fontsize='small', color='0.35')
  _finish(figure, records, 'number of hidden states |H|')
  return figure


@styled
def figure_3_right(records: pd.DataFrame, settings: FigureSettings) -> matplotlib.figure.Figure:
  """Accuracy against |M||H| of text with a memory and of vanilla text."""
  figure, (axes,) = panels(settings)
  size, records = AXES['figure_3_right'], _paper_records(records, memory=('attention',), vanilla=('head',))
  memory, vanilla = report.text_records(records, 'memory'), report.text_records(records, 'vanilla')
  # A method of both texts is drawn on vanilla text as a method of neither.
  of_memory, of_vanilla = set(memory['method']), set(vanilla['method'])
  free = [method for method in METHODS if method not in of_memory | of_vanilla]
  drawn_as = dict(zip(sorted(of_memory & of_vanilla), free))
  _draw_lines(axes, _lines(memory, 'memory: ') + _lines(vanilla, 'vanilla: ', drawn_as), size)
  for text, rows, dash, marker in (('memory', memory, ':', 'P'), ('vanilla', vanilla, '-.', 's')):
    draw_majority(axes, _samples(rows, size, 'majority_accuracy'), f'{text}: majority class', dash)
    if settings.paper_overlay:
      _draw_paper(axes, records, size, report.paper_right(text, records['scale'].iloc[0]), marker, text)
  _finish(figure, records, 'number of joint states |M||H|')
  return figure


def _paper_records(records: pd.DataFrame, **methods: tuple[str, ...]) -> pd.DataFrame:
  """The records that the paper draws, its `methods` on each text, if more than its protocol was run; else all."""
  if records['method'].isin(PROTOCOL).all():
    return records
  of_texts = [report.text_records(records, text) for text in methods]
  drawn = pd.concat([rows[rows['method'].isin(names)] for rows, names in zip(of_texts, methods.values())])
  return records if drawn.empty else drawn.sort_index()


@styled
def controls(records: pd.DataFrame, settings: FigureSettings) -> matplotlib.figure.Figure | None:
  """Accuracy against |M||H| of attention beside its controls and a linear head; None where no control was run.

  A row for each text and a column for each model. A bag of words reads no model, and stands in both columns.
  """
  if not records['method'].isin(['attention_constant', 'attention_blind']).any():
    return None
  size, unit = AXES['controls'], statistics.unit_of(records)
  texts = [text for text in ('memory', 'vanilla') if len(report.text_records(records, text))]
  models = [model for model in MODEL_NAMES if model in set(records['model'])]
  figure = matplotlib.figure.Figure((settings.width * 1.4, settings.height * (0.2 + 0.7 * len(texts))), settings.dpi)
  grid = figure.subplots(len(texts), len(models), sharex=True, sharey=True, squeeze=False)
  for (row, text), (column, model) in itertools.product(enumerate(texts), enumerate(models)):
    text_records, axes = report.text_records(records, text), grid[row, column]
    lines: list[_Line] = []
    for method in ('attention', 'attention_blind', 'attention_constant', 'head'):
      read = model if model in METHODS[method].models else METHODS[method].models[0]
      rows = statistics.select(text_records, model=read, method=method)
      lines += [(METHODS[method].label, _shown(style_of(method), read), rows)] * (not rows.empty)
    _draw_lines(axes, lines, size, unit=unit)
    draw_majority(axes, _samples(text_records, size, 'majority_accuracy', unit))
    axes.set_title(f'{text} text, {MODEL_NAMES[model]}')
    axes.set_xticks(sorted({size(point) for point in statistics.by_point(records)}))
  for axes in grid[-1]:
    axes.set_xlabel('number of joint states |M||H|')
  for axes in grid[:, 0]:
    axes.set_ylabel('test accuracy (%)')
  finish(figure, caption(records, _counted(records)))
  return figure


@styled
def memory_cells(records: pd.DataFrame, settings: FigureSettings) -> matplotlib.figure.Figure:
  """Error against the number of memory cells N; where there is none, a triangle on the bottom edge."""
  figure, (axes,) = panels(settings)
  size = AXES['memory_cells']
  records = records.assign(**{field: 1 - records[field] for field in ('accuracy', 'majority_accuracy')})
  lines = _lines(records)
  samples = [values for *_, rows in lines for values in _samples(rows, size, 'accuracy').values()]
  shown = np.array([error for values in samples for error in (values.mean(), *values)])
  floor = min(shown[shown > 1e-9], default=0.1) / 2
  axes.set_yscale('log')
  _draw_lines(axes, lines, size, floor)
  draw_majority(axes, _samples(records, size, 'majority_accuracy'))
  _finish(figure, records, 'number of memory cells N', 'test error (%)')
  ticks = [tick for tick in _ERROR_TICKS if 1.5 * floor < tick <= axes.get_ylim()[1]]
  axes.set_yticks([floor, *ticks], ['0 (▼)', *(f'{tick:g}' for tick in ticks)])
  axes.minorticks_off()
  axes.set_ylim(bottom=floor)
  return figure


@styled
def attention(records: pd.DataFrame, settings: FigureSettings) -> matplotlib.figure.Figure | None:
  """Attention weight against the probability that a position reads the label's cell; None where every one does.

  Each line is a distribution and a model, the mean over its tasks; the area of a marker is the share of positions
  that it stands for.
  """
  chosen = statistics.select(records, attention_by='read_probability')
  if chosen.empty:
    return None
  figure, (axes,) = panels(settings)
  for of_point, style in zip(statistics.by_point(chosen).values(), matplotlib.rcParams['axes.prop_cycle']()):
    for model in sorted(set(of_point['model'])):
      _draw_profile(axes, statistics.select(of_point, model=model), style, model)
  axes.axhline(1, color='0.6', linewidth=0.9, linestyle=':', zorder=0)
  axes.set_xlabel(r'$P[J_i = j^\star \mid X_{-i}]$, probability that position i reads the label cell')
  axes.set_ylabel('mean attention weight (uniform = 1)')
  axes.set_ylim(bottom=0)
  finish(figure, caption(chosen, f'mean over {_counted(chosen, spread=False)}', 'area: share of positions'))
  return figure


def _draw_profile(axes: Axes, records: pd.DataFrame, style: dict[str, Any], model: str) -> None:
  bins = []
  for rows in zip(*records['attention_profile']):
    filled = [row for row in rows if row[2]]
    if filled:
      concentration, weight, share = zip(*filled)
      means = [np.average(values, weights=share) for values in (concentration, weight)]
      bins.append((*means, sum(share) / len(rows)))
  concentration, weight, share = np.array(bins).T
  label = f'{next(iter(statistics.by_point(records)))}, {MODEL_NAMES[model]}'
  shown = _shown(style, model)
  axes.plot(concentration, weight, label=label, **shown)
  fill = dict(color=shown['markerfacecolor'], edgecolors=style['color'], marker=style['marker'])
  axes.scatter(concentration, weight, s=16 + 300 * share, zorder=3, clip_on=False, **fill)


def panels(settings: FigureSettings, count: int = 1) -> tuple[matplotlib.figure.Figure, Any]:
  """A figure and its panels side by side, with one y axis."""
  figure = matplotlib.figure.Figure((settings.width * (0.4 * count + 0.6), settings.height), settings.dpi)
  return figure, figure.subplots(1, count, sharey=True, squeeze=False)[0]


def style_of(method: str) -> dict[str, Any]:
  """The line of a method."""
  return dict(color=METHODS[method].colour, marker=METHODS[method].marker, linestyle=METHODS[method].dash)


def _shown(style: dict[str, Any], model: str) -> dict[str, Any]:
  """A line's style on a model: thin and hollow on the exact one."""
  exact = model == 'exact'
  return style | dict(markerfacecolor='white' if exact else style['color'], linewidth=0.9 if exact else 1.8)


def draw_line(
  axes: Axes,
  samples: dict[float, np.ndarray],
  label: str,
  style: dict[str, Any],
  beside: float = 0.0,
  floor: float = -np.inf,
) -> None:
  """A line through the mean at each place, with the 95% interval of five values or more, or every value as a dot.

  It stands `beside` points beside its place, so that no line hides another. What is below `floor` is drawn on it, as
  triangles.
  """
  moved = lambda points: ScaledTranslation(points / 72, 0, axes.figure.dpi_scale_trans)
  at = lambda points: axes.transData + moved(points)
  intervals = {place: statistics.mean_interval(values) for place, values in samples.items()}
  means = np.array([interval.mean for interval in intervals.values()])
  below: list[tuple[float, float, float]] = [(place, 0, 7) for place, mean in zip(intervals, means) if mean < floor]
  line: dict[str, Any] = dict(markevery=list(means >= floor), zorder=3, transform=at(beside))
  axes.plot(list(intervals), np.maximum(means, floor), label=label, **line, **style)
  colour, extent = style['color'], [*means]
  for place, (mean, half_width, values) in intervals.items():
    if len(values) >= LEAST_FOR_INTERVAL:
      middle, low, high = np.maximum([mean, mean - half_width, mean + half_width], floor)
      bar = dict(fmt='none', ecolor=colour, elinewidth=0.9, transform=at(beside))
      axes.errorbar([place], [middle], yerr=[[middle - low], [high - middle]], **bar)
      below += [(place, 0, 5)] * bool(mean - half_width < floor)
      extent += [low, high]
    elif len(values) > 1:
      dot = dict(marker='.', markersize=4.5, markeredgewidth=0.5, color=colour, transform=at(beside - 4))
      over = values[values >= floor]
      axes.plot([place] * len(over), over, linestyle='', markerfacecolor=style.get('markerfacecolor', colour), **dot)
      below += [(place, -4, 3.5)] * (len(over) < len(values))
      extent += [*values]
  for place, points, size in below:
    mark = dict(marker='v', markersize=size, color=colour, clip_on=False, zorder=4, transform=at(beside + points))
    axes.plot([place], [floor], linestyle='', **mark)
  # What is drawn beside its place takes no part in the automatic limits.
  axes.update_datalim([(place, max(y, floor)) for place in samples for y in extent])
  axes.autoscale_view()


def caption(records: pd.DataFrame, *more: str) -> str:
  """The caption of a figure: experiment, scale and seed of the records, and `more`."""
  first = records.iloc[0]
  return '; '.join([f'{first["experiment"]}, scale {first["scale"]}, seed {first["seed"]}', *more])


def finish(figure: matplotlib.figure.Figure, title: str) -> None:
  """Writes the caption above the panels and their common legend below them."""
  figure.suptitle(title)
  entries = {label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels())}
  columns = min(len(entries), 2 * len(figure.axes))
  figure.legend(list(entries.values()), list(entries), loc='outside lower center', ncols=columns)


def _lines(records: pd.DataFrame, prefix: str = '', drawn_as: dict[str, str] | None = None) -> list[_Line]:
  """A line for each pair of model and method, those with a prompt first; drawn as another method where one is given."""
  by_line = lambda pair: (pair[0], 'prompt' not in pair[1], pair[1])
  lines = []
  for model, method in sorted(set(zip(records['model'], records['method'])), key=by_line):
    style = _shown(style_of({method: method, **(drawn_as or {})}[method]), model)
    rows = statistics.select(records, model=model, method=method)
    lines.append((f'{prefix}{METHODS[method].label}, {MODEL_NAMES[model]}', style, rows))
  return lines


def _samples(
  records: pd.DataFrame, size: _Size, field: str, unit: statistics.Unit | None = None
) -> dict[float, np.ndarray]:
  """The values of the independent units in percent, by size."""
  unit = unit or statistics.unit_of(records)
  points = records[list(Point._fields)].itertuples(index=False, name=None)
  at = pd.Series([size(Point(*point)) for point in points], records.index, dtype=int)
  return {wanted: statistics.percent(rows, field, unit).values for wanted, rows in records.groupby(at)}


def _draw_lines(
  axes: Axes,
  lines: list[_Line],
  size: _Size,
  floor: float = -np.inf,
  unit: statistics.Unit | None = None,
) -> None:
  unit = unit or statistics.unit_of(pd.concat([rows for *_, rows in lines]))
  # All within the margin of the axis.
  step = min(4, 36 / len(lines))
  for index, (label, style, rows) in enumerate(lines):
    draw_line(axes, _samples(rows, size, 'accuracy', unit), label, style, step * (index - (len(lines) - 1) / 2), floor)


def draw_majority(
  axes: Axes, samples: dict[float, np.ndarray], label: str = 'majority class', dash: str = '-.'
) -> None:
  """The mean accuracy, or error, of the majority class at each place."""
  means = [values.mean() for values in samples.values()]
  if means:
    axes.plot(list(samples), means, color='0.45', marker='', linestyle=dash, linewidth=1.4, label=label)


def _draw_paper(
  axes: Axes, records: pd.DataFrame, size: _Size, values: dict[int, float], marker: str, name: str
) -> None:
  """The paper's points within the range of ours."""
  sizes = [size(point) for point in statistics.by_point(records)]
  shown = {x: value for x, value in values.items() if min(sizes) <= x <= max(sizes)}
  if not shown:
    return
  is_base = records['scale'].iloc[0] in ('paper', 'paper_v1', 'official', 'tuned')
  of = 'BERT-base' if is_base else 'BERT-base on more text'
  label = f'{name}, the paper ({of}; digitised)'
  style: dict[str, Any] = dict(
    color='0.35', marker=marker, markersize=7, markerfacecolor='none', linestyle='none', zorder=5
  )
  axes.plot(list(shown), list(shown.values()), label=label, **style)


def trim_percent_ticks(axes: Axes) -> None:
  """Removes ticks above 100%: an interval may reach past what an accuracy can be, a tick should not."""
  low, high = axes.get_ylim()
  axes.set_yticks([tick for tick in axes.get_yticks() if low <= tick <= min(high, 100)])


def _finish(
  figure: matplotlib.figure.Figure, records: pd.DataFrame, label: str, unit: str = 'test accuracy (%)'
) -> None:
  (axes,) = figure.axes
  axes.set_xticks(sorted({x for line in axes.lines for x in np.asarray(line.get_xdata())}))
  trim_percent_ticks(axes)
  axes.set_xlabel(label)
  axes.set_ylabel(unit)
  finish(figure, caption(records, _counted(records)))


def _counted(records: pd.DataFrame, spread: bool = True) -> str:
  unit = statistics.unit_of(records)
  counts = [len(statistics.by_unit(rows, 'majority_accuracy', unit)) for rows in statistics.by_point(records).values()]
  return counted(counts, 'HMMs' if unit == ('trial',) else 'tasks of one HMM per size', spread)


def counted(counts: list[int], unit: str, spread: bool = True) -> str:
  """n, what it counts, and how `draw_line` shows the spread, as in 'tasks of one HMM per size: n = 4, each a dot'."""
  few, most = min(counts), max(counts)
  dots, bars = few < LEAST_FOR_INTERVAL and most > 1, most >= LEAST_FOR_INTERVAL
  shown = ' or '.join(['each a dot'] * dots + ['95% t intervals'] * bars) if spread else ''
  return f'{unit}: n = {f"{few} to " * (few < most)}{most}{shown and ", "}{shown}'


@styled
def save(figure: matplotlib.figure.Figure, stem: pathlib.Path) -> list[pathlib.Path]:
  """Writes the figure in each of FORMATS, the same bytes for the same records."""
  paths = [stem.with_suffix(f'.{extension}') for extension in FORMATS]
  for path, extension in zip(paths, FORMATS):
    files.write_whole(path, as_bytes(figure, extension))
  return paths


@styled
def as_bytes(figure: matplotlib.figure.Figure, extension: str) -> bytes:
  """The figure in one of FORMATS."""
  buffer = io.BytesIO()
  metadata = {'png': None, 'pdf': {'CreationDate': None}, 'svg': {'Date': None}}[extension]
  figure.savefig(buffer, format=extension, metadata=metadata)
  return buffer.getvalue()


def saved(figure: matplotlib.figure.Figure, stem: pathlib.Path) -> str:
  """Saves the figure; the line that says where."""
  return f'figure: {", ".join(str(path) for path in save(figure, stem))}'
