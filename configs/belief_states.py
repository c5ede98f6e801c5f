"""Does a BERT hold the belief over hidden states, where a table of tokens does not, and does it use it?

Plan, written down before the runs: eight ratios of KL, with the bound expected of each in the table `tests`
(docs/results/belief_states/tests.csv); one on the other side with p < .05 (Holm) refutes. On trial HMMs at temperature
.1 with |H| = 30 BERTs learned slowly or not at all, so that the leads over tables of tokens were expected to fail
there. Results: docs/findings/belief_states.md.

Command: python -m experiments.main --config=belief_states[:small|smoke]

A part is a pretraining: three HMMs at each |H| and emission temperature, three pretrainings on mess3, three processes
with a memory. Probes of each layer stand beside those of the untrained BERT, of a window and of the exact G, and
a table of tokens. Activations are patched.

Cost: the 18 parts of `small` took 32 minutes of CPU time on one core of a loaded machine (OMP_NUM_THREADS=1).
Expected: layer 2 has a quarter of the untrained network's KL and, on the paper's draws, half of the table's; on weaker
emissions it is not significantly below the table, and above the window. A patch along the encoding map does what a
full swap does.
"""

import ml_collections

from configs import base

SCALES = ('small',)


def get_config(scale: str = 'small') -> ml_collections.ConfigDict:
  """Return the config of `small`, the only scale."""
  config = base.get_config(scale)
  config.update(experiment='belief_states', models=('bert',), methods=('head', 'prompt'), figures=())
  config.figure = base.figure(width=5.6, height=4.4)
  # HMMs that no other experiment has seen.
  config.update(seed=470, num_trials=3, num_states=(30, 30, 30, 15), temperatures=(0.01, 0.1, 0.3, 0.1), num_texts=3000)
  config.checkpoints = (150, 300, 450, 600)
  # Texts of 25 tokens have the positions that BERT is pretrained on. Records are of a prompt of 7 rows.
  config.corpus.chunk_length, config.downstream.length, config.prompt.length = 32, 25, 7
  return config


def reduce(config: ml_collections.ConfigDict) -> None:
  """Reduce sizes, steps and counts to those of a toy, as `:smoke` has them."""
  base.reduce(config)
  config.update(num_trials=1, num_states=(6, 6), temperatures=(0.01, 0.1), num_texts=120, checkpoints=(20, 40))
