"""Figures and tables say what the records say."""

import itertools
import json
import pathlib
import re
import xml.etree.ElementTree

import matplotlib
import matplotlib.colors
import numpy as np
import pytest
import scipy.stats

from experiments import figures, report, results
from experiments.methods import METHODS
from experiments.settings import FigureSettings, Point
from experiments.theory import verification_report

MODELS = ('pretrained BERT', 'exact G')
RUN = dict(experiment='some_experiment', scale='small', seed=7)
REFERENCE = pathlib.Path(report.__file__).parent / 'figure_3_reference.json'


def _records(num_trials=1):
  return [
    dict(
      RUN,
      num_states=num_states,
      memory_size=0,
      num_cells=0,
      near_tie_share=0.0,
      trial=trial,
      task=task,
      model=model,
      method=method,
      accuracy=base + 0.02 * task + 0.01 * (trial % 3) - 0.005 * num_states,
      majority_accuracy=0.55,
      kl_at_mask=0.123,
      excess_mlm_loss=0.045,
    )
    for num_states in (4, 10, 30)
    for trial in range(num_trials)
    for task in range(3)
    for model, method, base in (
      ('bert', 'head', 0.8),
      ('bert', 'prompt', 0.9),
      ('exact', 'head', 0.82),
      ('exact', 'prompt', 0.95),
    )
  ]


def _profile(offset):
  """Three bins of ten with positions in them; means of concentration and weight, and shares."""
  filled = {0: [0.05, 0.5 + offset, 0.5], 4: [0.45, 1.0 + offset, 0.25], 9: [0.98, 2.0 - offset, 0.25]}
  return [filled.get(index, [None, None, 0.0]) for index in range(10)]


def _record(point, task, model, method, accuracy, majority, measure='entropy'):
  has_profile = method == 'attention'
  return dict(
    RUN | point._asdict(),
    trial=0,
    task=task,
    model=model,
    method=method,
    accuracy=accuracy,
    majority_accuracy=majority,
    near_tie_share=0.0,
    kl_at_mask=0.25 if point.memory_size else 0.5,
    excess_mlm_loss=0.045,
    attention_by=measure if has_profile else None,
    attention_profile=_profile(0.1 * task) if has_profile else None,
  )


MEMORIES, VANILLAS = [Point(4, size, 1) for size in (2, 3, 5)], [Point(8), Point(12), Point(20)]


def _memory_records():
  """Three sizes of memory and the HMMs beside them, but none beside the last on BERT."""
  vanilla = [
    _record(point, task, model, 'head', 0.9 - 0.01 * point.num_states + 0.02 * task**2, 0.6)
    for point in VANILLAS
    for model in ('bert', 'exact')
    for task in range(3)
    if (point, model) != (VANILLAS[-1], 'bert')
  ]
  memory = [
    _record(point, task, model, 'attention', 0.99 - 0.01 * point.memory_size - 0.01 * task, 0.55)
    for point in MEMORIES
    for model in ('bert', 'exact')
    for task in range(3)
  ]
  return vanilla + memory


def _cell_records():
  return [
    _record(Point(6, 3, cells), task, 'bert', method, base - 0.05 * cells + 0.01 * task, 0.5, measure)
    for cells, measure in ((1, 'entropy'), (2, 'read_probability'), (3, 'read_probability'))
    for method, base in (('attention', 0.9), ('head', 0.7), ('prompt_attention', 0.95))
    for task in range(3)
  ]


def _settings(overlay=False):
  return FigureSettings(width=6.4, height=4.2, dpi=60, paper_overlay=overlay)


def _lines_by_label(axes):
  return {line.get_label(): line for line in axes.lines}


def _drawn(axes):
  """(x, y) on the page, in pixels, of everything drawn as a line, with the caps of intervals."""
  axes.figure.draw_without_rendering()
  return np.concatenate([line.get_transform().transform(line.get_xydata()) for line in axes.lines])


