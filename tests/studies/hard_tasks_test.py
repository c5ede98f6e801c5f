"""The lead of readers of BERT over readers without a model."""

import pandas as pd
import pytest
from settings_cases import settings_of

from experiments.studies import hard_tasks


def test_a_lead_is_over_the_better_reader_on_the_same_task():
  same = dict(num_states=4, trial=0, kl_at_mask=0.5, unigram_gap=1.0, majority_accuracy=0.5)
  readers = dict(table=(0.8, 0.6), tokens=(0.7, 0.9), head=(0.95, 0.7))
  rows = [
    same
    | dict(step=40 if method == 'head' else None, method=method, task=task, accuracy=share, clear_accuracy=0.8 * share)
    for method, accuracies in readers.items()
    for task, share in enumerate(accuracies)
  ]
  leads = hard_tasks.with_lead(pd.DataFrame(rows))
  assert leads['lead'].tolist() == pytest.approx([0.15, -0.2])
  assert leads['clear_lead'].tolist() == pytest.approx([0.12, -0.16])
  tables = hard_tasks.STUDY.tables(pd.DataFrame(rows), settings_of('smoke', 'hard_tasks'))
  assert tables['lead'].frame[['KL, % of gap', 'head']].values.tolist() == [['50.0', '-2.5']]
  (row,) = tables['end_points'].frame.to_dict('records')
  assert row == {
    'end point': '14',
    'difference of': 'lead of head, step 40',
    '|H|': '4',
    'n': '1',
    'difference': '-2.5',
    'without near ties': '-2.0',
  }


def records(*shifts, slope=-0.5):
  """Leads of 5 points at a KL of 0 that change by `slope` points per percent of the gap, of HMMs of two sizes."""
  return pd.DataFrame(
    dict(num_states=size, trial=trial, task=0, method='masks_converged', step=step, gap_share=share)
    | {'lead': 0.05 + shift + slope * share, 'clear_lead': 0.0}
    for size in (10, 30)
    for trial, shift in enumerate(shifts)
    for step, share in ((600, 0.3 + shift), (9600, 0.02))
  )


def test_end_points_are_of_the_last_step_and_one_of_the_first():
  """Point 13 pools both sizes."""
  rows = {row['end point']: row for row in hard_tasks._end_points(records(0, 0.01, -0.01))}
  assert {point: (row['|H|'], row['n'], row['difference'].split()[0]) for point, row in rows.items()} == {
    '11': ('10', '3', '4.0'),
    '12': ('30', '3', '4.0'),
    '13': ('10, 30', '6', '-10.0'),
  }
  assert rows['12']['lead 0 at KL, % of gap'] and 'lead 0 at KL, % of gap' not in rows['13']


def test_the_crossing_is_where_the_line_of_lead_against_kl_is_zero():
  """None where leads rise with KL, or no KL is small enough; without one HMM of two, the line of the other."""
  assert hard_tasks.crossing(records(0, 0)) == pytest.approx(10)
  assert pd.isna(hard_tasks.crossing(records(0, 0, slope=0.5)))
  assert pd.isna(hard_tasks.crossing(records(-0.06, -0.06)))
  of_two = records(0, 0.02).query('num_states == 30')
  apart = hard_tasks._crossings(pd.concat([of_two, of_two.assign(step=1, gap_share=of_two['gap_share'] + 0.1)]))
  assert apart['without one HMM'].count(' to ') == 1
  assert hard_tasks._crossings(of_two)['without one HMM'] == ''
