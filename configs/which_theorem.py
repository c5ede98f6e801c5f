"""The theorem behind Figure 3 (left): facts about its HMMs and tasks, without a BERT.

Claim: in the draws of prompt_vs_head the score is exactly linear in G, as in Theorem 3.3, for every task with |H| at
most |X| = 10 and for none past it. From |H| = 8 on the median head is thousands of times as large as mu. Without near
ties, labels are separable for more tasks than these.

Command: python -m experiments.main --config=which_theorem[:small|smoke]

HMMs, inputs and tasks are those of prompt_vs_head, drawn by its settings and keys: records join by number of states,
trial and task.

Cost: a minute of CPU time.
Expected: the tables of docs/findings/theorems.md, which `python -m experiments.studies.pages` fills from records.
"""

import ml_collections

from configs import base

SCALES = ('small',)


def get_config(scale: str = 'small') -> ml_collections.ConfigDict:
  """Return the config of `small`, the only scale."""
  config = base.get_config(scale)
  config.experiment = 'which_theorem'
  config.update(num_states=base.FIRST_SIZES, num_trials=7, num_trials_by_size=(7, 5, 7, 5, 5, 5, 7))
  config.figures = ()
  config.figure = base.figure(width=5.6, height=4.4)
  config.levels = base.group(rank_levels=(1e-9, 1e-2), support_levels=(0.0, 1e-3, 1e-2, 1e-1), max_nodes=2000)
  config.update(margin=1e-9, near_tie=1e-6)
  return config


def reduce(config: ml_collections.ConfigDict) -> None:
  """Reduce sizes, steps and counts to those of a toy, as `:smoke` has them."""
  base.reduce(config)
  config.levels.max_nodes = 200
  config.figure.dpi = 60