def test_the_figure_draws_the_means_of_the_records():
  """The line of a method passes through its mean accuracies, in percent, over the sizes themselves."""
  (axes,) = figures.figure_3_left(_records(), _settings()).axes
  lines = _lines_by_label(axes)
  assert lines['head, pretrained BERT'].get_ydata() == pytest.approx([80.0, 77.0, 67.0])
  assert lines['prompt, exact G'].get_ydata() == pytest.approx([95.0, 92.0, 82.0])
  for line in lines.values():
    assert set(line.get_xdata()) <= {4, 10, 30}


def test_the_figure_names_its_axes_and_marks_the_vocabulary():
  """Axes are labelled with units, every curve is in the legend below, and |H| = |X| is marked at 10."""
  figure = figures.figure_3_left(_records(), _settings())
  (axes,) = figure.axes
  assert '|H|' in axes.get_xlabel()
  assert '%' in axes.get_ylabel()
  assert [label.get_text() for label in axes.get_xticklabels()] == ['4', '10', '30']
  assert len(figure.legends[0].get_texts()) == 5
  assert [(text.get_text(), text.get_position()[0]) for text in axes.texts] == [('|H| = |X|', 10)]


def test_the_paper_is_drawn_beside_ours_only_when_asked():
  """The overlay adds the digitised values within our range of sizes, as hollow marks, and names what they are of.

  They are the later text's, and at the scale of the first text its own.
  """
  (plain,) = figures.figure_3_left(_records(), _settings()).axes
  assert not [line for line in plain.lines if 'paper' in line.get_label()]
  for scale, of in (('small', 'BERT-base on more text'), ('paper', 'BERT-base'), ('tuned', 'BERT-base')):
    records = [record | {'scale': scale} for record in _records() if record['num_states'] > 4]
    (axes,) = figures.figure_3_left(records, _settings(overlay=True)).axes
    lines = [_lines_by_label(axes)[f'{method}, the paper ({of}; digitised)'] for method in ('prompt', 'head')]
    assert [list(line.get_xdata()) for line in lines] == [[10, 15, 25, 30]] * 2
    assert [list(line.get_ydata()) for line in lines] == [[93.0, 87.0, 74.8, 75.1], [79.7, 74.6, 66.1, 66.2]]
    assert {(line.get_markerfacecolor(), line.get_linestyle()) for line in lines} == {('none', 'None')}
    assert '15' in [label.get_text() for label in axes.get_xticklabels()]
  first = [record | {'scale': 'paper_v1'} for record in _records() if record['num_states'] > 4]
  (axes,) = figures.figure_3_left(first, _settings(overlay=True)).axes
  line = _lines_by_label(axes)['prompt, the paper (BERT-base; digitised)']
  assert list(zip(*line.get_data())) == [(10, 97.6), (12, 98.6), (15, 93.8), (25, 69.3), (30, 76.2)]


@pytest.mark.parametrize('num_trials', [1, 4])
def test_few_values_are_dots_and_no_interval(num_trials):
  """Below five independent values each is a dot; the caption says what they are."""
  figure = figures.figure_3_left(_records(num_trials), _settings())
  (axes,) = figure.axes
  assert not axes.containers and not axes.collections
  at_30 = [list(line.get_ydata()) for line in axes.lines if line.get_marker() == '.' and set(line.get_xdata()) == {30}]
  values = [65.0, 67.0, 69.0] if num_trials == 1 else [67.0, 68.0, 69.0, 67.0]
  assert pytest.approx(values) in at_30 and len(at_30) == 4
  counted = 'tasks of one HMM per size: n = 3' if num_trials == 1 else 'HMMs: n = 4'
  assert figure.get_suptitle() == f'some_experiment, scale small, seed 7; {counted}, each a dot'


