"""Differences in the tables of a grid; `pages_test` redraws those of docs/results."""

import time

from figures_cases import prompt_records
from pandas import DataFrame as frame

from experiments.analysis import grid_tables
from experiments.analysis.statistics import interval


def _tables(records):
  return grid_tables.tables(grid_tables.prepared(frame(records)), paper_overlay=False)


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
  (row,) = _tables(by_temperature)['values'].frame.to_dict('records')
  assert (row['n'], row['difference'], row['p, Holm']) == ('4', str(losses), f'{losses.p_value:.2g}')


def test_the_tables_of_a_sweep_take_time_linear_in_its_points():
  """400 points take a second; comparing all methods on all models at each took 80."""
  rows = frame([row for row in prompt_records() if row['num_states'] == 10])
  records = rows.merge(frame({'prompt.length': range(400)}), how='cross')
  begun = time.process_time()
  found = _tables(records)
  assert [len(found[name].frame) for name in ('accuracy', 'contrasts')] == [400, 400]
  assert time.process_time() - begun < 5
