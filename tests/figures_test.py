"""Figures and tables say what the records say."""

import xml.etree.ElementTree

import pytest

from experiments import figures
from experiments import report
from experiments.settings import FigureSettings


def _records():
  return [
    dict(
      num_states=num_states,
      memory_size=0,
      num_cells=0,
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


def test_three_formats_with_the_same_bytes_every_time(tmp_path):
  """The same records give the same files, so that a redraw can be compared."""
  first = figures.save(figures.figure_3_left(_records(), _settings()), tmp_path / 'a')
  second = figures.save(figures.figure_3_left(_records(), _settings()), tmp_path / 'b')
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