def test_five_values_have_the_t_interval():
  """From five independent values on the bar is the 95% t interval, and no dot is drawn."""
  figure = figures.figure_3_left(_records(num_trials=5), _settings())
  (axes,) = figure.axes
  assert figure.get_suptitle() == 'some_experiment, scale small, seed 7; HMMs: n = 5, 95% t intervals'
  assert not [line for line in axes.lines if line.get_marker() == '.']
  values = [67.0, 68.0, 69.0, 67.0, 68.0]
  interval = scipy.stats.t.interval(0.95, 4, np.mean(values), scipy.stats.sem(values))
  bars = [bar.get_segments()[0] for container in axes.containers for bar in container.lines[2]]
  assert len(bars) == 12
  assert any(bar == pytest.approx(np.array([[30, interval[0]], [30, interval[1]]])) for bar in bars)


def test_the_caption_counts_what_differs_between_sizes():
  """A run of 2 HMMs at one size and 6 at another says so, and that both kinds of spread are drawn."""
  records = [record for record in _records(num_trials=6) if record['num_states'] > 4 or record['trial'] < 2]
  caption = figures.figure_3_left(records, _settings()).get_suptitle()
  assert caption.endswith('; HMMs: n = 2 to 6, each a dot or 95% t intervals')


def test_nothing_is_clipped():
  """The limits hold every mark and interval, those that reach past 100 percent as well; no tick does."""
  records = [dict(r, accuracy=(0.4, 1.0)[r['trial'] % 2]) for r in _records(num_trials=5)]
  many = [dict(r, method=method) for r in _records() if r['method'] == 'head' for method in METHODS]
  for rows, overlay in ((records, False), (_records(), True), (many, False)):
    (axes,) = figures.figure_3_left(rows, _settings(overlay)).axes
    # The mark of |H| = |X| runs from edge to edge.
    assert all(axes.bbox.padded(1).contains(*point) for point in _drawn(axes))
    assert max(axes.get_yticks()) <= 100 and (rows is not records or axes.get_ylim()[1] > 100)


DRAWINGS = [
  (figures.figure_3_left, _records),
  (figures.figure_3_right, _memory_records),
  (figures.memory_cells, _cell_records),
  (figures.attention, _cell_records),
  (figures.controls, lambda: _control_records([*MEMORIES, *VANILLAS])),
]


@pytest.mark.parametrize(('draw', 'records'), DRAWINGS, ids=[draw.__name__ for draw, _ in DRAWINGS])
def test_three_formats_with_the_same_bytes_every_time(draw, records, tmp_path):
  """The same records give the same files, so that a redraw can be compared."""
  first = figures.save(draw(records(), _settings()), tmp_path / 'a')
  second = figures.save(draw(records(), _settings()), tmp_path / 'b')
  assert [path.suffix for path in first] == ['.png', '.pdf', '.svg']
  for one, other in zip(first, second):
    assert one.read_bytes() == other.read_bytes()
  assert first[0].read_bytes().startswith(b'\x89PNG')
  assert first[1].read_bytes().startswith(b'%PDF')
  xml.etree.ElementTree.parse(first[2])


def test_the_table_holds_means_differences_and_the_gap():
  """A row per size: accuracies with intervals, the paired gain, the majority and the distance from ideal."""
  text, differences = report.render(_records(), paper_overlay=True).split('Differences in points')
  row = next(line for line in text.splitlines() if line.split()[:1] == ['30'])
  for number in ('67.0 ±', '77.0 ±', '82.0 ±', '55.0', '0.123', '0.045', '66.2 / 75.1', '+0.8 / +1.9'):
    assert number in row
  assert '  10.0 ± ' in next(line for line in differences.splitlines() if line.split()[:1] == ['30'])


def test_the_right_figure_draws_memory_and_vanilla():
  """Each text has a line a model through its means and its own majority baseline, at its number of joint states."""
  figure = figures.figure_3_right(_memory_records(), _settings())
  (axes,) = figure.axes
  lines = _lines_by_label(axes)
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


