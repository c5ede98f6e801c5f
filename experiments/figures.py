"""Figures, drawn from records alone."""

import io
import pathlib

import matplotlib
import matplotlib.figure
import numpy as np

from experiments import checkpoints
from experiments import report
from experiments import results
from experiments.results import Record
from experiments.settings import FigureSettings

FORMATS = ('png', 'pdf', 'svg')

# Colour, marker and dash differ together, so that the lines are told apart in grey.
_COLOURS = {'prompt': '#d95f02', 'head': '#1b5e9e', 'probe': '#4d9221', 'finetune': '#6a3d9a'}
_MARKERS = {'prompt': 'o', 'head': 's', 'probe': '^', 'finetune': 'D'}
_MODEL_STYLES = {'bert': dict(linestyle='-', linewidth=1.8), 'exact': dict(linestyle=(0, (4, 2)), linewidth=1.1)}
_MODEL_NAMES = {'bert': 'pretrained BERT', 'exact': 'exact G'}


def figure_3_left(records: list[Record], settings: FigureSettings) -> matplotlib.figure.Figure:
  """Accuracy against |H| for each method on each model, with 95% intervals and every single task."""
  figure = matplotlib.figure.Figure(figsize=(settings.width, settings.height), dpi=settings.dpi, layout='constrained')
  axes = figure.add_subplot()
  sizes = sorted({record['num_states'] for record in records})
  position = {size: index for index, size in enumerate(sizes)}
  by_line = lambda pair: (pair[0], pair[1] != 'prompt', pair[1])
  pairs = sorted({(record['model'], record['method']) for record in records}, key=by_line)
  for index, (model, method) in enumerate(pairs):
    chosen = results.select(records, model=model, method=method)
    shift = 0.36 * (index / max(len(pairs) - 1, 1) - 0.5)
    _draw_method(axes, chosen, model, method, position, shift)
  majority = [results.percent(results.select(records, num_states=size), 'majority_accuracy').mean for size in sizes]
  axes.plot(range(len(sizes)), majority, color='0.45', linestyle=':', linewidth=1.4, label='majority class')
  if settings.paper_overlay:
    _draw_paper(axes, position)
  _draw_vocabulary_mark(axes, sizes)
  axes.set_xticks(range(len(sizes)), [str(size) for size in sizes])
  axes.set_xlim(-0.4, len(sizes) - 0.6)
  axes.set_xlabel('number of hidden states |H|')
  axes.set_ylabel('test accuracy (%)')
  axes.grid(axis='y', color='0.9', linewidth=0.6)
  axes.spines[['top', 'right']].set_visible(False)
  figure.legend(loc='outside right upper', fontsize=8, frameon=False)
  return figure


def _draw_method(axes, records: list[Record], model: str, method: str, position: dict[int, int], shift: float) -> None:
  sizes = sorted({record['num_states'] for record in records})
  intervals = [results.percent(results.select(records, num_states=size), 'accuracy') for size in sizes]
  places = [position[size] + shift for size in sizes]
  colour, marker = _COLOURS[method], _MARKERS[method]
  axes.errorbar(
    places,
    [interval.mean for interval in intervals],
    yerr=np.nan_to_num([interval.half_width for interval in intervals]),
    color=colour,
    marker=marker,
    markersize=6 if model == 'bert' else 4,
    markerfacecolor=colour if model == 'bert' else 'white',
    capsize=2.5,
    elinewidth=1.0,
    label=f'{method}, {_MODEL_NAMES[model]}',
    zorder=3,
    **_MODEL_STYLES[model],
  )
  if model == 'bert':
    for place, interval in zip(places, intervals):
      axes.scatter(
        np.full(len(interval.values), place - 0.045), interval.values, s=14, color=colour, alpha=0.5, linewidths=0
      )


def _draw_paper(axes, position: dict[int, int]) -> None:
  for method in ('prompt', 'head'):
    values = {size: value for size, value in report.paper_values(method).items() if size in position}
    places = [position[size] for size in values]
    label = f'{method}, paper (digitised)'
    axes.plot(
      places,
      list(values.values()),
      color='0.2',
      marker=_MARKERS[method],
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
