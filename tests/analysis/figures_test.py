"""Figures and tables say what the records say."""

import itertools
import xml.etree.ElementTree

from figures_cases import cell_records, figure_settings, lines_by_label, memory_records, prompt_records
import matplotlib
import matplotlib.colors
import numpy as np
from pandas import DataFrame as frame
import pytest
import scipy.stats

from experiments.analysis import figures
from experiments.settings.methods import METHODS
from experiments.studies.theory import study as theory


def _drawn(axes):
  """(x, y) on the page, in pixels, of everything drawn as a line, with the caps of intervals."""
  axes.figure.draw_without_rendering()
  return np.concatenate([line.get_transform().transform(line.get_xydata()) for line in axes.lines])


def test_the_figure_draws_the_means_of_the_records():
  """The line of a method passes through its mean accuracies, in percent, over the sizes themselves."""
  (axes,) = figures.figure_3_left(frame(prompt_records()), figure_settings()).axes
  lines = lines_by_label(axes)
  assert lines['head, pretrained BERT'].get_ydata() == pytest.approx([80.0, 77.0, 67.0])
  assert lines['prompt, exact G'].get_ydata() == pytest.approx([95.0, 92.0, 82.0])
  for line in lines.values():
    assert set(line.get_xdata()) <= {4, 10, 30}


def test_the_figure_names_its_axes_and_marks_the_vocabulary():
  """Axes are labelled with units, every curve is in the legend below, and |H| = |X| is marked at 10."""
  figure = figures.figure_3_left(frame(prompt_records()), figure_settings())
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
  (plain,) = figures.figure_3_left(frame(prompt_records()), figure_settings()).axes
  assert not [line for line in plain.lines if 'paper' in line.get_label()]
  for scale, of in (('small', 'BERT-base on more text'), ('paper', 'BERT-base'), ('tuned', 'BERT-base')):
    records = [record | {'scale': scale} for record in prompt_records() if record['num_states'] > 4]
    (axes,) = figures.figure_3_left(frame(records), figure_settings(overlay=True)).axes
    lines = [lines_by_label(axes)[f'{method}, the paper ({of}; digitised)'] for method in ('prompt', 'head')]
    assert [list(line.get_xdata()) for line in lines] == [[10, 15, 25, 30]] * 2
    assert [list(line.get_ydata()) for line in lines] == [[93.0, 87.0, 74.8, 75.1], [79.7, 74.6, 66.1, 66.2]]
    assert {(line.get_markerfacecolor(), line.get_linestyle()) for line in lines} == {('none', 'None')}
    assert '15' in [label.get_text() for label in axes.get_xticklabels()]
  first = [record | {'scale': 'paper_v1'} for record in prompt_records() if record['num_states'] > 4]
  (axes,) = figures.figure_3_left(frame(first), figure_settings(overlay=True)).axes
  line = lines_by_label(axes)['prompt, the paper (BERT-base; digitised)']
  assert list(zip(*line.get_data())) == [(10, 97.6), (12, 98.6), (15, 93.8), (25, 69.3), (30, 76.2)]


@pytest.mark.parametrize('num_trials', [1, 4])
def test_few_values_are_dots_and_no_interval(num_trials):
  """Below five independent values each is a dot; the caption says what they are."""
  figure = figures.figure_3_left(frame(prompt_records(num_trials)), figure_settings())
  (axes,) = figure.axes
  assert not axes.containers and not axes.collections
  at_30 = [list(line.get_ydata()) for line in axes.lines if line.get_marker() == '.' and set(line.get_xdata()) == {30}]
  values = [65.0, 67.0, 69.0] if num_trials == 1 else [67.0, 68.0, 69.0, 67.0]
  assert pytest.approx(values) in at_30 and len(at_30) == 4
  counted = 'tasks of one HMM per size: n = 3' if num_trials == 1 else 'HMMs: n = 4'
  assert figure.get_suptitle() == f'some_experiment, scale small, seed 7; {counted}, each a dot'


def test_five_values_have_the_t_interval():
  """From five independent values on the bar is the 95% t interval, and no dot is drawn."""
  figure = figures.figure_3_left(frame(prompt_records(num_trials=5)), figure_settings())
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
  records = [record for record in prompt_records(num_trials=6) if record['num_states'] > 4 or record['trial'] < 2]
  caption = figures.figure_3_left(frame(records), figure_settings()).get_suptitle()
  assert caption.endswith('; HMMs: n = 2 to 6, each a dot or 95% t intervals')


def test_nothing_is_clipped():
  """The limits hold every mark and interval, those that reach past 100 percent as well; no tick does."""
  records = [dict(r, accuracy=(0.4, 1.0)[r['trial'] % 2]) for r in prompt_records(num_trials=5)]
  many = [dict(r, method=method) for r in prompt_records() if r['method'] == 'head' for method in METHODS]
  for rows, overlay in ((records, False), (prompt_records(), True), (many, False)):
    (axes,) = figures.figure_3_left(frame(rows), figure_settings(overlay)).axes
    # The mark of |H| = |X| runs from edge to edge.
    assert all(axes.bbox.padded(1).contains(*point) for point in _drawn(axes))
    assert max(axes.get_yticks()) <= 100 and (rows is not records or axes.get_ylim()[1] > 100)


DRAWINGS = [
  (figures.figure_3_left, prompt_records),
  (figures.figure_3_right, memory_records),
  (figures.memory_cells, cell_records),
  (figures.attention, cell_records),
]


@pytest.mark.parametrize(('draw', 'records'), DRAWINGS, ids=[draw.__name__ for draw, _ in DRAWINGS])
def test_three_formats_with_the_same_bytes_every_time(draw, records, tmp_path):
  """The same records give the same files, so that a redraw can be compared."""
  first = figures.save(draw(frame(records()), figure_settings()), tmp_path / 'a')
  second = figures.save(draw(frame(records()), figure_settings()), tmp_path / 'b')
  assert [path.suffix for path in first] == ['.png', '.pdf', '.svg']
  for one, other in zip(first, second):
    assert one.read_bytes() == other.read_bytes()
  assert first[0].read_bytes().startswith(b'\x89PNG')
  assert first[1].read_bytes().startswith(b'%PDF')
  xml.etree.ElementTree.parse(first[2])


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
  assert not _too_near([tuple(style.values()) for style in theory._STYLES.values()])
  cycle = figures.styled(lambda: matplotlib.rcParams['axes.prop_cycle'])()
  assert not _too_near([tuple(style.values()) for style in cycle])
  # Marker and dash are asked for where grey does not do.
  assert _too_near([('#56B4E9', 'o', '-'), ('#E69F00', 's', '-')]) == [('#56B4E9', '#E69F00', 'grey')]
