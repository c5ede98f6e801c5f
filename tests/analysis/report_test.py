"""The tables of Figure 3: means, differences and gaps, by what the records have."""

from figures_cases import (
  cell_records,
  MEMORIES,
  memory_records,
  prompt_records,
  record,
  table_records,
  VANILLAS,
)
from pandas import DataFrame as frame
import pytest
import scipy.stats

from experiments.analysis import contrasts, report, statistics
from experiments.settings.grid import Point


def _table(name, records, paper_overlay=False):
  """The cells of a table, a row by its headings, these in one line."""
  found = report.tables(frame(records), paper_overlay)[name].frame
  return found.rename(columns=lambda heading: heading.replace('\n', ' ')).to_dict('records')


def test_the_table_holds_means_and_the_gap():
  """A row per size: accuracies, of one HMM without an interval, near ties, the majority and the distance from ideal."""
  records = [row for row in prompt_records(num_trials=3) if row['num_states'] > 4 or row['trial'] == 0]
  few, _, row = _table('accuracy', [row | {'near_tie_share': 0.25 * (row['num_states'] > 10)} for row in records])
  half_width = scipy.stats.t.ppf(0.975, 2) * scipy.stats.sem([67, 68, 69])
  cell = lambda mean: f'{mean:.1f} [{mean - half_width:.1f}, {mean + half_width:.1f}]'
  shown = {'|H|': '30', 'n': '3', 'head BERT': cell(68), 'prompt exact G': cell(83), 'near ties': '25.0'}
  assert row.items() >= shown.items() and row['majority'] == '60.0 [60.0, 60.0]'
  assert (few['n'], few['head BERT'], few['near ties']) == ('1', '80.0', '0.0')


def test_methods_are_compared_paired_at_the_level_of_all_sizes():
  """HMMs differ by 20 points, and what a prompt gains in each by 2: the test is that of the gains alone."""
  gains = {size: [0.1 + 0.01 * (trial - size / 10) for trial in range(4)] for size in (4, 10, 30)}
  records = [row | {'accuracy': 0.3 + 0.2 * row['trial']} for row in prompt_records(num_trials=4)]
  for row in (row for row in records if row['method'] == 'prompt'):
    row['accuracy'] += gains[row['num_states']][row['trial']]
  (differences,) = contrasts.of_protocol(statistics.fits_by_place(frame(records)), 'trial').values()
  for point, found in differences.items():
    assert found.p_value == pytest.approx(scipy.stats.ttest_1samp(gains[point.point.num_states], 0).pvalue)
  (row, *_) = _table('differences', records)
  assert row['detectable'] == f'{differences[statistics.Place(Point(4))].minimum_effect(contrasts.LEVEL / 3):.1f}'


def test_trends_are_over_the_hmms_of_all_sizes():
  """The mean difference over all HMMs, with Spearman's correlation of the differences with |H|."""
  records = prompt_records(num_trials=3)
  for row in records:
    row['accuracy'] += 0.001 * row['num_states'] * (row['method'] == 'prompt') + 0.001 * row['trial'] ** 2
  (row,) = [row for row in _table('trends', records) if row['contrast, on BERT'] == 'prompt - head']
  mean = 10 + 0.1 * (4 + 10 + 30) / 3
  assert (row['n'], row['difference']) == ('9', f'{mean:.1f} ± 0.0')
  assert (row['Spearman'], float(row['p of the trend, Holm']) < 0.05) == ('1.00', True)
  assert 'trends' not in report.tables(frame(prompt_records()), False)


def test_text_with_a_memory_and_vanilla_text_are_pooled_apart():
  """Paired contrasts alone: the two kinds of text share no HMM."""
  gain = {0: 0.02, 2: 0.1}
  rows = [
    record(
      Point(size, memory, min(memory, 1)), 'bert', method, 0.5 + gain[memory] * (method == 'attention'), trial=trial
    )
    for size, memory in ((4, 2), (6, 2), (8, 0), (12, 0))
    for method in ('attention', 'head')
    for trial in range(3)
  ]
  found = {row['contrast, on BERT']: (row['n'], row['difference']) for row in _table('trends', rows)}
  assert found == {
    'attention - head, memory text': ('6', '10.0 ± 0.0'),
    'attention - head, vanilla text': ('6', '2.0 ± 0.0'),
  }


def test_a_table_of_tokens_is_compared_with_readers_of_bert():
  """Paired by task; and labels change by the number of tokens that are kept."""
  assert {row['difference'] for row in _table('contrasts', table_records())} == {'5.0 ± 0.0'}
  assert [row['k = 1'] for row in _table('nearest_tokens', table_records())] == ['25.0'] * 3


def test_what_prompts_move_stands_beside_what_any_prefix_moves():
  """By method and model; a method without prompts has no column."""
  fields = dict(tv_moved=0.4, tv_moved_by_text=0.1, tv_moved_by_random=0.2, tv_movable=0.05)
  rows = [record(Point(4), 'bert', 'head', 0.6), record(Point(4), 'bert', 'prompt', 0.6, **fields)]
  rows += [row | {'num_states': 99} | dict.fromkeys(fields) for row in rows]
  ((_, _, *shown),) = (row.values() for row in _table('moved', rows))
  assert shown == ['40.0', '10.0', '20.0', '5.0']


