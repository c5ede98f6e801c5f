"""How many labels does pretraining save?

Plan, written down before the runs: docs/findings/labels.md.

Command: python -m experiments.main --config=labels[:small|weak|ceiling|smoke]

Each reader has 10 to 1,500 training labels and as many validation labels, at most 500, which choose its penalty and its
number of tokens. Of BERT: linear heads on one [MASK] and on five, a quadratic head, probes, whitened and not, all
converged, and a prompt with a converged head. Without a model: a table of tokens, logistic regression on a window of
tokens and on its pairs, a ridge on all tokens. Texts, tasks and test inputs are the same for every number of labels. A
prompt is tuned for at least 900 steps.

`weak` has the BERTs and HMMs of `hard_tasks:small`, whose emissions are weaker (temperature .15). `ceiling` has
converged heads on the exact model, and on the exact posterior.

Two controls of `weak`: --config.models=untrained --config.num_states=10
--config.methods=quadratic,probe_converged,probe_ridge (docs/results/labels/untrained), and an HMM fitted by EM to the
same text, in place of BERT (docs/examples/em.py, docs/results/labels/em).

Cost: `small` 61 minutes of CPU time without its BERTs, `weak` 125 with them, `ceiling` and the control 2.
Expected: at `weak` and |H| = 10 the reader of BERT leads by 12.6 +- 4.3 points at 20 labels. `probe_ridge` and
`tokens_ridge` came after the plan: docs/findings/labels.md.
"""

import ml_collections

from configs import base, hard_tasks

SCALES = ('small', 'weak', 'ceiling')
LABELS = (10, 20, 50, 100, 300, 1500)
_CONVERGED = ('head_whitened', 'quadratic', 'masks_converged')


def get_config(scale: str = 'small') -> ml_collections.ConfigDict:
  """`:small` (default), `:weak` or `:ceiling`."""
  config = hard_tasks.get_config() if scale == 'weak' else base.get_config()
  config.update(experiment='labels', scale=scale, plan=(), figures=(), models=('bert',))
  config.methods = (
    *_CONVERGED,
    'probe_converged',
    'probe_ridge',
    'prompt_refit',
    'table',
    'window',
    'window_quadratic',
    'tokens_ridge',
  )
  config.figure = base.figure(width=5.6, height=4.4)
  if scale == 'weak':
    # The end of the pretraining alone.
    config.checkpoints = ()
  else:
    # The seed is no other record's.
    config.update(seed=67, num_states=(10, 30), num_trials=10)
  if scale == 'ceiling':
    config.update(models=('exact',), methods=(*_CONVERGED, 'posterior'))
  # Whole batches of the fewest labels.
  config.prompt.update(batch_size=5, min_steps=900)
  config.downstream.num_labels = base.values(*LABELS)
  return config


def reduce(config: ml_collections.ConfigDict) -> None:
  """Reduce sizes, steps and counts to those of a toy, as `:smoke` has them."""
  base.reduce(config)
  config.num_states = (6,)
  config.downstream.num_labels = base.values(20, 50)
  config.prompt.min_steps = 20
