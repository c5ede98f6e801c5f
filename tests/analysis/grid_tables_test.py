"""The tables of a grid: means, differences and gaps, by what the records have."""

import time

from figures_cases import MEMORIES, memory_records, prompt_records, record, table_records, VANILLAS
import numpy as np
from pandas import DataFrame as frame

from experiments.analysis import grid_tables
from experiments.analysis.statistics import holm, interval, welch
from experiments.settings.grid import Point

BOTH = 'prompt - head, BERT'


def _tables(records, paper_overlay=False):
  return grid_tables.tables(grid_tables.prepared(frame(records)), paper_overlay)


def _rows(name, records, paper_overlay=False):
  """The cells of a table, a row by its headings, these in one line."""
  found = _tables(records, paper_overlay)[name].frame
  return found.rename(columns=lambda heading: heading.replace('\n', ' ')).to_dict('records')


def test_the_best_head_is_shown_on_validation_texts():
  """It is fitted to the test texts."""
  (row,) = _rows('diagnostics', [record(Point(4), 'exact', 'head_best', 0.99, validation_accuracy=0.7)])
  assert '70.0' in row.values()


def test_the_size_of_heads_is_the_median_over_tasks():
  """A mean over the tasks of an HMM would be that of its largest head."""
  fit = lambda trial, task: record(Point(4), 'bert', 'head_converged', 0.9, trial=trial, task=task)
  records = [fit(trial, task) | {'head_size': 999.0 if task else 1.0} for trial in range(2) for task in (0, 1)]
  (row,) = _rows('head_sizes', [*records, fit(0, 2) | {'head_size': 1.0}])
  assert '1' in row.values()


def test_methods_are_compared_paired_in_one_family_over_sizes():
  """HMMs differ by 20 points, and what a prompt gains in each by 2: the test is that of the gains alone."""
  gains = {size: [0.1 + 0.01 * (trial - size / 10) for trial in range(4)] for size in (4, 10, 30)}
  records = [row | {'accuracy': 0.3 + 0.2 * row['trial']} for row in prompt_records(num_trials=4)]
  for row in (row for row in records if row['method'] == 'prompt'):
    row['accuracy'] += gains[row['num_states']][row['trial']]
  rows = [row for row in _rows('contrasts', records) if row['contrast'] == BOTH]
  corrected = holm(frame([interval(some).p_value for some in gains.values()])[0])
  for row, some, p_value in zip(rows, gains.values(), corrected, strict=True):
    found = interval(100 * np.array(some))
    assert (row['difference'], row['p, Holm'], row['tests']) == (str(found), f'{p_value:.2g}', '3')
    assert row['detectable'] == f'{found.minimum_effect(0.05 / 3):.1f}'


def test_each_contrast_is_a_family_of_its_own():
  heads = [row for row in prompt_records(num_trials=3) if row['model'] == 'bert']
  probes = [row | {'method': 'probe'} for row in heads if row['method'] == 'head']
  rows = _rows('contrasts', heads + probes)
  assert len({row['contrast'] for row in rows}) == 2 and {row['tests'] for row in rows} == {'3'}


def test_trends_are_over_the_hmms_of_all_sizes():
  """The mean difference over all HMMs, with Spearman's correlation of the differences with |H|."""
  records = prompt_records(num_trials=3)
  for row in records:
    row['accuracy'] += 0.001 * row['num_states'] * (row['method'] == 'prompt') + 0.001 * row['trial'] ** 2
  (row,) = [row for row in _rows('trends', records) if row['contrast'] == BOTH]
  mean = 10 + 0.1 * (4 + 10 + 30) / 3
  assert (row['n'], row['difference']) == ('9', f'{mean:.1f} ± 0.0')
  assert (row['Spearman'], float(row['p of the trend, Holm']) < 0.05) == ('1.00', True)
  assert 'trends' not in _tables(prompt_records())


def test_text_with_a_memory_and_vanilla_text_are_pooled_apart():
  """The two kinds of text share no HMM: each has a mean gain of its own over its sizes."""
  places = [Point(4, 2, 1), Point(6, 2, 1), Point(8), Point(12)]
  rows = [
    record(point, 'bert', method, 0.5 + gain * (0.1 if point.memory_size else 0.02), trial=trial)
    for point in places
    for gain, method in enumerate(('head', 'attention'))
    for trial in range(3)
  ]
  found = {row['text']: (row['n'], row['difference']) for row in _rows('trends', rows)}
  assert found == {'memory': ('6', '10.0 ± 0.0'), 'vanilla': ('6', '2.0 ± 0.0')}


def test_readers_without_a_model_are_rivals():
  """Paired by task, as a contrast and as a lead."""
  assert {row['difference'] for row in _rows('contrasts', table_records())} == {'5.0 ± 0.0'}
  assert [row['prompt BERT'] for row in _rows('lead', table_records())] == ['-5.0 ± 0.0'] * 3


def test_seeds_and_hmms_of_other_draws_are_not_paired_by_task():
  """Seeds share nothing. Two temperatures are two HMMs: trials of one number are pairs."""
  rows = [row for row in prompt_records(4) if (row['num_states'], row['model'], row['method']) == (10, 'bert', 'head')]
  assert 'values' not in _tables([row | {'seed': seed} for row in rows for seed in (0, 1)])
  by_temperature = [
    row | {'hmm.emission_temperature': t, 'accuracy': row['accuracy'] - t * 3 ** row['trial'] / 100}
    for row in rows
    for t in (0, 1)
  ]
  losses = interval([-1.0, -3, -9, -27])
  (row,) = _rows('values', by_temperature)
  assert (row['n'], row['difference'], row['p, Holm']) == ('4', str(losses), f'{losses.p_value:.2g}')


def test_the_table_compares_memory_with_vanilla():
  """The gain over the vanilla HMM of as many joint states is Welch's, where BERT has both."""
  accuracy = lambda point: [
    100 * row['accuracy']
    for row in memory_records()
    if row['model'] == 'bert' and point._asdict().items() <= row.items()
  ]
  # The last memory has nothing to be compared with on BERT.
  gains = [str(welch(accuracy(one), accuracy(other))) for one, other in zip(MEMORIES[:2], VANILLAS)]
  assert [row['difference'] for row in _rows('texts', memory_records())] == gains


def test_the_tables_of_a_sweep_take_time_linear_in_its_points():
  """400 points take a second; comparing all methods on all models at each took 80."""
  rows = frame([row for row in prompt_records() if row['num_states'] == 10])
  records = rows.merge(frame({'prompt.length': range(400)}), how='cross')
  begun = time.process_time()
  found = _tables(records)
  assert [len(found[name].frame) for name in ('accuracy', 'contrasts')] == [400, 400]
  assert time.process_time() - begun < 5
