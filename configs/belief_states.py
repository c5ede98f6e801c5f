"""Does a BERT hold the belief over hidden states, where a table of tokens does not, and does it use it?

Plan, written down before the runs: docs/findings/belief_states.md.

Command: python -m experiments.main --config=belief_states[:small|smoke]

A part is a pretraining: three HMMs at each |H| and emission temperature, three of mess3, three of a process with a
memory. Probes of each layer stand beside those of the untrained BERT, of a window and of the exact G, a table of
tokens, and shuffled beliefs. Activations are patched, and prompts tuned on the paper's draws.

Cost: not measured as a whole. An HMM with 30 states took under three minutes of CPU time on cores that other work
shared, so that 18 parts take at most 54.
Expected: not run yet.
"""

import ml_collections

from configs import base

SCALES = base.SMALL_AND_SMOKE


def get_config(scale: str = 'small') -> ml_collections.ConfigDict:
  """`:small` (default) or `:smoke`; raises ValueError for another."""
  config = base.get_config(scale)
  config.update(experiment='belief_states', models=('bert',), methods=('head', 'prompt'), figures=())
  config.figure = base.figure(width=5.6, height=4.4)
  # HMMs that no other experiment has seen.
  config.update(seed=47, num_trials=3, num_states=(30, 30, 30, 15), temperatures=(0.01, 0.1, 0.3, 0.1))
  config.update(named=('mess3',), memories=(5,))
  config.checkpoints = (0, 50, 100, 150, 200, 300, 450, 600)
  config.update(num_texts=1200, num_held_out=300, reach=8)
  if scale == 'smoke':
    config.update(num_trials=1, num_states=(4, 6), temperatures=(0.01, 0.1), memories=(2,), checkpoints=(0, 20, 40))
    config.update(num_texts=100, num_held_out=20, reach=2)
  return config