def test_a_method_of_both_texts_has_two_styles():
  """The attention head on vanilla text is drawn as no other line of its model is."""
  records = _memory_records()
  both = [r | {'method': 'attention'} for r in records if r['method'] == 'head']
  (axes,) = figures.figure_3_right(records + both, _settings()).axes
  lines = [line for label, line in _lines_by_label(axes).items() if label.endswith('exact G')]
  assert len({(line.get_color(), line.get_marker()) for line in lines}) == 3


def test_the_right_figure_draws_the_paper_when_asked():
  """The overlay is the digitised values of the later text within our range of sizes, for both texts."""
  right = json.loads(REFERENCE.read_text())['right_later_version']
  (axes,) = figures.figure_3_right(_memory_records(), _settings(overlay=True)).axes
  drawn = {label: line for label, line in _lines_by_label(axes).items() if 'paper' in label}
  assert len(drawn) == 2
  for text in ('memory', 'vanilla'):
    (line,) = [line for label, line in drawn.items() if label.startswith(text)]
    assert list(line.get_xdata()) == [8, 12, 20]
    assert list(line.get_ydata()) == right[text]['mean'][:3]
  (plain,) = figures.figure_3_right(_memory_records(), _settings()).axes
  assert not [line for line in plain.lines if 'paper' in line.get_label()]


def test_the_figure_of_cells_draws_errors_on_a_logarithmic_axis():
  """Each method has a line through its mean errors at N cells, those with a prompt first in the legend."""
  figure = figures.memory_cells(_cell_records(), _settings())
  (axes,) = figure.axes
  lines = _lines_by_label(axes)
  names = [f'{name}, pretrained BERT' for name in ('prompt + attention', 'attention', 'head')]
  assert [text.get_text() for text in figure.legends[0].get_texts()] == [*names, 'majority class']
  assert lines['attention, pretrained BERT'].get_ydata() == pytest.approx([14, 19, 24])
  assert lines['prompt + attention, pretrained BERT'].get_ydata() == pytest.approx([9, 14, 19])
  assert lines['majority class'].get_ydata() == pytest.approx([50] * 3)
  assert [label.get_text() for label in axes.get_xticklabels()] == ['1', '2', '3']
  assert axes.get_yscale() == 'log' and 'error (%)' in axes.get_ylabel() and 'N' in axes.get_xlabel()


@pytest.mark.parametrize('num_trials', [3, 5])
def test_no_error_is_marked_on_the_bottom_edge(num_trials):
  """Triangles on the edge: a mean without error, a task without, and an interval that reaches below; no other mark."""
  errors = {1: [0.0] * 5, 2: [0.0, 0.0, 0.0, 0.0, 0.001], 3: [0.2, 0.21, 0.2, 0.2, 0.2]}
  records = [
    _record(Point(6, 3, cells), 0, 'bert', 'head', 1 - errors[cells][-1 - trial], 0.5) | {'trial': trial}
    for cells in errors
    for trial in range(num_trials)
  ]
  (axes,) = figures.memory_cells(records, _settings()).axes
  bottom = axes.get_ylim()[0]
  assert bottom == pytest.approx(0.1 / num_trials / 2)
  on_edge = [line for line in axes.lines if line.get_marker() == 'v']
  assert {(*line.get_xdata(), *line.get_ydata()) for line in on_edge} == {(1, bottom), (2, bottom)}
  assert not any(line.get_clip_on() for line in on_edge)
  line = _lines_by_label(axes)['head, pretrained BERT']
  assert line.get_markevery() == [False, True, True]
  assert line.get_ydata()[1] == pytest.approx(0.1 / num_trials)
  assert axes.get_yticklabels()[0].get_text() == '0 (▼)' and axes.get_yticks()[0] == bottom


