"""Figures draw what the records say: values, labels and intervals, nothing clipped, in colours that are told apart."""

import dataclasses
import itertools
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

from experiments.analysis import figures, grid_figures
from experiments.settings.grid import Point
from experiments.settings.methods import METHODS
from experiments.studies import grids

MODELS = ('pretrained BERT', 'exact G')


def _drawn(draw, records):
  """The figure, its only panel, the lines of that by label, and the text of the x ticks and of the legend."""
  figure = draw(frame(records), figure_settings())
  (axes,) = figure.axes
  texts = [[text.get_text() for text in of] for of in (axes.get_xticklabels(), figure.legends[0].get_texts())]
  return figure, axes, lines_by_label(axes), *texts


def test_the_left_figure_draws_the_means_of_the_records():
  """The line of a method passes through its mean accuracies, in percent, at |H|."""
  _, _, lines, ticks, legend = _drawn(grid_figures.figure_3_left, prompt_records())
  assert lines['head, pretrained BERT'].get_ydata() == pytest.approx([80.0, 77.0, 67.0])
  assert lines['prompt, exact G'].get_ydata() == pytest.approx([95.0, 92.0, 82.0])
  assert list(lines['majority class'].get_xdata()) == [4, 10, 30] and ticks == ['4', '10', '30']
  assert len(legend) == 5


def test_a_reader_without_a_model_has_a_line_and_a_figure_of_its_own():
  """The second has a line for each size, in percent by the number of tokens that are kept."""
  untrained = [row | {'model': 'untrained'} for row in prompt_records()]
  _, _, lines, *_ = _drawn(grid_figures.figure_3_left, table_records() + untrained)
  assert lines['table of tokens, no model'].get_ydata() == pytest.approx([96, 93, 83])
  assert 'prompt, pretrained BERT' in lines and not any('exact G' in label for label in lines)
  _, _, lines, *_ = _drawn(grid_figures.nearest_tokens, table_records())
  assert lines['|H|=30'].get_xydata() == pytest.approx(np.array([[0, 50], [1, 25]]))


def test_the_forgetting_curve_has_a_line_for_each_size():
  """The mean over processes, each counted once, after 2, 4, ... tokens; beside the accuracies against a field."""
  rows = [
    row | {'distribution': f'ginc_{number}', 'forgetting': [1, 1, number, 1, 0.75]}
    for row in prompt_records()
    for number in (0, 1, 1)
  ]
  records = frame([*rows, rows[0] | {'forgetting': None}])
  shown = grids.figures(records, types.SimpleNamespace(figure=figure_settings()))
  lines = lines_by_label(shown['forgetting'].axes[0])
  assert shown['forgetting'].get_suptitle().endswith('HMMs: n = 2, each a dot')
  assert lines['|H|=30'].get_xydata() == pytest.approx(np.array([[2, 50], [4, 75]])) and 'against_fields' in shown
  # Trials of one process share its HMM; two laws of HMMs have no common line.
  (alone,) = grid_figures.forgetting(records[records['distribution'] == 'ginc_1'], figure_settings()).axes
  assert 'n = 1' in alone.figure.get_suptitle()
  differ = records.assign(**{'hmm.emission_temperature': np.arange(len(records)) % 2})
  assert grid_figures.forgetting(differ, figure_settings()) is None


def test_the_overview_names_its_lines_where_they_end():
  """In the order of their ends and apart, without a legend; other fits and the majority class are left out."""
  untrained = [row | {'model': 'untrained'} for row in prompt_records()]
  without = [row for row in table_records() if row['model'] == 'none']
  records = frame(prompt_records() + untrained + without)
  figure = grid_figures.overview(records, figure_settings())
  (axes,) = figure.axes
  names = [text.get_text() for text in axes.texts]
  assert names == ['head, pretrained BERT', 'prompt, pretrained BERT', 'table of tokens, no model']
  figure.draw_without_rendering()
  boxes = [text.get_window_extent() for text in axes.texts]
  assert all(low.y1 <= high.y0 for low, high in itertools.pairwise(boxes)) and not figure.legends
  assert all(axes.get_window_extent().x1 - 40 < box.x0 and box.x1 <= figure.bbox.x1 for box in boxes)
  assert grid_figures.overview(records[records['num_states'] == 4], figure_settings()) is None


def test_a_head_that_is_refitted_behind_a_prompt_changes_no_figure_of_accuracies():
  settings = types.SimpleNamespace(figures=('figure_3_left',), figure=figure_settings())
  refitted = [row | {'method': 'prompt_refit'} for row in prompt_records()]
  drawn = [grids.figures(frame(table_records() + rows), settings) for rows in ([], refitted)]
  first, second = (lines_by_label(found['figure_3_left'].axes[0]) for found in drawn)
  assert 'table of tokens, no model' in first and first.keys() == second.keys()


