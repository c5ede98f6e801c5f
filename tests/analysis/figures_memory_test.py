"""Figure 3 (right), of cells, of attention and of controls: what is drawn of records of memories."""

import json
import pathlib
import re

from figures_cases import (
  cell_records,
  figure_settings,
  lines_by_label,
  MEMORIES,
  memory_records,
  prompt_records,
  record_of,
  VANILLAS,
)
import numpy as np
from pandas import DataFrame as frame
import pytest

from experiments.analysis import figures, report
from experiments.analysis.tables import as_text
from experiments.settings.grid import Point
from experiments.settings.methods import METHODS

MODELS = ('pretrained BERT', 'exact G')
REFERENCE = pathlib.Path(report.__file__).parent / 'figure_3_reference.json'


def test_the_right_figure_draws_memory_and_vanilla():
  """Each text has a line a model through its means and its own majority baseline, at its number of joint states."""
  figure = figures.figure_3_right(frame(memory_records()), figure_settings())
  (axes,) = figure.axes
  lines = lines_by_label(axes)
  assert {f'{text}, {model}' for text in ('memory: attention', 'vanilla: head') for model in MODELS} <= set(lines)
  assert lines['memory: attention, exact G'].get_ydata() == pytest.approx([96, 95, 93])
  spread = 100 * 0.02 * 5 / 3
  assert lines['vanilla: head, exact G'].get_ydata() == pytest.approx(np.array([82, 78, 70]) + spread)
  # BERT has no record beside the largest memory, and the line stops before it.
  assert lines['vanilla: head, pretrained BERT'].get_ydata() == pytest.approx(np.array([82, 78]) + spread)
  majorities = [lines[f'{text}: majority class'] for text in ('memory', 'vanilla')]
  assert [list(line.get_ydata()) for line in majorities] == [pytest.approx([55] * 3), pytest.approx([60] * 3)]
  assert majorities[0].get_linestyle() != majorities[1].get_linestyle()
  assert [label.get_text() for label in axes.get_xticklabels()] == ['8', '12', '20']
  assert '|M||H|' in axes.get_xlabel() and '%' in axes.get_ylabel()
  assert len(figure.legends[0].get_texts()) == 6


def test_the_right_figure_of_vanilla_text_alone():
  """Nothing is drawn of the text that there is none of."""
  figure = figures.figure_3_right(frame(prompt_records()), figure_settings())
  assert not any('memory' in label for label in lines_by_label(figure.axes[0]))


def test_a_method_of_both_texts_has_two_styles():
  """The attention head on vanilla text is drawn as no other line of its model is."""
  records = memory_records()
  both = [r | {'method': 'attention'} for r in records if r['method'] == 'head']
  (axes,) = figures.figure_3_right(frame(records + both), figure_settings()).axes
  lines = [line for label, line in lines_by_label(axes).items() if label.endswith('exact G')]
  assert len({(line.get_color(), line.get_marker()) for line in lines}) == 3


def test_the_right_figure_draws_the_paper_when_asked():
  """The overlay is the digitised values of the later text within our range of sizes, for both texts."""
  right = json.loads(REFERENCE.read_text())['right_later_version']
  (axes,) = figures.figure_3_right(frame(memory_records()), figure_settings(overlay=True)).axes
  drawn = {label: line for label, line in lines_by_label(axes).items() if 'paper' in label}
  assert len(drawn) == 2
  for text in ('memory', 'vanilla'):
    (line,) = [line for label, line in drawn.items() if label.startswith(text)]
    assert list(line.get_xdata()) == [8, 12, 20]
    assert list(line.get_ydata()) == right[text]['mean'][:3]
  (plain,) = figures.figure_3_right(frame(memory_records()), figure_settings()).axes
  assert not [line for line in plain.lines if 'paper' in line.get_label()]