def test_the_attention_figure_is_of_the_read_probability():
  """One panel, each line the mean profile of a distribution's tasks; none of what attends by entropy alone."""
  figure = figures.attention(_cell_records(), _settings())
  (axes,) = figure.axes
  lines = {line.get_label(): line for line in axes.lines if line.get_label()[0] != '_'}
  assert set(lines) == {f'|H|=6 |M|=3 N={cells}, pretrained BERT' for cells in (2, 3)}
  assert 'probability' in axes.get_xlabel() and 'mean over tasks of one HMM per size: n = 3;' in figure.get_suptitle()
  for line in lines.values():
    assert line.get_xdata() == pytest.approx([0.05, 0.45, 0.98])
    assert line.get_ydata() == pytest.approx([0.6, 1.1, 1.9])
  assert figures.attention(_memory_records(), _settings()) is None


def test_bins_are_averaged_by_the_share_of_positions():
  """A bin that one task fills more than another counts for the first in proportion, and empty bins for nothing."""
  records = [_record(Point(4, 2, 2), task, 'exact', 'attention', 0.9, 0.5, 'read_probability') for task in range(2)]
  records[0]['attention_profile'] = [[0.1, 1.0, 0.3], [0.2, 3.0, 0.7]]
  records[1]['attention_profile'] = [[0.4, 2.0, 0.1], [None, None, 0.0]]
  (axes,) = figures.attention(records, _settings()).axes
  line = axes.lines[0]
  assert line.get_xdata() == pytest.approx([(0.1 * 0.3 + 0.4 * 0.1) / 0.4, 0.2])
  assert line.get_ydata() == pytest.approx([(1 * 0.3 + 2 * 0.1) / 0.4, 3])


OLD_COLOURS = ('#1b5e9e', '#d95f02', '#4d9221', '#6a3d9a', '#b2182b', '#b8860b')
# CIELAB distances that two colours need, and the difference in lightness from which grey alone tells them apart.
LEAST_NORMAL, LEAST_DEUTERANOPIA, LEAST_GREY = 25, 18, 10
# Machado, Oliveira and Fernandes 2009, deuteranopia, on linear RGB.
DEUTERANOPIA = np.array(
  [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
)
XYZ = np.array([[0.4125, 0.3576, 0.1804], [0.2127, 0.7152, 0.0722], [0.0193, 0.1192, 0.9503]])


def _cielab(colour, sight=None):
  """L*, a*, b* under D65 of an sRGB colour, as a `sight` sees it."""
  rgb = np.array(matplotlib.colors.to_rgb(colour))
  linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
  seen = np.clip(linear if sight is None else sight @ linear, 0, 1)
  ratio = XYZ @ seen / XYZ.sum(1)
  x, y, z = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio / (3 * (6 / 29) ** 2) + 4 / 29)
  return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def _too_near(styles):
  """The pairs of (colour, marker, dash) that are not told apart, each with why."""
  found = []
  for (one, *marks), (other, *other_marks) in itertools.combinations(styles, 2):
    for sight, least in ((None, LEAST_NORMAL), (DEUTERANOPIA, LEAST_DEUTERANOPIA)):
      if np.linalg.norm(_cielab(one, sight) - _cielab(other, sight)) < least:
        found.append((one, other, least))
    both_differ = all(mark != other_mark for mark, other_mark in zip(marks, other_marks))
    if abs(_cielab(one)[0] - _cielab(other)[0]) < LEAST_GREY and not both_differ:
      found.append((one, other, 'grey'))
  return found


def test_colours_hold_under_deuteranopia_and_in_grey():
  """Any two methods are apart in CIELAB, as a deuteranope sees them, and in grey or in both marker and dash."""
  drawn = [method for method in METHODS.values() if method.fit == 'schedule']
  methods = [(method.colour, method.marker, method.dash) for method in drawn]
  assert not _too_near(methods)
  assert not _too_near([tuple(style.values()) for style in verification_report._STYLES.values()])
  cycle = figures.styled(lambda: matplotlib.rcParams['axes.prop_cycle'])()
  assert not _too_near([tuple(style.values()) for style in cycle])
  # As it was: the prompt beside prompt + attention, and the head beside the fine-tuned model.
  old = [(colour, *style[1:]) for colour, style in zip(OLD_COLOURS, methods)]
  near = {(one, other) for one, other, why in _too_near(old) if why == LEAST_DEUTERANOPIA}
  assert {('#d95f02', '#b8860b'), ('#1b5e9e', '#6a3d9a')} <= near
  # Marker and dash are asked for where grey does not do.
  assert _too_near([('#56B4E9', 'o', '-'), ('#E69F00', 's', '-')]) == [('#56B4E9', '#E69F00', 'grey')]