def test_the_right_figure_draws_memory_and_vanilla():
  """Each text has a line per model, at its number of joint states."""
  _, _, lines, ticks, legend = _drawn(grid_figures.figure_3_right, memory_records())
  assert lines['memory: attention, exact G'].get_ydata() == pytest.approx([96, 95, 93])
  vanilla = np.array([82, 78, 70]) + 100 * 0.02 * 5 / 3
  assert lines['vanilla: head, exact G'].get_ydata() == pytest.approx(vanilla)
  # BERT has no record beside the largest memory, and the line stops before it.
  assert lines['vanilla: head, pretrained BERT'].get_ydata() == pytest.approx(vanilla[:2])
  assert ticks == ['8', '12', '20'] and len(legend) == 6


def test_one_size_is_a_dot_plot():
  """A row for each fit with its interval, the paper's point in that of its fit, and the majority through all rows."""
  settings = dataclasses.replace(figure_settings(), paper_overlay=True)
  figure = grid_figures.figure_3_left(frame(prompt_records(num_trials=5)).query('num_states == 10'), settings)
  (axes,) = figure.axes
  lines = {label: line.get_xydata().tolist() for label, line in lines_by_label(axes).items()}
  names = ['head, pretrained BERT', 'prompt, pretrained BERT', 'head, exact G', 'prompt, exact G']
  assert [tick.get_text() for tick in axes.get_yticklabels()] == names
  for row, (name, accuracy) in enumerate(zip(names, (77.8, 87.8, 79.8, 92.8))):
    assert lines[f'_{name}'] == [[pytest.approx(accuracy), row]]
  ends = scipy.stats.t.interval(0.95, 4, 77.8, scipy.stats.sem([0, 1, 2, 0, 1]))
  assert axes.containers[0].lines[2][0].get_segments()[0][:, 0] == pytest.approx(ends)
  assert lines['majority class'] == [[pytest.approx(60), row] for row in range(4)]
  assert lines['prompt, the paper (BERT-base on more text; digitised)'] == [[93, 1]]
  assert len(figure.legends[0].get_texts()) == 3


def test_a_bag_of_words_stands_beside_attention_on_each_model():
  """Where no control was run there is no figure."""
  rows = [
    record(Point(4, 2, 1), model, method, 0.6)
    for model, method in (('bert', 'attention'), ('exact', 'attention'), ('exact', 'attention_constant'))
  ]
  figure = grid_figures.controls(frame(rows), figure_settings())
  assert [{'attention', 'attention on constant G'} <= set(lines_by_label(axes)) for axes in figure.axes] == [True, True]
  assert grid_figures.controls(frame(rows[:2]), figure_settings()) is None


@pytest.mark.parametrize(
  ('num_trials', 'counted'), [(4, 'HMMs: n = 4, each a dot'), (5, 'HMMs: n = 5, 95% t intervals')]
)
def test_few_values_are_dots_and_five_have_the_t_interval(num_trials, counted):
  """A dot is an independent value; the caption counts these."""
  figure, axes, *_ = _drawn(grid_figures.figure_3_left, prompt_records(num_trials))
  assert figure.get_suptitle() == f'some_experiment, scale small, seed 7; {counted}'
  dots = [each for line in axes.lines if line.get_marker() == '.' for each in np.split(line.get_ydata(), 3)]
  of_lines = [bar for container in axes.containers for bar in container.lines[2]]
  bars = [list(segment[:, 1]) for bar in of_lines for segment in bar.get_segments()]
  assert (len(dots), len(bars)) == ((12, 0) if num_trials < 5 else (0, 12))
  # The record of the head on BERT at the largest size.
  values = [67, 68, 69, 67, 68][:num_trials]
  interval = scipy.stats.t.interval(0.95, 4, np.mean(values), scipy.stats.sem(values))
  assert pytest.approx(values if dots else interval) in dots + bars


def test_nothing_is_clipped():
  """The limits hold every mark and interval, and no interval or tick is past 100 percent."""
  wide = [row | {'accuracy': (0.4, 1.0)[row['trial'] % 2]} for row in prompt_records(num_trials=5)]
  figure, axes, *_ = _drawn(grid_figures.figure_3_left, wide)
  figure.draw_without_rendering()
  points = np.concatenate([line.get_transform().transform(line.get_xydata()) for line in axes.lines])
  # The mark of |H| = |X| runs from edge to edge.
  assert all(axes.bbox.padded(1).contains(*point) for point in points)
  bars = [bar for container in axes.containers for bar in container.lines[2]]
  tops = [segment[1][1] for bar in bars for segment in bar.get_segments()]
  assert max(axes.get_yticks()) <= max(tops) == 100 < axes.get_ylim()[1]


