"""Differences in the tables of a grid; `pages_test` redraws those of docs/results."""

import time

from figures_cases import prompt_records
import numpy as np
from pandas import DataFrame as frame

from experiments.analysis import grid_tables
from experiments.analysis.statistics import holm, interval


def _tables(records):
  return grid_tables.tables(grid_tables.prepared(frame(records)), paper_overlay=False)


def _rows(name, records):
  """The cells of a table, a row by its headings."""
  return _tables(records)[name].frame.to_dict('records')


def test_methods_are_compared_paired_in_one_family_over_sizes():
  """HMMs differ by 20 points, and what a prompt gains in each by 2: the test is that of the gains alone."""
  gains = {size: [0.1 + 0.01 * (trial - size / 10) for trial in range(4)] for size in (4, 10, 30)}
  records = [row | {'accuracy': 0.3 + 0.2 * row['trial']} for row in prompt_records(num_trials=4)]
  for row in (row for row in records if row['method'] == 'prompt'):
    row['accuracy'] += gains[row['num_states']][row['trial']]
  rows = [row for row in _rows('contrasts', records) if row['contrast'] == 'prompt - head, BERT']
  corrected = holm(frame([interval(some).p_value for some in gains.values()])[0])
  for row, some, p_value in zip(rows, gains.values(), corrected, strict=True):
    found = interval(100 * np.array(some))
    assert (row['difference'], row['p, Holm'], row['tests']) == (str(found), f'{p_value:.2g}', '3')
    assert row['detectable'] == f'{found.minimum_effect(0.05 / 3):.1f}'


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


def test_the_tables_of_a_sweep_take_time_linear_in_its_points():
  """400 points take a second; comparing all methods on all models at each took 80."""
  rows = frame([row for row in prompt_records() if row['num_states'] == 10])
  records = rows.merge(frame({'prompt.length': range(400)}), how='cross')
  begun = time.process_time()
  found = _tables(records)
  assert [len(found[name].frame) for name in ('accuracy', 'contrasts')] == [400, 400]
  assert time.process_time() - begun < 5