def _rows(records, overlay=False):
  """The rows of the first table."""
  lines = report.render(records, overlay).split('Differences in points')[0].splitlines()
  return [line for line in lines if line.split()[:1] in (['memory'], ['vanilla'])]


def test_the_table_compares_memory_with_vanilla():
  """A row per distribution; the gain over the vanilla HMM of as many joint states is Welch's, where BERT has both."""
  rows = _rows(_memory_records(), overlay=True)
  vanilla, memory = rows[:3], rows[3:]
  assert [row.split()[:3] for row in vanilla] == [['vanilla', str(size), str(size)] for size in (8, 12, 20)]
  assert [row.split()[:5] for row in memory] == [['memory', str(size), '1', '4', str(4 * size)] for size in (2, 3, 5)]
  assert '0.250' in memory[0] and '0.500' in vanilla[0]
  assert [rows[0].split()[-2], memory[0].split()[-2]] == ['83.2', '99.8']
  differences = report.render(_memory_records(), paper_overlay=True).split('Differences in points')[1].splitlines()
  compared = [line for line in differences if ' memory ' in line or 'memory attention - vanilla head' in line]
  # The last memory has nothing to be compared with on BERT.
  assert len(compared) == 2 and 'memory attention - vanilla head' in compared[0]
  p_values = []
  for row, point, other in zip(compared, MEMORIES, VANILLAS):
    accuracies = [
      [100 * r['accuracy'] for r in _memory_records() if r['model'] == 'bert' and results.point_of(r) == at]
      for at in (point, other)
    ]
    welch = scipy.stats.ttest_ind(*accuracies, equal_var=False)
    low, high = welch.confidence_interval()
    assert f' {(low + high) / 2:.1f} ± {(high - low) / 2:.1f}  ' in row
    p_values.append(welch.pvalue)
  first, second = np.argsort(p_values)
  assert f' {2 * p_values[first]:.2g} ' in compared[first]
  assert f' {max(2 * p_values[first], p_values[second]):.2g} ' in compared[second]


def _control_records(points, trials=3):
  accuracies = {
    'attention': 0.9,
    'attention_blind': 0.8,
    'attention_constant': 0.6,
    'head': 0.7,
    'head_converged': 0.99,
  }
  return [
    _record(point, task, model, method, accuracy - 0.01 * trial, 0.5, 'other') | {'trial': trial}
    for point in points
    for trial in range(trials)
    for task in range(2)
    for method, accuracy in accuracies.items()
    for model in METHODS[method].models
  ]


def test_controls_have_a_figure_of_their_own():
  """A row for each text and a column for each model; the bag of words, which reads no model, stands in both columns."""
  records = _control_records([*MEMORIES, *VANILLAS])
  figure = figures.controls(records, _settings())
  titles = [f'{text} text, {model}' for text in ('memory', 'vanilla') for model in MODELS]
  assert [axes.get_title() for axes in figure.axes] == titles
  for axes in figure.axes:
    lines = _lines_by_label(axes)
    drawn = {'attention': 89, 'attention without tokens': 79, 'attention on constant G': 59, 'head': 69}
    assert {label: pytest.approx([y] * 3) for label, y in drawn.items()} == {
      label: list(lines[label].get_ydata()) for label in drawn
    }
    assert 'converged head' not in lines and list(axes.get_xticks()) == [8, 12, 20]
  assert 'HMMs: n = 3' in figure.get_suptitle() and 'number of joint states' in figure.axes[-1].get_xlabel()
  assert len(figures.controls(_control_records(VANILLAS), _settings()).axes) == 2
  assert figures.controls(_memory_records(), _settings()) is None


