""" """

import ml_collections

from configs import base


def get_config(scale: str = 'small') -> ml_collections.ConfigDict:
  """`:small` (default), `:paper` or `:smoke`."""
  config = base.get_config(scale)
  config.experiment = 'memory_cells'
  config.num_states = (6,)
  config.memory.sizes = (3,)
  config.memory.cells = (1, 2, 3)
  config.methods = ('attention', 'prompt_attention', 'head')
  if scale in ('paper', 'official'):
    config.num_trials = 5
  if scale == 'smoke':
    config.memory.update(sizes=(2,), cells=(1, 2))
    config.num_states = (4,)
  return config
