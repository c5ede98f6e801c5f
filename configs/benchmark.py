"""Is ours as fast as other libraries? Smoothing, sampling and pretraining beside every installed peer, by turns.

Claim, on two CPU cores and on an H100: none takes less time than ours.

Command: python -m experiments.main --config=benchmark[:small|gpu|smoke] (the extra bench names the peers)
Cost: a few minutes; `:gpu` 72 seconds on an H100.
Expected at `gpu`: Hugging Face takes 1.82 times our time a step, 1.25 with torch.compile (docs/results/benchmark_gpu).

The work is that of prompt_vs_head at the same scale, whose settings these are, but with AdamW, which every library has.
|H| is the last of `num_states`. `:gpu` has the paper's step alone.
"""

import ml_collections

from configs import base

SCALES = ('small', 'gpu')


def get_config(scale: str = 'small') -> ml_collections.ConfigDict:
  """One of SCALES."""
  named = base.start('benchmark', scale)
  config = base.get_config('paper' if scale == 'gpu' else scale)
  config.update(named)
  config.parts = ('smoothing', 'sampling', 'training')
  config.update(repeats=9, num_texts=2000, text_length=129, shown_texts=0, figures=(), pretrained='')
  config.pretrain.optimizer = 'adamw'
  config.mesh.data = 1
  if scale == 'gpu':
    config.update(parts=('training',), repeats=5)
  return config


def reduce(config: ml_collections.ConfigDict) -> None:
  """Reduce sizes, steps and counts to those of a toy, as `:smoke` has them."""
  base.reduce(config)
  config.update(num_states=(6,), repeats=2, num_texts=10, text_length=9)
  config.pretrain.steps_per_call = 2
