"""Figure 3 (left): does prompt tuning recover what head tuning cannot?

Claim (Theorems 3.3 and 3.6): a linear head on the predicted token probabilities recovers the label while
|H| <= |X| = 10 and fails past it, where a tuned prompt still can.
"""

import ml_collections

from configs import base


def get_config(scale: str = 'small') -> ml_collections.ConfigDict:
  """`:small` (default), `:paper`, `:official` or `:smoke`."""
  config = base.get_config(scale)
  config.experiment = 'prompt_vs_head'
  return config
