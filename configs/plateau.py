"""Do some of the paper's BERTs stay on the plateau on which they predict token frequencies?

Claim, written down before the runs: some did, and the others are like ours. Fitted to the prompts of the paper's later
text, the share of those that leave falls with |H|. Of 5 BERTs by `paper_recipe` this is refuted if any stays at
|H| = 4, at most 2 leave at 10, at least 4 leave at 25 or at 30, or 6 of 10 at both: each has a probability below 5%.
That readers need BERT to leave is refuted if at `small` a mean prompt is more than 5 points above the majority class
while KL is above 90% of the unigram gap. Results: docs/findings/lower_numbers.md.

Command: python -m experiments.main --config=plateau[:small|paper_recipe|half_rate|double_rate|smoke]

HMMs, inputs and tasks are those of prompt_vs_head, drawn by its settings and keys. Each BERT is pretrained here. Head,
prompt and probe are tuned on it at `checkpoints`; KL at the [MASK] is measured every `pretrain.measure_every` steps.

`small` has the recipe of prompt_vs_head:small. `paper_recipe` has the paper's, scaled down: AdamW, 8 chunks of 512
tokens, 5% of positions selected, 1,875 steps in place of 37,500, and a learning rate of 1.2e-3. This is 20 times the
paper's 1e-5 for a twentieth of the steps, times 768 / 128 for the width. `half_rate` and `double_rate` have half and
double that rate.

Cost: `paper_recipe` takes about 12 minutes of CPU time for each BERT on one core, `small` about 5.
Expected: at `small` all BERTs leave the plateau. At `paper_recipe` 2 of 5 leave at |H| = 4, 1 of 5 at 10, 1 of 5 at 25
and 0 of 5 at 30. Of three each at 4, 0 leave at `half_rate` and 2 at `double_rate`; of three each at 30 none.
"""

import ml_collections

from configs import base

SCALES = ('small', 'paper_recipe', 'half_rate', 'double_rate')
# Factors of the learning rate.
_RATES = {'paper_recipe': 1.0, 'half_rate': 0.5, 'double_rate': 2.0}


def get_config(scale: str = 'small') -> ml_collections.ConfigDict:
  """One of SCALES."""
  config = base.get_config()
  config.update(experiment='plateau', scale=scale, models=('bert',), methods=('head', 'prompt', 'probe', 'table'))
  config.figures = ()
  config.figure = base.figure(width=5.6, height=4.4)
  config.update(num_states=(4, 10, 15, 30), num_trials=5)
  config.pretrain.update(steps_per_call=25, measure_every=25)
  config.checkpoints = (25, 50, 75, 100, 150, 300, 600)
  if scale in _RATES:
    _paper_recipe(config, 1.2e-3 * _RATES[scale])
  if scale in ('half_rate', 'double_rate'):
    config.update(num_states=(4, 30), num_trials=3)
  return config


def reduce(config: ml_collections.ConfigDict) -> None:
  """Reduce sizes, steps and counts to those of a toy, as `:smoke` has them."""
  base.reduce(config)
  config.checkpoints = (20, 40)


def _paper_recipe(config: ml_collections.ConfigDict, learning_rate: float) -> None:
  config.num_states = (4, 10, 25, 30)
  config.corpus.chunk_length = config.bert.max_positions = 512
  config.pretrain.update(optimizer='adamw', num_steps=1875, batch_size=8, learning_rate=learning_rate, warmup_steps=25)
  config.pretrain.update(mask_rate=0.05, measure_every=125)
  config.checkpoints = (375, 750, 1875)
