"""Figures, drawn from records alone."""

from collections.abc import Callable
import io
import pathlib

import matplotlib
import matplotlib.figure
import numpy as np

from experiments import checkpoints
from experiments import report
from experiments import results
from experiments.methods import METHODS
from experiments.results import Record
from experiments.settings import FigureSettings
from experiments.settings import Point

FORMATS = ('png', 'pdf', 'svg')

# Colour, marker and dash differ together, so that the lines are told apart in grey.
_MODEL_STYLES = {'bert': dict(linestyle='-', linewidth=1.8), 'exact': dict(linestyle=(0, (4, 2)), linewidth=1.1)}
_MODEL_NAMES = {'bert': 'pretrained BERT', 'exact': 'exact G'}
_CONCENTRATION_NAMES = {
  'read_probability': r'$P[J_i = j^\star \mid X_{-i}]$, probability that position i reads the label cell',
  'entropy': r'entropy of $P[H_i \mid X_{-i}]$ (nats)',
}


def figure_3_left(records: list[Record], settings: FigureSettings) -> matplotlib.figure.Figure:
  """Accuracy against |H| for each method on each model, with 95% intervals and every single task."""
  figure, axes, sizes = _accuracies(records, settings, lambda point: point.num_states)
  if settings.paper_overlay:
    for method in ('prompt', 'head'):
      label = f'{method}, paper (digitised)'
      _draw_paper(axes, report.paper_left(method), sizes, METHODS[method].marker, label)
  _draw_vocabulary_mark(axes, list(sizes))
  _finish(figure, axes, sizes, 'number of hidden states |H|')
  return figure


def figure_3_right(records: list[Record], settings: FigureSettings) -> matplotlib.figure.Figure:
  """Accuracy against |M||H| of text with a memory and of vanilla text, with 95% intervals and every single task."""
  figure, axes = _new(settings)
  size = lambda point: point.joint_states
  sizes = _places(records, size)
  texts = {
    text: [r for r in records if report.text_name(results.point_of(r)) == text] for text in ('memory', 'vanilla')
  }
  lines = [line for text, some in texts.items() for line in _lines(some, f'{text}: ')]
  _draw_lines(axes, lines, sizes, size)
  for (text, some), dash in zip(texts.items(), (':', '-.')):
    if some:
      _draw_majority(axes, some, sizes, size, f'{text}: majority class', dash)
  if settings.paper_overlay:
    for text, marker in (('memory', 'P'), ('vanilla', 's')):
      _draw_paper(axes, report.paper_right(text), sizes, marker, f'{text}, paper (digitised)')
  _finish(figure, axes, sizes, 'number of joint states |M||H|')
  return figure


def memory_cells(records: list[Record], settings: FigureSettings) -> matplotlib.figure.Figure:
  """Accuracy against the number of memory cells N, with 95% intervals and every single task."""
  figure, axes, sizes = _accuracies(records, settings, lambda point: point.num_cells)
  _finish(figure, axes, sizes, 'number of memory cells N')
  return figure


def attention(records: list[Record], settings: FigureSettings) -> matplotlib.figure.Figure:
  """Attention weight against how far P[H_i | X_{-i}] concentrates, a panel for each measure of concentration.

  Each line is a distribution and a model, the mean over its tasks; the area of a marker is the share of positions
  that it stands for.
  """
  chosen = [record for record in records if record['attention_profile']]
  measures = sorted({record['attention_by'] for record in chosen}, reverse=True)
  size = (settings.width * max(len(measures), 1) * 0.8 + 1.6, settings.height)
  figure = matplotlib.figure.Figure(figsize=size, dpi=settings.dpi, layout='constrained')
  panels = figure.subplots(1, max(len(measures), 1), squeeze=False)[0]
  points = results.points(chosen)
  greys = dict(zip(points, np.linspace(0, 0.85, len(points))))
  colour_map = matplotlib.colormaps['viridis']
  for axes, measure in zip(panels, measures):
    of_measure = results.select(chosen, attention_by=measure)
    for point in results.points(of_measure):
      for model in sorted({record['model'] for record in of_measure}):
        rows = [r for r in results.select(of_measure, model=model) if results.point_of(r) == point]
        if rows:
          _draw_profile(axes, rows, colour_map(greys[point]), 'osD^vPX'[points.index(point) % 7], model, str(point))
    axes.axhline(1, color='0.6', linewidth=0.9, linestyle=(0, (1, 2)), zorder=0)
    axes.set_xlabel(_CONCENTRATION_NAMES[measure])
    axes.set_ylabel('mean attention weight (uniform = 1)')
    axes.set_ylim(bottom=0)
    axes.spines[['top', 'right']].set_visible(False)
    axes.legend(fontsize=7, frameon=False, loc='upper center', bbox_to_anchor=(0.5, -0.16), ncols=2)
  return figure


def _draw_profile(axes, records: list[Record], colour, marker: str, model: str, name: str) -> None:
  bins = []
  for rows in zip(*(record['attention_profile'] for record in records)):
    filled = [row for row in rows if row[2]]
    if filled:
      concentration, weight, share = zip(*filled)
      means = [np.average(values, weights=share) for values in (concentration, weight)]
      bins.append((*means, sum(share) / len(rows)))
  concentration, weight, share = np.array(bins).T
  fill = colour if model == 'bert' else 'white'
  label = f'{name}, {_MODEL_NAMES[model]}'
  style = dict(color=colour, marker=marker, markersize=4, markerfacecolor=fill, **_MODEL_STYLES[model])
  axes.plot(concentration, weight, label=label, **style)
  axes.scatter(concentration, weight, s=16 + 300 * share, color=fill, edgecolors=colour, marker=marker, zorder=3)


