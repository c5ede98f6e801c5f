"""Figures draw what the records say: values, labels and intervals, nothing clipped, in colours that are told apart."""

import dataclasses
import types

from figures_cases import (
  cell_records,
  figure_settings,
  lines_by_label,
  memory_records,
  prompt_records,
  record,
  table_records,
)
import numpy as np
from pandas import DataFrame as frame
import pytest
import scipy.stats

from experiments.analysis import figures, grid_figures, grid_tables
from experiments.settings.grid import Point
from experiments.settings.methods import METHODS
from experiments.studies import grids

WITH_PAPER = dataclasses.replace(figure_settings(), paper_overlay=True)


def _figure(draw, records, settings=figure_settings()):  # noqa: B008
  return draw(grid_tables.prepared(frame(records)), settings)


def _drawn(draw, records, settings=figure_settings()):  # noqa: B008
  """The figure, its only panel, and the lines of that by label."""
  figure = _figure(draw, records, settings)
  (axes,) = figure.axes
  return figure, axes, lines_by_label(axes)


def _texts(texts):
  return [text.get_text() for text in texts]


def _bars(axes):
  """The ends of every interval that is drawn."""
  of_lines = [bar for container in axes.containers for bar in container.lines[2]]
  ends = [segment[:, 1] for bar in of_lines for segment in bar.get_segments() if len(segment)]
  return [list(both) for both in ends if np.isfinite(both).all()]


def test_a_figure_with_several_distributions_at_one_place_is_left_out():
  """Sizes of a memory share |H|, but not the number of joint states."""
  assert _figure(grid_figures.figure_3_left, memory_records()) is None
  assert _figure(grid_figures.figure_3_right, memory_records())


def test_a_line_passes_through_the_means_of_the_records():
  """In percent, at sizes that stand at equal distances."""
  figure, axes, lines = _drawn(grid_figures.figure_3_left, prompt_records())
  assert lines['head, BERT'].get_ydata() == pytest.approx([80.0, 77.0, 67.0])
  assert lines['prompt, exact G'].get_ydata() == pytest.approx([95.0, 92.0, 82.0])
  assert list(lines['majority class'].get_xdata()) == [0, 1, 2] and _texts(axes.get_xticklabels()) == ['4', '10', '30']
  assert len(figure.legends[0].get_texts()) == 5


def test_a_reader_without_a_model_has_a_line_and_a_figure_of_its_own():
  """The second has a line for each size, in percent by the number of tokens that are kept."""
  untrained = [row | {'model': 'untrained'} for row in prompt_records()]
  _, _, lines = _drawn(grid_figures.figure_3_left, table_records() + untrained)
  assert lines['table of tokens, no model'].get_ydata() == pytest.approx([96, 93, 83])
  assert 'prompt, BERT' in lines and not any('exact G' in label for label in lines)
  _, _, lines = _drawn(grid_figures.nearest_tokens, table_records())
  assert lines['|H|=30'].get_xydata() == pytest.approx(np.array([[0, 50], [1, 25]]))


def test_the_forgetting_curve_has_a_line_for_each_size():
  """The mean over processes, each counted once, after 2, 4, ... tokens."""
  rows = [
    row | {'distribution': f'ginc_{number}', 'forgetting': [1, 1, number, 1, 0.75]}
    for row in prompt_records()
    for number in (0, 1)
  ]
  records = frame([*rows, rows[0] | {'task': 9, 'forgetting': None}])
  shown = grids.figures(records, types.SimpleNamespace(figure=figure_settings()))
  axes = shown['forgetting'].axes[0]
  assert shown['forgetting'].get_suptitle().endswith('HMMs: n = 2, each a dot')
  assert lines_by_label(axes)['|H|=30'].get_ydata() == pytest.approx([50, 75])
  assert _texts(axes.get_xticklabels()) == ['2', '4']
  # Two laws of HMMs have no common line.
  differ = records.assign(**{'hmm.emission_temperature': np.arange(len(records)) % 2})
  assert _figure(grid_figures.forgetting, differ) is None


