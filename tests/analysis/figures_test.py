"""Figures draw what the records say: values, labels and intervals, nothing clipped, in colours that are told apart."""

import dataclasses

from figures_cases import (
  figure_settings,
  lines_by_label,
  prompt_records,
  record,
)
import numpy as np
from pandas import DataFrame as frame
import pytest

from experiments.analysis import grid_figures, grid_tables
from experiments.analysis.statistics import percent
from experiments.settings.grid import Point
from experiments.settings.methods import METHODS


def _drawn(draw, records, settings=figure_settings()):  # noqa: B008
  """The figure, its first panel, and the lines of all panels by label."""
  figure = draw(grid_tables.prepared(frame(records)), settings)
  lines = {}
  for axes in figure.axes:
    lines |= lines_by_label(axes)
  return figure, figure.axes[0], lines


def _places(axes):
  return [text.get_text() for text in axes.get_xticklabels()]


def _bars(axes):
  """The ends of every interval that is drawn."""
  return [segment[:, 1] for bars in axes.containers for segment in bars.lines[2][0].get_segments() if len(segment)]


def test_a_line_passes_through_the_means_of_the_records():
  """In percent, at sizes that stand by their logarithms."""
  _, axes, lines = _drawn(grid_figures.figure_3_left, prompt_records())
  assert lines['head, BERT'].get_ydata() == pytest.approx([80.0, 77.0, 67.0])
  assert lines['majority class'].get_xdata() == pytest.approx(np.log([4, 10, 30]), abs=0.05)
  assert _places(axes) == ['4', '10', '30']


def test_means_have_the_t_interval():
  """As in tables, such as the head's on BERT at the largest size."""
  _, axes, _ = _drawn(grid_figures.figure_3_left, prompt_records(3))
  assert any(drawn == pytest.approx(percent([0.67, 0.68, 0.69]).ends) for drawn in _bars(axes))


def test_attention_is_drawn_by_bins_of_the_probability():
  """Empty bins count for nothing; what attends by entropy has no line."""
  profiles = [[[0.1, 1.0, 0.3], [0.2, 3.0, 0.7], [None, None, 0]], [[0.4, 2, 0.1], [None, None, 0], [None, None, 0]]]
  records = [
    record(Point(4, 2, 2), 'exact', 'attention', 0.9, task=task, attention_by=measure, attention_profile=profile)
    for task, (profile, measure) in enumerate(
      zip([*profiles, profiles[0]], ['read_probability', 'read_probability', 'entropy'])
    )
  ]
  _, axes, lines = _drawn(grid_figures.attention, records)
  assert lines['attention, exact G'].get_ydata() == pytest.approx([1.5, 3]) and _places(axes) == ['0', '0.1']


def test_what_shares_a_place_has_a_panel_of_its_own():
  """A mean over two distributions would say nothing."""
  records = [record(Point(4, size, 1), 'bert', 'head', size / 10) for size in (2, 3)]
  figure, _, _ = _drawn(grid_figures.memory_cells, records)
  assert [axes.get_title() for axes in figure.axes] == ['|M| = 2', '|M| = 3']


def test_nothing_is_clipped():
  """The limits hold every mark and interval, and no interval or tick is past 100 percent."""
  wide = [row | {'accuracy': (0.4, 1.0)[row['trial'] % 2]} for row in prompt_records(num_trials=5)]
  figure, axes, _ = _drawn(grid_figures.figure_3_left, wide)
  figure.draw_without_rendering()
  for panel in figure.axes:
    points = np.concatenate([line.get_transform().transform(line.get_xydata()) for line in panel.lines])
    assert all(panel.bbox.padded(1).contains(*point) for point in points)
  _, top = axes.get_ylim()
  assert max(tick for tick in axes.get_yticks() if tick <= top) == max(end for _, end in _bars(axes)) == 100 < top


def test_points_of_the_paper_stand_at_their_sizes():
  """Also at a size that we do not have. No method has their marker, so that grey tells them from ours."""
  settings = dataclasses.replace(figure_settings(), paper_overlay=True)
  _, _, lines = _drawn(grid_figures.figure_3_left, prompt_records(), settings)
  (line,) = (line for label, line in lines.items() if label.startswith('head, the paper'))
  assert line.get_marker() not in {method.marker for method in METHODS.values()}
  accuracies = grid_tables.paper('left', 'head', 'small')
  drawn = dict(zip(np.round(line.get_xdata(), 9), line.get_ydata()))
  for size in (4, 8, 10, 15, 30):
    assert drawn[round(np.log(size), 9)] == accuracies[size]


def test_methods_are_drawn_apart():
  """No two that are trained have one colour, nor both one marker and one dash, which grey leaves."""
  drawn = [method for method in METHODS.values() if method.has_schedule and 'restarts' not in method.settings]
  assert (
    len({method.colour for method in drawn}) == len({(method.marker, method.dash) for method in drawn}) == len(drawn)
  )