def test_trials_of_one_process_are_pretraining_seeds():
  """Its name stands in each row, and no unit is an HMM."""
  rows = [row | {'distribution': 'mess3-0123456789ab'} for row in prompt_records(3) if row['num_states'] == 4]
  assert [row['process'] for row in _table('accuracy', rows)] == ['mess3']
  assert 'unit of analysis: pretraining seed;' in report.tables(frame(rows), False)['differences'].title


def test_contrasts_on_the_exact_model_are_apart():
  """An oracle prompt is above the converged head of the exact model, and a prompt of BERT is compared with both."""
  levels = [('bert', 'prompt', 0.9), ('exact', 'oracle_prompt', 0.95), ('exact', 'head_whitened', 0.7)]
  levels += [('exact', 'prompt', 0.5), ('bert', 'probe_converged', 0.9), ('untrained', 'probe_converged', 0.6)]
  rows = [
    record(Point(4), model, method, value, trial=trial, other_task_accuracy=None)
    for model, method, value in levels
    for trial in range(3)
  ]
  found = {row['contrast, on BERT']: row['difference'] for row in _table('contrasts', rows)}
  assert found == {
    'prompt - converged probe': '0.0 ± 0.0',
    'prompt - oracle prompt': '-5.0 ± 0.0',
    'converged probe - converged probe, untrained BERT': '30.0 ± 0.0',
    'oracle prompt - converged head, exact G': '25.0 ± 0.0',
  }


def test_controls_and_sizes_of_heads_have_tables_of_their_own():
  """Models without use beside another task's prompt; the median size of heads over tasks."""
  rows = [
    record(Point(4), model, 'prompt', accuracy, task=task, other_task_accuracy=0.4, head_size=None)
    for task in range(3)
    for model, accuracy in (('bert', 0.9), ('untrained', 0.6), ('other_bert', 0.7))
  ]
  rows += [record(Point(4), 'bert', 'prompt_refit', 0.8, task=task, other_task_accuracy=0.4) for task in range(3)]
  rows += [
    record(Point(4), 'exact', 'head_whitened', 0.9, task=task, other_task_accuracy=None, head_size=size)
    for task, size in enumerate((1.0, 30.0, 4e8))
  ]
  (controls,) = _table('controls', rows)
  names = 'prompt untrained BERT', 'prompt BERT of another HMM', 'converged head behind prompt of another task'
  assert [controls[name][:4] for name in names] == ['60.0', '70.0', '40.0']
  assert _table('head_sizes', rows) == [{'|H|': '4', 'n': '3', 'converged head exact G': '3e+01'}]


def test_the_table_compares_memory_with_vanilla():
  """The gain over the vanilla HMM of as many joint states is Welch's, where BERT has both."""
  accuracy = lambda point: [
    100 * row['accuracy']
    for row in memory_records()
    if row['model'] == 'bert' and point._asdict().items() <= row.items()
  ]
  # The last memory has nothing to be compared with on BERT.
  tests = [
    scipy.stats.ttest_ind(accuracy(one), accuracy(other), equal_var=False) for one, other in zip(MEMORIES[:2], VANILLAS)
  ]
  for row, test in zip(_table('differences', memory_records()), tests, strict=True):
    low, high = test.confidence_interval()
    assert row['difference'] == f'{(low + high) / 2:.1f} ± {(high - low) / 2:.1f}'


def test_contrasts_are_those_that_were_run_on_bert():
  """A bag of words, which reads no model, is compared with the method on BERT."""
  titles = lambda records: set(contrasts.of_protocol(statistics.fits_by_place(frame(records)), 'task'))
  assert titles(cell_records()) == {'attention - head', 'prompt + attention - attention'}
  assert not titles([row for row in memory_records() if row['model'] == 'exact'])
  control = {'method': 'attention_constant', 'model': 'exact', 'accuracy': 0.0}
  assert 'attention - attention on constant G' in titles(cell_records() + [row | control for row in cell_records()])


def test_a_run_without_bert_names_none():
  found = report.tables(frame(prompt_records(3)).query("model == 'exact'").assign(model='own'), paper_overlay=True)
  assert 'trends' in found and not [table for table in found.values() if 'BERT' in f'{table.title} {[*table.frame]}']


@pytest.mark.parametrize(
  ('records', 'size', 'expected'),
  [
    (prompt_records, ('|H|', '30'), [('66.2', '+0.8'), ('75.1', '+1.9')]),
    (memory_records, ('|M|^N |H|', '8'), [('99.8', '-3.8'), ('83.2', '+2.1')]),
  ],
)
def test_the_paper_stands_beside_its_methods(records, size, expected):
  """Each of its two methods at the same size, as digitised, and the difference of the means."""
  rows = [row for row in _table('beside_paper', records(), paper_overlay=True) if size in row.items()]
  assert sorted((row['paper'], row['difference']) for row in rows) == sorted(expected)
