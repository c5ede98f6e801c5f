"""Tables along a pretraining: when a BERT has left the plateau, and leads over readers without a model."""

import pandas as pd
from settings_cases import settings_of

from experiments.analysis import grid_tables
from experiments.studies import along


def _records(accuracies, kl, step):
  """A record of a method on each of two tasks of one HMM."""
  same = dict(
    experiment='plateau',
    scale='smoke',
    num_states=4,
    trial=0,
    kl_at_mask=kl,
    unigram_gap=1.0,
    majority_accuracy=0.5,
    step=step,
  )
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
  ((difference, clear), _) = _cells('hard_tasks', 'plan', 'difference', 'without near ties')
  assert (difference, clear) == ('-2.5', '-2.0')


def test_other_grids_show_the_last_step_of_each_fit():
  """Its end has no step, nor has what reads no BERT."""
  steps = pd.DataFrame({'trial': [0, 0, 0, 1, 1, 2, 2], 'step': [None, 20, 40, 20, 60, 20, None]})
  steps = steps.assign(task=0, fit=['none table', *['bert head'] * 6])
  grid = grid_tables.Grid(steps, [], [], ['trial'], 'HMMs')
  assert grid.at_end().records.index.tolist() == [0, 2, 4, 6]
