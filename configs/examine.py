"""A user's own HMM and task: which assumptions of the theorems hold, with witnesses, and what the constructions give.

Command: python -m experiments.main --config=examine [--config.distribution=NAME or PATH]
"""

import ml_collections

from configs import base

SCALES = ('small',)


def get_config(scale: str = 'small') -> ml_collections.ConfigDict:
  """Return the config of `small`, the only scale."""
  config = base.start('examine', scale)
  base.thresholds(config)
  config.distribution = 'mess3'
  config.update(max_sequences=20_000, num_sampled=2000, sampled_length=64)
  return config


def reduce(config: ml_collections.ConfigDict) -> None:
  """Reduce sizes, steps and counts to those of a toy, as `:smoke` has them."""
  config.update(max_sequences=500, num_sampled=50, sampled_length=8)
