"""The tables of Figure 3: means, differences and gaps, by what the records have."""

import re

from figures_cases import cell_records, MEMORIES, memory_records, prompt_records, VANILLAS
import numpy as np
from pandas import DataFrame as frame
import pytest
import scipy.stats

from experiments.analysis import report, statistics
from experiments.analysis.tables import as_text
from experiments.settings.grid import Point


def _text(records, paper_overlay):
  return '\n'.join(map(as_text, report.tables(frame(records), paper_overlay).values()))


def test_the_table_holds_means_differences_and_the_gap():
  """A row per size: accuracies with intervals, the paired gain, the majority and the distance from ideal."""
  text, differences = _text(prompt_records(), paper_overlay=True).split('Differences in points')
  row = next(line for line in text.splitlines() if line.split()[:1] == ['30'])
  for number in ('67.0 ±', '77.0 ±', '82.0 ±', '55.0', '0.123', '0.045'):
    assert number in row
  assert '  10.0 ± ' in next(line for line in differences.splitlines() if line.split()[:1] == ['30'])


def test_methods_are_compared_paired_at_the_level_of_all_sizes():
  """HMMs differ by 20 points, and what a prompt gains in each by 2: the test is that of the gains alone."""
  gains = {(states, trial): 0.1 + 0.01 * (trial - states / 10) for states in (4, 10, 30) for trial in range(4)}
  records = [{**r, 'accuracy': 0.3 + 0.2 * r['trial']} for r in prompt_records(num_trials=4)]
  for record in (record for record in records if record['method'] == 'prompt'):
    record['accuracy'] += gains[record['num_states'], record['trial']]
  (differences,) = report.contrasts(statistics.with_unit(frame(records))).values()
  for point, found in differences.items():
    expected = scipy.stats.ttest_1samp([gains[point.num_states, trial] for trial in range(4)], 0)
    assert abs(found.p_value - expected.pvalue) < 1e-9
  (row,) = [line for line in _text(records, False).splitlines() if re.search(r'^ +prompt - head +4 +4 ', line)]
  assert row.split()[-1] == f'{differences[Point(4)].detectable(report.LEVEL / 3):.1f}'
  assert row.split()[-1] != f'{differences[Point(4)].detectable(report.LEVEL):.1f}'


def _rows(records, overlay=False):
  """The rows of the first table."""
  lines = _text(records, overlay).split('Differences in points')[0].splitlines()
  return [line for line in lines if line.split()[:1] in (['memory'], ['vanilla'])]


def test_the_table_compares_memory_with_vanilla():
  """A row per distribution; the gain over the vanilla HMM of as many joint states is Welch's, where BERT has both."""
  rows = _rows(memory_records(), overlay=True)
  vanilla, memory = rows[:3], rows[3:]
  assert [row.split()[:3] for row in vanilla] == [['vanilla', str(size), str(size)] for size in (8, 12, 20)]
  assert [row.split()[:5] for row in memory] == [['memory', str(size), '1', '4', str(4 * size)] for size in (2, 3, 5)]
  assert '0.250' in memory[0] and '0.500' in vanilla[0]
  differences = (
    _text(memory_records(), paper_overlay=True).split('Differences in points')[1].split('Ours on BERT')[0].splitlines()
  )
  compared = [line for line in differences if ' memory ' in line or 'memory attention - vanilla head' in line]
  # The last memory has nothing to be compared with on BERT.
  assert len(compared) == 2 and 'memory attention - vanilla head' in compared[0]
  p_values = []
  for row, point, other in zip(compared, MEMORIES, VANILLAS):
    accuracies = [
      [100 * r['accuracy'] for r in memory_records() if r['model'] == 'bert' and at._asdict().items() <= r.items()]
      for at in (point, other)
    ]
    welch = scipy.stats.ttest_ind(*accuracies, equal_var=False)
    low, high = welch.confidence_interval()
    assert f' {(low + high) / 2:.1f} ± {(high - low) / 2:.1f}  ' in row
    p_values.append(welch.pvalue)
  first, second = np.argsort(p_values)
  assert f' {2 * p_values[first]:.2g} ' in compared[first]
  assert f' {max(2 * p_values[first], p_values[second]):.2g} ' in compared[second]


def test_a_size_with_one_hmm_beside_sizes_with_several_has_no_interval():
  """Tasks are not units where HMMs are."""
  records = [r for r in prompt_records(num_trials=3) if r['num_states'] > 4 or r['trial'] == 0]
  text, differences = _text(records, paper_overlay=False).split('Differences in points')
  for rows in (text, differences):
    (row,) = [line for line in rows.splitlines() if re.search(r'^( +prompt - head)? +4 +1 ', line)]
    assert '±' not in row


def test_the_table_of_one_text_has_no_column_of_the_other():
  """Without vanilla records there is no comparison with them, and without memory records no column of the memory."""
  cells = _text(cell_records(), paper_overlay=False)
  assert 'vanilla' not in cells and 'prompt + attention - attention' in cells and ' attention - head' in cells
  head = _text(prompt_records(), paper_overlay=False)
  assert '|M|' not in head and 'memory' not in head


def test_a_comparison_on_bert_needs_bert():
  """Records of the exact model alone have no column for what is compared on BERT."""
  text = _text([record for record in memory_records() if record['model'] == 'exact'], paper_overlay=False)
  assert 'BERT' not in text and 'None' not in text


def test_near_ties_get_a_column():
  """The share of inputs whose label hangs on one."""
  shares = [{'near_tie_share': 0.25 * (r['num_states'] == 10)} for r in prompt_records()]
  records = [r | share for r, share in zip(prompt_records(), shares)]
  found = report.tables(frame(records), False)['accuracy'].frame
  assert dict(zip(found['|H|'], found['near\nties']))['10'] == '25.0' and '0.0' in list(found['near\nties'])


@pytest.mark.parametrize(
  ('records', 'size', 'expected'),
  [
    (prompt_records, {'|H|': '30'}, [('66.2', '+0.8'), ('75.1', '+1.9')]),
    (memory_records, {'|M|^N |H|': '8'}, [('83.2', '+2.1'), ('99.8', '-3.8')]),
  ],
)
def test_the_paper_stands_beside_what_it_draws(records, size, expected):
  """Each of its two methods at the same size, as digitised, and the difference of the means."""
  rows = report.tables(frame(records()), True)['beside_paper'].frame
  ((name, value),) = size.items()
  rows = rows[rows[name] == value]
  assert list(zip(rows['paper'], rows['difference'])) == expected