def test_the_figure_of_cells_draws_errors_on_a_logarithmic_axis():
  """Each method has a line through its mean errors at N cells, in the order of the tables."""
  figure = figures.memory_cells(frame(cell_records()), figure_settings())
  (axes,) = figure.axes
  lines = lines_by_label(axes)
  names = [f'{name}, pretrained BERT' for name in ('attention', 'head', 'prompt + attention')]
  assert [text.get_text() for text in figure.legends[0].get_texts()] == [*names, 'majority class']
  assert lines['attention, pretrained BERT'].get_ydata() == pytest.approx([14, 19, 24])
  assert lines['prompt + attention, pretrained BERT'].get_ydata() == pytest.approx([9, 14, 19])
  assert lines['majority class'].get_ydata() == pytest.approx([50] * 3)
  assert [label.get_text() for label in axes.get_xticklabels()] == ['1', '2', '3']
  assert axes.get_yscale() == 'symlog' and 'error (%)' in axes.get_ylabel() and 'N' in axes.get_xlabel()


@pytest.mark.parametrize('num_trials', [3, 5])
def test_no_error_has_a_place_on_the_logarithmic_axis(num_trials):
  """Zero is a tick above the edge: a mean without error and a task without stand there, with their own marks."""
  errors = {1: [0.0] * 5, 2: [0.0, 0.0, 0.0, 0.0, 0.001], 3: [0.2, 0.21, 0.2, 0.2, 0.2]}
  records = [
    record_of(Point(6, 3, cells), 0, 'bert', 'head', 1 - errors[cells][-1 - trial], 0.5) | {'trial': trial}
    for cells in errors
    for trial in range(num_trials)
  ]
  (axes,) = figures.memory_cells(frame(records), figure_settings()).axes
  line = lines_by_label(axes)['head, pretrained BERT']
  assert line.get_ydata() == pytest.approx([0, 0.1 / num_trials, 20.2 if num_trials == 5 else 20])
  ticks = dict(zip(axes.get_yticks(), (label.get_text() for label in axes.get_yticklabels())))
  assert axes.get_ylim()[0] < 0 and [ticks[0], ticks[0.1], ticks[20]] == ['0', '0.1', '20']
  if num_trials == 3:
    dots = [dots for dots in axes.lines if dots.get_marker() == '.' and set(dots.get_xdata()) == {2}]
    assert [list(one.get_ydata()) for one in dots] == [pytest.approx([0.1, 0, 0])]
  else:
    # The interval reaches below 0, where the edge cuts it.
    (low, _), *_ = axes.containers[1].lines[2][0].get_segments()
    assert low[1] < axes.get_ylim()[0]
  none = frame([r | {'accuracy': 1.0} for r in records])
  assert figures.memory_cells(none, figure_settings()).axes[0].get_yticks()[0] == 0


def test_the_attention_figure_is_of_the_read_probability():
  """One panel, each line the mean profile of a distribution's tasks; none of what attends by entropy alone."""
  figure = figures.attention(frame(cell_records()), figure_settings())
  (axes,) = figure.axes
  lines = {line.get_label(): line for line in axes.lines if line.get_label()[0] != '_'}
  assert set(lines) == {f'|H|=6 |M|=3 N={cells}, pretrained BERT' for cells in (2, 3)}
  assert 'probability' in axes.get_xlabel() and 'mean over tasks of one HMM per size: n = 3;' in figure.get_suptitle()
  for line in lines.values():
    assert line.get_xdata() == pytest.approx([0.05, 0.45, 0.98])
    assert line.get_ydata() == pytest.approx([0.6, 1.1, 1.9])
  assert figures.attention(frame(memory_records()), figure_settings()) is None


def test_bins_are_averaged_by_the_share_of_positions():
  """A bin that one task fills more than another counts for the first in proportion, and empty bins for nothing."""
  records = [record_of(Point(4, 2, 2), task, 'exact', 'attention', 0.9, 0.5, 'read_probability') for task in range(2)]
  records[0]['attention_profile'] = [[0.1, 1.0, 0.3], [0.2, 3.0, 0.7]]
  records[1]['attention_profile'] = [[0.4, 2.0, 0.1], [None, None, 0.0]]
  (axes,) = figures.attention(frame(records), figure_settings()).axes
  line = axes.lines[0]
  assert line.get_xdata() == pytest.approx([(0.1 * 0.3 + 0.4 * 0.1) / 0.4, 0.2])
  assert line.get_ydata() == pytest.approx([(1 * 0.3 + 2 * 0.1) / 0.4, 3])


