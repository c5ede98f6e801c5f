"""Figure 3 (right): is a label that speaks of a persistent memory easier to recover than one of a hidden state?"""

import ml_collections

from configs import base


def get_config(scale: str = 'small') -> ml_collections.ConfigDict:
  """`:small` (default), `:paper`, `:official` or `:smoke`."""
  config = base.get_config(scale)
  config.experiment = 'memory_vs_vanilla'
  config.num_states = (4,)
  config.memory.sizes = (2, 3, 5, 7)
  config.methods = ('attention',)
  config.memory.vanilla_methods = ('head',)
  if scale == 'small':
    config.pretrain.num_steps = 1000
  if scale in ('paper', 'official'):
    config.num_trials = 5
  if scale == 'official':
    config.memory.vanilla_methods = ('attention', 'head')
  if scale == 'smoke':
    config.memory.sizes = (2, 3)
  return config