def test_the_right_figure_draws_memory_and_vanilla():
  """Each text has a line per model, at its number of joint states."""
  figure, axes, lines = _drawn(grid_figures.figure_3_right, memory_records())
  assert lines['memory: attention, exact G'].get_ydata() == pytest.approx([96, 95, 93])
  vanilla = np.array([82, 78, 70]) + 100 * 0.02 * 5 / 3
  assert lines['vanilla: head, exact G'].get_ydata() == pytest.approx(vanilla)
  # BERT has no record beside the largest memory, and the line stops before it.
  assert lines['vanilla: head, BERT'].get_ydata() == pytest.approx(vanilla[:2])
  assert _texts(axes.get_xticklabels()) == ['8', '12', '20'] and len(figure.legends[0].get_texts()) == 6


def test_accuracies_stand_against_the_field_of_numbers():
  """A panel for each value of another field and each size; names are joined by no line."""
  rows = [
    row | {'prompt.length': length, 'prompt.init': init}
    for row in prompt_records()
    for length in (1, 20, 5)
    for init in ('uniform', 'vocabulary')
  ]
  figure = _figure(grid_figures.against_fields, rows)
  titles = [axes.get_title() for axes in figure.axes]
  assert titles == [f'prompt.init = {init}, |H| = {size}' for init in ('uniform', 'vocabulary') for size in (4, 10, 30)]
  assert _texts(figure.axes[3].get_xticklabels()) == ['1', '5', '20']
  names = [row | {'prompt.init': init} for row in prompt_records() for init in ('uniform', 'vocabulary')]
  named = _figure(grid_figures.against_fields, names).axes[0]
  assert {line.get_linestyle() for line in named.lines} == {'None'}


@pytest.mark.parametrize(
  ('num_trials', 'counted'), [(4, 'HMMs: n = 4, each a dot'), (5, 'HMMs: n = 5, 95% t intervals')]
)
def test_few_values_are_dots_and_five_have_the_t_interval(num_trials, counted):
  """A dot is an independent value; the caption counts these."""
  figure, axes, _ = _drawn(grid_figures.figure_3_left, prompt_records(num_trials))
  assert figure.get_suptitle() == f'some_experiment, scale small, seed 7; {counted}'
  dots = [each for line in axes.lines if line.get_marker() == '.' for each in np.split(line.get_ydata(), 3)]
  bars = _bars(axes)
  assert (len([each for each in dots if len(each)]), len(bars)) == ((12, 0) if num_trials < 5 else (0, 12))
  # The record of the head on BERT at the largest size.
  values = [67, 68, 69, 67, 68][:num_trials]
  interval = scipy.stats.t.interval(0.95, 4, np.mean(values), scipy.stats.sem(values))
  assert any(len(each) and each == pytest.approx(values if num_trials < 5 else interval) for each in dots + bars)


def test_nothing_is_clipped():
  """The limits hold every mark and interval, and no interval or tick is past 100 percent."""
  wide = [row | {'accuracy': (0.4, 1.0)[row['trial'] % 2]} for row in prompt_records(num_trials=5)]
  figure, axes, _ = _drawn(grid_figures.figure_3_left, wide)
  figure.draw_without_rendering()
  points = np.concatenate([line.get_transform().transform(line.get_xydata()) for line in axes.lines])
  # The mark of |H| = |X| runs from edge to edge.
  assert all(axes.bbox.padded(1).contains(*point) for point in points)
  assert max(axes.get_yticks()) <= max(top for _, top in _bars(axes)) == 100 < axes.get_ylim()[1]