@pytest.mark.parametrize(('num_panels', 'length'), [(1, 10), (1, 60), (2, 10), (2, 34), (2, 70)])
def test_a_legend_is_as_wide_as_fits(num_panels, length):
  """At most two columns for each panel; fewer if the labels are long."""
  figure, panels = figures.panels(figure_settings(), num_panels)
  for number in range(8):
    panels[0].plot([0, 1], [0, number], label=f'{number}' * length)
  figures.finish(figure, frame(prompt_records()), 'title')
  figure.draw_without_rendering()
  (legend,) = figure.legends
  assert legend.get_window_extent().width <= figure.bbox.width
  assert legend._ncols == 2 * num_panels if length == 10 else 1 <= legend._ncols < 2 * num_panels


def test_title_caption_and_panels_stand_below_each_other():
  figure, axes, *_ = _drawn(grid_figures.figure_3_left, prompt_records(num_trials=5))
  figure.draw_without_rendering()
  boxes = [text.get_window_extent() for text in (*figure.texts, *axes.texts)]
  assert figure.texts[0].get_text() == 'Test accuracy by number of hidden states'
  assert len(boxes) == 3 and all(below.y1 <= above.y0 for above, below in itertools.pairwise(boxes))
  assert axes.get_tightbbox().y1 <= boxes[1].y0


def test_lines_beside_neighbouring_sizes_do_not_mix():
  """Though 10 and 11 are closer than 11 and 30: all nine lines at a size lie left of all at the next."""
  sizes = {4: 10, 10: 11, 30: 30}
  rows = [row | {'num_states': sizes[row['num_states']]} for row in prompt_records()]
  rows += [row | {'model': model} for row in rows for model in ('own', 'other_bert')]
  _, axes, lines, *_ = _drawn(grid_figures.figure_3_left, rows)
  axes.figure.draw_without_rendering()
  drawn = [line for label, line in lines.items() if label[0] != '_']
  places = np.array([line.get_transform().transform(line.get_xydata())[:, 0] for line in drawn])
  assert len(places) == 9 and (places[:, :-1].max(0) < places[:, 1:].min(0)).all()


def test_points_of_the_paper_have_markers_of_no_method():
  """In grey, too, they are told from hollow points of ours."""
  settings = dataclasses.replace(figure_settings(), paper_overlay=True)
  lines = lines_by_label(grid_figures.figure_3_left(frame(prompt_records()), settings).axes[0])
  papers = {line.get_marker() for label, line in lines.items() if 'the paper' in label}
  assert len(papers) == 2 and not papers & {method.marker for method in METHODS.values()}


def test_no_error_has_a_place_on_the_logarithmic_axis():
  """Zero is a tick above the edge, where means without error have their marks, and intervals end at zero."""
  records = [
    record(Point(6, 3, cells), 'bert', 'head', 1 - error, trial=trial)
    for cells, of_cells in ((1, [0.0] * 5), (2, [0.001, 0.0, 0.0, 0.0, 0.0]), (3, [0.2] * 5))
    for trial, error in enumerate(of_cells)
  ]
  _, axes, lines, *_ = _drawn(grid_figures.memory_cells, records)
  assert lines['head, pretrained BERT'].get_ydata() == pytest.approx([0, 0.02, 20]) and axes.get_yscale() == 'symlog'
  lows = [segment[0][1] for container in axes.containers for segment in container.lines[2][0].get_segments()]
  assert axes.get_ylim()[0] < min(lows) == 0


def test_bins_are_averaged_by_the_share_of_positions():
  """Empty bins count for nothing; what attends by entropy has no line."""
  profiles = [[[0.1, 1.0, 0.3], [0.2, 3.0, 0.7]], [[0.4, 2.0, 0.1], [None, None, 0.0]]]
  of_task = dict(attention_by='read_probability')
  records = [
    record(Point(4, 2, 2), 'exact', 'attention', 0.9, task=task, attention_profile=profile, **of_task)
    for task, profile in enumerate(profiles)
  ]
  records.append(records[0] | dict(memory_size=3, attention_by='entropy'))
  _, axes, lines, *_ = _drawn(grid_figures.attention, records)
  assert sum(label[0] != '_' for label in lines) == 1
  expected = [[(0.1 * 0.3 + 0.4 * 0.1) / 0.4, 0.2], [(1 * 0.3 + 2 * 0.1) / 0.4, 3]]
  np.testing.assert_allclose(axes.lines[0].get_data(), expected)
  (marks,) = axes.collections
  np.testing.assert_allclose((marks.get_sizes() - 16) / 300, [(0.3 + 0.1) / 2, 0.7 / 2])


def test_three_formats_with_the_same_bytes_every_time(tmp_path):
  """The same records give the same files, so that a redraw can be compared."""
  first, second = (
    figures.save(grid_figures.attention(frame(cell_records()), figure_settings()), tmp_path / name) for name in 'ab'
  )
  assert [path.suffix for path in first] == ['.png', '.pdf', '.svg']
  assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_methods_are_drawn_apart():
  """No two that are trained have one colour, nor both one marker and one dash, which grey leaves."""
  drawn = [method for method in METHODS.values() if method.fit == 'schedule']
  assert (
    len({method.colour for method in drawn}) == len({(method.marker, method.dash) for method in drawn}) == len(drawn)
  )