def _control_records(points, trials=3):
  accuracies = {
    'attention': 0.9,
    'attention_blind': 0.8,
    'attention_constant': 0.6,
    'head': 0.7,
    'head_converged': 0.99,
  }
  return [
    record_of(point, task, model, method, accuracy - 0.01 * trial, 0.5, 'other') | {'trial': trial}
    for point in points
    for trial in range(trials)
    for task in range(2)
    for method, accuracy in accuracies.items()
    for model in METHODS[method].models
  ]


def test_controls_have_a_figure_of_their_own():
  """A row for each text and a column for each model; the bag of words, which reads no model, stands in both columns."""
  records = _control_records([*MEMORIES, *VANILLAS])
  figure = figures.controls(frame(records), figure_settings())
  titles = [f'{text} text, {model}' for text in ('memory', 'vanilla') for model in MODELS]
  assert [axes.get_title() for axes in figure.axes] == titles
  for axes in figure.axes:
    lines = lines_by_label(axes)
    drawn = {'attention': 89, 'attention without tokens': 79, 'attention on constant G': 59, 'head': 69}
    assert {label: pytest.approx([y] * 3) for label, y in drawn.items()} == {
      label: list(lines[label].get_ydata()) for label in drawn
    }
    assert 'converged head' not in lines and list(axes.get_xticks()) == [8, 12, 20]
  assert 'HMMs: n = 3' in figure.get_suptitle() and 'number of joint states' in figure.axes[-1].get_xlabel()
  assert len(figures.controls(frame(_control_records(VANILLAS)), figure_settings()).axes) == 2
  assert figures.controls(frame(memory_records()), figure_settings()) is None


def test_the_panels_draw_what_the_paper_does_where_more_was_run():
  """With controls and other fits on record: head and prompt on the left; attention of memory, head of vanilla text."""
  extra = [r | {'method': 'head_converged'} for r in prompt_records() if r['method'] == 'head']
  attention = [r | {'method': 'attention'} for r in prompt_records() if r['method'] == 'head']
  (axes,) = figures.figure_3_left(frame(prompt_records() + extra + attention), figure_settings()).axes
  (plain,) = figures.figure_3_left(frame(prompt_records()), figure_settings()).axes
  assert set(lines_by_label(axes)) == set(lines_by_label(plain))
  (axes,) = figures.figure_3_right(frame(_control_records([*MEMORIES, *VANILLAS])), figure_settings()).axes
  named = {label for label in lines_by_label(axes) if label[0] != '_'}
  texts = [f'{text}, {model}' for text in ('memory: attention', 'vanilla: head') for model in MODELS]
  assert named == {*texts, 'memory: majority class', 'vanilla: majority class'}


def test_the_table_beyond_the_protocol():
  """Controls and other fits have a table of their own, in which the unit is the HMM, as in that of differences."""
  records = frame(_control_records([*MEMORIES, *VANILLAS]))
  text = '\n'.join(map(as_text, report.tables(records, paper_overlay=False).values()))
  protocol, differences, beyond = re.split('Differences in points|Beyond the paper', text)
  assert 'converged' not in protocol and 'the unit the HMM' in differences
  row = next(line for line in beyond.splitlines() if line.split()[:2] == ['memory', '2'])
  assert row.split()[6:9] == ['79.0', '±', '2.5'] and 'constant G' in beyond
  # Attention on BERT less a bag of words, of which there is one for both models.
  row = next(line for line in differences.splitlines() if 'attention - attention on constant G' in line)
  assert ' 30.0 ' in row