def test_lines_beside_neighbouring_sizes_do_not_mix():
  """Though 10 and 11 are closer than 11 and 30: all eight lines at a size lie left of all at the next."""
  sizes = {4: 10, 10: 11, 30: 30}
  rows = [row | {'num_states': sizes[row['num_states']]} for row in prompt_records()]
  rows += [row | {'model': {'bert': 'own', 'exact': 'other_bert'}[row['model']]} for row in rows]
  figure, axes, lines = _drawn(grid_figures.figure_3_left, rows)
  figure.draw_without_rendering()
  drawn = [line for label, line in lines.items() if label[0] != '_' and label != 'majority class']
  places = np.array([line.get_transform().transform(line.get_xydata())[:, 0] for line in drawn])
  assert len(places) == 8 and (places[:, :-1].max(0) < places[:, 1:].min(0)).all()


def test_points_of_the_paper_stand_at_their_sizes():
  """With markers of no method: in grey, too, they are told from hollow points of ours. 8 lies between 4 and 10."""
  _, _, lines = _drawn(grid_figures.figure_3_left, prompt_records(), WITH_PAPER)
  papers = {label: line for label, line in lines.items() if 'the paper' in label}
  markers = {line.get_marker() for line in papers.values()}
  assert len(markers) == 2 and not markers & {method.marker for method in METHODS.values()}
  line = next(line for label, line in papers.items() if label.startswith('head'))
  expected = grid_tables.paper('left', 'head', 'small')
  places = dict(zip((4, 8, 10, 15, 25, 30), (0, 4 / 6, 1, 1.25, 1.75, 2)))
  assert line.get_xydata() == pytest.approx(np.array([(places[size], value) for size, value in expected.items()]))


def test_no_error_has_a_place_on_the_logarithmic_axis():
  """Zero is a tick above the edge, where means without error have their marks, and intervals end at zero."""
  records = [
    record(Point(6, 3, cells), 'bert', 'head', 1 - error, trial=trial)
    for cells, of_cells in ((1, [0.0] * 5), (2, [0.001, 0.0, 0.0, 0.0, 0.0]), (3, [0.2] * 5))
    for trial, error in enumerate(of_cells)
  ]
  _, axes, lines = _drawn(grid_figures.memory_cells, records)
  assert lines['head, BERT'].get_ydata() == pytest.approx([0, 0.02, 20]) and axes.get_yscale() == 'symlog'
  assert axes.get_ylim()[0] < min(low for low, _ in _bars(axes)) == 0


def test_bins_are_averaged_by_the_share_of_positions():
  """Empty bins count for nothing; what attends by entropy has no line."""
  profiles = [[[0.1, 1.0, 0.3], [0.2, 3.0, 0.7]], [[0.4, 2.0, 0.1], [None, None, 0.0]]]
  of_task = dict(attention_by='read_probability')
  records = [
    record(Point(4, 2, 2), 'exact', 'attention', 0.9, task=task, attention_profile=profile, **of_task)
    for task, profile in enumerate(profiles)
  ]
  records.append(records[0] | dict(memory_size=3, attention_by='entropy'))
  _, axes, lines = _drawn(grid_figures.attention, records)
  assert sum(label[0] != '_' for label in lines) == 1
  expected = [[(0.1 * 0.3 + 0.4 * 0.1) / 0.4, 0.2], [(1 * 0.3 + 2 * 0.1) / 0.4, 3]]
  np.testing.assert_allclose(axes.lines[0].get_data(), expected)
  (marks,) = axes.collections
  np.testing.assert_allclose((marks.get_sizes() - 16) / 300, [(0.3 + 0.1) / 2, 0.7 / 2])


def test_three_formats_with_the_same_bytes_every_time(tmp_path):
  """The same records give the same files, so that a redraw can be compared."""
  first, second = (figures.save(_figure(grid_figures.attention, cell_records()), tmp_path / name) for name in 'ab')
  assert [path.suffix for path in first] == ['.png', '.pdf', '.svg']
  assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_methods_are_drawn_apart():
  """No two that are trained have one colour, nor both one marker and one dash, which grey leaves."""
  drawn = [method for method in METHODS.values() if method.has_schedule and 'restarts' not in method.settings]
  assert (
    len({method.colour for method in drawn}) == len({(method.marker, method.dash) for method in drawn}) == len(drawn)
  )
