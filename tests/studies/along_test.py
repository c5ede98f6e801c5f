"""Tables along a pretraining: when a BERT has left the plateau, leads over readers without a model, end points."""

import numpy as np
import pandas as pd
import pytest
from settings_cases import settings_of

from experiments.studies import along, grids


def _records(accuracies, kl, step):
  """A record of a method on each of two tasks of one HMM."""
  same = dict(num_states=4, trial=0, kl_at_mask=kl, unigram_gap=1.0, majority_accuracy=0.5, step=step)
  return [
    same | dict(method=method, task=task, accuracy=share, clear_accuracy=0.8 * share)
    for method, shares in accuracies.items()
    for task, share in enumerate(shares)
  ]


RECORDS = pd.DataFrame(
  [
    *_records(dict(table=(0.8, 0.6), tokens=(0.7, 0.9)), None, None),
    *_records(dict(head=(0.5, 0.6)), 0.9, 20),
    *_records(dict(head=(0.95, 0.7)), 0.4, 40),
  ]
)


def _cells(experiment, name, *columns):
  table = along.tables(RECORDS, settings_of('smoke', experiment))[name]
  return table.frame[[*columns]].to_numpy().tolist()


def test_a_bert_has_left_the_plateau_below_half_of_the_unigram_gap_after_the_last_step():
  ((has_left,),) = _cells('plateau', 'left', 'left the plateau')
  assert has_left.startswith('1/1')
  assert _cells('plateau', 'along', 'step', 'KL, % of gap', 'head', 'majority') == [
    ['20', '90.0', '55.0', '50.0'],
    ['40', '40.0', '82.5', '50.0'],
  ]
  columns = 'KL', 'head', 'table of tokens', 'logistic on tokens'
  assert _cells('plateau', 'ends', *columns) == [['0.400', '82.5', '70.0', '80.0']]


def test_a_lead_is_over_the_better_reader_on_the_same_task():
  """0.95 - 0.8 and 0.7 - 0.9; without near ties 0.8 times as much."""
  assert _cells('hard_tasks', 'lead', 'step', 'head') == [['20', '-30.0'], ['40', '-2.5']]
  columns = 'end point', 'difference of', 'difference', 'without near ties'
  assert _cells('hard_tasks', 'end_points', *columns) == [['14', 'lead of head, step 40', '-2.5', '-2.0']]


def test_settings_that_differ_have_rows_of_their_own():
  """The second has no step 40, and so has not left."""
  both = pd.concat([RECORDS.assign(seed=0), RECORDS[RECORDS['step'] != 40].assign(seed=1)])
  shown = along.tables(both, settings_of('smoke', 'plateau'))
  left, ends = shown['left'].frame, shown['ends'].frame
  assert left['|H|'].tolist() == ['4, 0', '4, 1'] and ends['KL'].tolist() == ['0.400', '0.900']
  assert left['left the plateau'].str.partition(' ')[0].tolist() == ['1/1', '0/1']


def test_the_crossing_is_where_the_line_of_lead_against_kl_is_zero():
  """5 points at a KL of 0, one less for each 2%. None if leads rise with KL, or no KL is small enough."""
  kl = pd.Series([2.0, 4.0, 30.0])
  lines = 5 - kl / 2, 5 + kl / 2, -1 - kl / 2
  crossings = [along.crossing(pd.DataFrame({'gap_share': kl, 'gain': gain})) for gain in lines]
  assert crossings == pytest.approx([10, np.nan, np.nan], nan_ok=True)


def test_other_grids_show_the_last_step_of_each_trial():
  """And what has no step."""
  steps = pd.DataFrame({'trial_id': [*'aaabb'], 'step': [None, 20, 40, 20, 60]})
  assert grids._at_end(steps).index.tolist() == [0, 2, 4]