def _accuracies(records: list[Record], settings: FigureSettings, size: Callable[[Point], int]):
  """A figure of each method on each model and of the majority class, its axes, and where each size stands on them."""
  figure, axes = _new(settings)
  sizes = _places(records, size)
  _draw_lines(axes, _lines(records), sizes, size)
  _draw_majority(axes, records, sizes, size, 'majority class')
  return figure, axes, sizes


def _new(settings: FigureSettings):
  figure = matplotlib.figure.Figure(figsize=(settings.width, settings.height), dpi=settings.dpi, layout='constrained')
  return figure, figure.add_subplot()


def _places(records: list[Record], size: Callable[[Point], int]) -> dict[int, int]:
  """Where each size stands on the axis."""
  return {size: place for place, size in enumerate(sorted({size(point) for point in results.points(records)}))}


def _lines(records: list[Record], prefix: str = '') -> list[tuple[str, str, str, list[Record]]]:
  """(label, model, method, records) of each pair of model and method, those with a prompt first."""
  by_line = lambda pair: (pair[0], 'prompt' not in pair[1], pair[1])
  pairs = sorted({(record['model'], record['method']) for record in records}, key=by_line)
  name = lambda model, method: f'{prefix}{METHODS[method].label}, {_MODEL_NAMES[model]}'
  return [(name(*pair), *pair, results.select(records, model=pair[0], method=pair[1])) for pair in pairs]


def _at(records: list[Record], size: Callable[[Point], int], wanted: int) -> list[Record]:
  return [record for record in records if size(results.point_of(record)) == wanted]


def _draw_lines(axes, lines, places: dict[int, int], size: Callable[[Point], int]) -> None:
  for index, (label, model, method, records) in enumerate(lines):
    shift = 0.36 * (index / max(len(lines) - 1, 1) - 0.5)
    sizes = [wanted for wanted in places if _at(records, size, wanted)]
    intervals = [results.percent(_at(records, size, wanted), 'accuracy') for wanted in sizes]
    where = [places[wanted] + shift for wanted in sizes]
    colour = METHODS[method].colour
    axes.errorbar(
      where,
      [interval.mean for interval in intervals],
      yerr=np.nan_to_num([interval.half_width for interval in intervals]),
      color=colour,
      marker=METHODS[method].marker,
      markersize=6 if model == 'bert' else 4,
      markerfacecolor=colour if model == 'bert' else 'white',
      capsize=2.5,
      elinewidth=1.0,
      label=label,
      zorder=3,
      **_MODEL_STYLES[model],
    )
    if model == 'bert':
      for place, interval in zip(where, intervals):
        axes.scatter(
          np.full(len(interval.values), place - 0.045), interval.values, s=14, color=colour, alpha=0.5, linewidths=0
        )


def _draw_majority(axes, records, places, size: Callable[[Point], int], label: str, dash: str = ':') -> None:
  sizes = [wanted for wanted in places if _at(records, size, wanted)]
  means = [results.percent(_at(records, size, wanted), 'majority_accuracy').mean for wanted in sizes]
  axes.plot([places[wanted] for wanted in sizes], means, color='0.45', linestyle=dash, linewidth=1.4, label=label)


def _draw_paper(axes, values: dict[int, float], places: dict[int, int], marker: str, label: str) -> None:
  shown = {size: value for size, value in values.items() if size in places}
  axes.plot(
    [places[size] for size in shown],
    list(shown.values()),
    color='0.2',
    marker=marker,
    markersize=5,
    markerfacecolor='none',
    linestyle='none',
    label=label,
  )


def _draw_vocabulary_mark(axes, sizes: list[int]) -> None:
  """A vertical line at |H| = |X| = 10, past which the emission rows cannot be independent."""
  place = float(np.interp(10, sizes, range(len(sizes))))
  if sizes[0] <= 10 <= sizes[-1]:
    axes.axvline(place, color='0.6', linewidth=0.9, linestyle=(0, (1, 2)), zorder=0)
    axes.annotate(
      '|H| = |X|',
      (place, 0.97),
      xycoords=('data', 'axes fraction'),
      xytext=(4, 0),
      textcoords='offset points',
      fontsize=8,
      color='0.35',
    )


def _finish(figure, axes, places: dict[int, int], label: str) -> None:
  axes.set_xticks(list(places.values()), [str(size) for size in places])
  axes.set_xlim(-0.4, len(places) - 0.6)
  axes.set_xlabel(label)
  axes.set_ylabel('test accuracy (%)')
  # Intervals of few values reach past what an accuracy can be.
  axes.set_ylim(max(axes.get_ylim()[0], 0), min(axes.get_ylim()[1], 103))
  axes.grid(axis='y', color='0.9', linewidth=0.6)
  axes.spines[['top', 'right']].set_visible(False)
  figure.legend(loc='outside right upper', fontsize=8, frameon=False)


def save(figure: matplotlib.figure.Figure, stem: pathlib.Path) -> list[pathlib.Path]:
  """Writes the figure in each of FORMATS, the same bytes for the same records."""
  paths = []
  for extension in FORMATS:
    buffer = io.BytesIO()
    metadata = {'png': None, 'pdf': {'CreationDate': None}, 'svg': {'Date': None}}[extension]
    with matplotlib.rc_context({'svg.hashsalt': 'hmm_jax'}):
      figure.savefig(buffer, format=extension, metadata=metadata)
    paths.append(stem.with_suffix(f'.{extension}'))
    checkpoints.write_whole(paths[-1], buffer.getvalue())
  return paths
