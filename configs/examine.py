"""A user's own HMM and task: which assumptions of the theorems hold, with witnesses, and what the constructions give.

Command: python -m experiments.main --config=examine --config.distribution=NAME or PATH
"""

import ml_collections

from configs import base

SCALES = base.SMALL_AND_SMOKE


def get_config(scale: str = 'small') -> ml_collections.ConfigDict:
  """`:small` (default), or `:smoke`, which looks at fewer and shorter sequences."""
  config = base.start('examine', scale, SCALES)
  base.thresholds(config)
  config.distribution = ''
  config.update(max_sequences=20_000, num_sampled=2000, sampled_length=64)
  if scale == 'smoke':
    config.update(max_sequences=500, num_sampled=50, sampled_length=8)
  return config
