"""Figures and tables say what the records say."""

import json
import pathlib
import xml.etree.ElementTree

import numpy as np
import pytest
import scipy.stats

from experiments import figures
from experiments import report
from experiments import results
from experiments.settings import FigureSettings
from experiments.settings import Point

MODELS = ('pretrained BERT', 'exact G')
REFERENCE = pathlib.Path(report.__file__).parent / 'figure_3_reference.json'


def _records():
  return [
    dict(
      num_states=num_states,
      memory_size=0,
      num_cells=0,
      near_tie_share=0.0,
      trial=0,
      task=task,
      model=model,
      method=method,
      accuracy=base + 0.02 * task - 0.005 * num_states,
      majority_accuracy=0.55,
      kl_at_mask=0.123,
      excess_mlm_loss=0.045,
    )
    for num_states in (4, 10, 30)
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
    point._asdict(),
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


def test_the_figure_draws_the_means_of_the_records():
  """The line of a method passes through its mean accuracies, in percent."""
  (axes,) = figures.figure_3_left(_records(), _settings()).axes
  lines = {container.get_label(): container.lines[0] for container in axes.containers}
  assert lines['head, pretrained BERT'].get_ydata() == pytest.approx([80.0, 77.0, 67.0])
  assert lines['prompt, exact G'].get_ydata() == pytest.approx([95.0, 92.0, 82.0])


def test_the_figure_names_its_axes_and_marks_the_vocabulary():
  """Axes are labelled with units, every curve is in the legend, and |H| = |X| is marked at 10."""
  figure = figures.figure_3_left(_records(), _settings())
  (axes,) = figure.axes
  assert '|H|' in axes.get_xlabel()
  assert '%' in axes.get_ylabel()
  assert len(figure.legends[0].get_texts()) == 5
  assert [text.get_text() for text in axes.texts] == ['|H| = |X|']
  assert axes.texts[0].xy[0] == 1


def test_the_paper_is_drawn_beside_ours_only_when_asked():
  """The overlay adds the digitised values of the sizes on record."""
  (plain,) = figures.figure_3_left(_records(), _settings()).axes
  (overlaid,) = figures.figure_3_left(_records(), _settings(overlay=True)).axes
  added = [line for line in overlaid.lines if 'paper' in str(line.get_label())]
  assert not [line for line in plain.lines if 'paper' in str(line.get_label())]
  assert [list(line.get_ydata()) for line in added] == [[99.7, 93.0, 75.1], [94.0, 79.7, 66.2]]


DRAWINGS = [
  (figures.figure_3_left, _records),
  (figures.figure_3_right, _memory_records),
  (figures.memory_cells, _cell_records),
  (figures.attention, _cell_records),
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
  """A row a size: accuracies with intervals, the paired gain, the majority and the distance from ideal."""
  text = report.render(_records(), paper_overlay=True)
  row = next(line for line in text.splitlines() if line.split()[:1] == ['30'])
  for number in ('67.0 ±', '77.0 ±', '82.0 ±', '10.0 ±', '55.0', '0.123', '0.045', '66.2 / 75.1'):
    assert number in row


def _lines_by_label(axes):
  return {container.get_label(): container.lines[0] for container in axes.containers}


def test_the_right_figure_draws_memory_and_vanilla():
  """Each text has a line a model through its means and its own majority baseline, at its number of joint states."""
  figure = figures.figure_3_right(_memory_records(), _settings())
  (axes,) = figure.axes
  lines = _lines_by_label(axes)
  assert set(lines) == {f'{text}, {model}' for text in ('memory: attention', 'vanilla: head') for model in MODELS}
  assert lines['memory: attention, exact G'].get_ydata() == pytest.approx([96, 95, 93])
  spread = 100 * 0.02 * 5 / 3
  assert lines['vanilla: head, exact G'].get_ydata() == pytest.approx(np.array([82, 78, 70]) + spread)
  # BERT has no record beside the largest memory, and the line stops before it.
  assert lines['vanilla: head, pretrained BERT'].get_ydata() == pytest.approx(np.array([82, 78]) + spread)
  plain = {line.get_label(): line for line in axes.lines}
  majorities = [plain[f'{text}: majority class'] for text in ('memory', 'vanilla')]
  assert [list(line.get_ydata()) for line in majorities] == [pytest.approx([55] * 3), pytest.approx([60] * 3)]
  assert majorities[0].get_linestyle() != majorities[1].get_linestyle()
  assert [label.get_text() for label in axes.get_xticklabels()] == ['8', '12', '20']
  # Places on the axis are shifted apart by less than half a step.
  for line in lines.values():
    assert np.abs(np.array(line.get_xdata(), float) - range(len(line.get_xdata()))).max() < 0.25
  assert '|M||H|' in axes.get_xlabel() and '%' in axes.get_ylabel()
  assert len(figure.legends[0].get_texts()) == 6


def test_the_right_figure_draws_the_paper_when_asked():
  """The overlay is the digitised values of the later text at the sizes on record, for both texts."""
  right = json.loads(REFERENCE.read_text())['right_later_version']
  sizes = right['memory_times_states']
  (axes,) = figures.figure_3_right(_memory_records(), _settings(overlay=True)).axes
  drawn = {line.get_label(): line for line in axes.lines if 'paper' in str(line.get_label())}
  assert len(drawn) == 2
  for text in ('memory', 'vanilla'):
    line = drawn[f'{text}, paper (digitised)']
    assert list(line.get_ydata()) == [right[text]['mean'][sizes.index(size)] for size in (8, 12, 20)]
    assert list(line.get_xdata()) == [0, 1, 2]
  (plain,) = figures.figure_3_right(_memory_records(), _settings()).axes
  assert not [line for line in plain.lines if 'paper' in str(line.get_label())]


def test_the_figure_of_cells_is_drawn_against_their_number():
  """Each method has a line through its means at N cells, those with a prompt first in the legend."""
  figure = figures.memory_cells(_cell_records(), _settings())
  (axes,) = figure.axes
  lines = _lines_by_label(axes)
  assert list(lines) == [f'{name}, pretrained BERT' for name in ('prompt + attention', 'attention', 'head')]
  assert lines['attention, pretrained BERT'].get_ydata() == pytest.approx([86, 81, 76])
  assert lines['prompt + attention, pretrained BERT'].get_ydata() == pytest.approx([91, 86, 81])
  assert [label.get_text() for label in axes.get_xticklabels()] == ['1', '2', '3']
  assert 'N' in axes.get_xlabel() and '%' in axes.get_ylabel()


def test_the_attention_figure_has_a_panel_for_each_measure():
  """Entropy and read probability have panels of their own, each line the mean profile of a distribution's tasks."""
  figure = figures.attention(_cell_records(), _settings())
  assert len(figure.axes) == 2
  by_label = {'entropy': None, 'probability': None}
  for axes in figure.axes:
    (word,) = [word for word in by_label if word in axes.get_xlabel()]
    by_label[word] = {line.get_label(): line for line in axes.lines if line.get_label()[0] != '_'}
  assert set(by_label['entropy']) == {'|H|=6 |M|=3 N=1, pretrained BERT'}
  names = {f'|H|=6 |M|=3 N={cells}, pretrained BERT' for cells in (2, 3)}
  assert set(by_label['probability']) == names
  for line in (*by_label['entropy'].values(), *by_label['probability'].values()):
    assert line.get_xdata() == pytest.approx([0.05, 0.45, 0.98])
    assert line.get_ydata() == pytest.approx([0.6, 1.1, 1.9])
  assert len(figures.attention(_memory_records(), _settings()).axes) == 1


def test_bins_are_averaged_by_the_share_of_positions():
  """A bin that one task fills more than another counts for the first in proportion, and empty bins for nothing."""
  records = [_record(Point(4, 2, 1), task, 'exact', 'attention', 0.9, 0.5) for task in range(2)]
  records[0]['attention_profile'] = [[0.1, 1.0, 0.3], [0.2, 3.0, 0.7]]
  records[1]['attention_profile'] = [[0.4, 2.0, 0.1], [None, None, 0.0]]
  (axes,) = figures.attention(records, _settings()).axes
  line = axes.lines[0]
  assert line.get_xdata() == pytest.approx([(0.1 * 0.3 + 0.4 * 0.1) / 0.4, 0.2])
  assert line.get_ydata() == pytest.approx([(1 * 0.3 + 2 * 0.1) / 0.4, 3])


def test_an_attention_figure_without_attention_is_empty():
  """Records of other methods draw an empty panel, and no error."""
  (axes,) = figures.attention([r for r in _memory_records() if r['method'] == 'head'], _settings()).axes
  assert not axes.lines


def _rows(records, overlay=False):
  """The rows of the table."""
  lines = report.render(records, overlay).splitlines()
  return [line for line in lines if line.split()[:1] in (['memory'], ['vanilla'])]


def test_the_table_compares_memory_with_vanilla():
  """A row a distribution; the gain over the vanilla HMM of as many joint states is Welch's, where BERT has both."""
  text = report.render(_memory_records(), paper_overlay=True)
  assert 'memory attention' in text and '- vanilla head, BERT' in text
  rows = _rows(_memory_records(), overlay=True)
  vanilla, memory = rows[:3], rows[3:]
  assert [row.split()[:3] for row in vanilla] == [['vanilla', str(size), str(size)] for size in (8, 12, 20)]
  assert [row.split()[:5] for row in memory] == [['memory', str(size), '1', '4', str(4 * size)] for size in (2, 3, 5)]
  for row, point, other in zip(memory[:2], MEMORIES, VANILLAS):
    accuracies = [
      [100 * r['accuracy'] for r in _memory_records() if r['model'] == 'bert' and results.point_of(r) == at]
      for at in (point, other)
    ]
    welch = scipy.stats.ttest_ind(*accuracies, equal_var=False)
    low, high = welch.confidence_interval()
    assert f' {(low + high) / 2:.1f} ± {(high - low) / 2:.1f}  ' in row
    assert f' {welch.pvalue:.2g} ' in row
  # The last memory has nothing to be compared with, a vanilla row is compared with nothing.
  counts = [row.count('±') for row in rows]
  assert counts[3] == counts[4] == counts[5] + 1 and counts[0] == counts[1] == counts[2] + 1
  assert '0.250' in memory[0] and '0.500' in vanilla[0]
  assert rows[0].split()[-1] == '83.2' and memory[0].split()[-1] == '99.8'


def test_the_table_of_one_text_has_no_column_of_the_other():
  """Without vanilla records there is no comparison with them, and without memory records no column of the memory."""
  cells = report.render(_cell_records(), paper_overlay=False)
  assert 'vanilla' not in cells and '- attention, BERT' in cells and '- head, BERT' in cells
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