def test_the_panels_draw_what_the_paper_does_where_more_was_run():
  """With controls and other fits on record: head and prompt on the left; attention of memory, head of vanilla text."""
  extra = [r | {'method': 'head_converged'} for r in _records() if r['method'] == 'head']
  attention = [r | {'method': 'attention'} for r in _records() if r['method'] == 'head']
  (axes,) = figures.figure_3_left(_records() + extra + attention, _settings()).axes
  (plain,) = figures.figure_3_left(_records(), _settings()).axes
  assert set(_lines_by_label(axes)) == set(_lines_by_label(plain))
  (axes,) = figures.figure_3_right(_control_records([*MEMORIES, *VANILLAS]), _settings()).axes
  named = {label for label in _lines_by_label(axes) if label[0] != '_'}
  texts = [f'{text}, {model}' for text in ('memory: attention', 'vanilla: head') for model in MODELS]
  assert named == {*texts, 'memory: majority class', 'vanilla: majority class'}


def test_the_table_beyond_the_protocol():
  """Controls and other fits have a table of their own, in which the unit is the HMM, as in that of differences."""
  text = report.render(_control_records([*MEMORIES, *VANILLAS]), paper_overlay=False)
  protocol, differences, beyond = re.split('Differences in points|Beyond the paper', text)
  assert 'converged' not in protocol and 'the unit the HMM' in differences
  row = next(line for line in beyond.splitlines() if line.split()[:2] == ['memory', '2'])
  assert row.split()[6:9] == ['79.0', '±', '2.5'] and 'constant G' in beyond
  # Attention on BERT less a bag of words, of which there is one for both models.
  row = next(line for line in differences.splitlines() if 'attention - attention on constant G' in line)
  assert ' 30.0 ' in row


def test_a_size_with_one_hmm_beside_sizes_with_several_has_no_interval():
  """Tasks are not units where HMMs are."""
  records = [r for r in _records(num_trials=3) if r['num_states'] > 4 or r['trial'] == 0]
  text, differences = report.render(records, paper_overlay=False).split('Differences in points')
  for rows in (text, differences):
    (row,) = [line for line in rows.splitlines() if re.search(r'^( +prompt - head)? +4 +1 ', line)]
    assert '±' not in row


def test_the_table_of_one_text_has_no_column_of_the_other():
  """Without vanilla records there is no comparison with them, and without memory records no column of the memory."""
  cells = report.render(_cell_records(), paper_overlay=False)
  assert 'vanilla' not in cells and 'prompt + attention - attention' in cells and ' attention - head' in cells
  head = report.render(_records(), paper_overlay=False)
  assert '|M|' not in head and 'memory' not in head


def test_a_comparison_on_bert_needs_bert():
  """Records of the exact model alone have no column for what is compared on BERT."""
  text = report.render(results.select(_memory_records(), model='exact'), paper_overlay=False)
  assert 'BERT' not in text and 'None' not in text


def test_near_ties_get_a_column_and_a_table_without_them():
  """Where labels hang on near ties their share is shown, and below it the accuracy on the other inputs."""
  records = [dict(r, near_tie_share=0.25, clear_accuracy=0.5 + 0.1 * r['task']) for r in _records()]
  assert 'ties' not in report.render(_records(), paper_overlay=False)
  whole, clear = report.render(records, paper_overlay=False).split('without near ties')
  row = lambda text: next(line for line in text.splitlines() if line.split()[:1] == ['10'])
  assert ' 25.0 ' in row(whole)
  assert row(clear).count('60.0 ±') == 4
  records[0]['clear_accuracy'] = None
  assert len(report.clear_table(records).rows) == 3
