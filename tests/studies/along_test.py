"""Records along a pretraining."""

import pandas as pd

from experiments.analysis import grid_tables


def test_other_grids_show_the_last_step_of_each_fit():
  """Its end has no step, nor has what reads no BERT."""
  steps = pd.DataFrame({'trial': [0, 0, 0, 1, 1, 2, 2], 'step': [None, 20, 40, 20, 60, 20, None]})
  steps = steps.assign(task=0, fit=['none table', *['bert head'] * 6])
  grid = grid_tables.Grid(steps, [], [], ['trial'], 'HMMs')
  assert grid.at_end().records.index.tolist() == [0, 2, 4, 6]
