"""Speed of inference, sampling and pretraining against every installed peer, by turns in one process.

Claim, on two CPU cores: for 2000 sequences of 129 tokens dynamax's smoother (float32) takes 1.25 times as long as our
full posterior (float64) and twice as long as our smoothed rows alone. To sample 200 documents of 10240 tokens dynamax
takes 25 times as long. The posterior of a memory of 7 values over 4 hidden states is at least twice as fast by its own
structure as through the flattened chain of 28 states. A step of pretraining at small scale is 1.5 times as fast as
Hugging Face's and 1.3 times as fast as under torch.compile; its matrix products alone take at least 0.6 of it.

Command: python -m experiments.main --config=benchmark (the extra bench names the peers; a missing one is noted)
Cost: `minutes` (60; 9 for `:gpu`), after which no contender begins, and the time of the last one.
Status: docs/internals/speed.md has the ratios of the record in docs/results/benchmark/cpu. Smoothed rows at
|H| = 4 and 30 miss the claim, and so do all posteriors at |H| = 4.
"""

import ml_collections

from configs import base

SCALES = ('small', 'inference', 'sampling', 'training', 'gpu', 'smoke')
_PARTS = {
  'small': ('inference', 'sampling', 'training'),
  'gpu': ('gpu', 'inference', 'sampling'),
  'smoke': ('gpu', 'inference', 'sampling', 'training'),
}


def get_config(scale: str = 'small') -> ml_collections.ConfigDict:
  """`:small` (default) is all that a CPU runs; `:inference`, `:sampling` and `:training` are its parts. `:gpu` is paper
  scale on one GPU. `:smoke` runs all of them in toy sizes, on any machine."""
  config = base.start('benchmark', scale, SCALES)
  config.parts = _PARTS.get(scale, (scale,))
  config.repeats = 9
  config.minutes = 60.0
  config.inference = base.group(
    num_states=(4, 10, 30), num_tokens=10, num_sequences=2000, length=129, memory_size=7, memory_states=4
  )
  config.sampling = base.group(
    num_states=30, num_tokens=10, num_documents=200, corpus_documents=5000, document_length=10240
  )
  config.training = _step('small', steps_per_call=10)
  config.gpu = _step('paper', steps_per_call=20)
  if scale == 'gpu':
    # Compile anew: the seconds of compilation are recorded.
    config.update(repeats=5, minutes=9.0, compilation_cache='')
    config.inference.num_states = (10, 30)
  if scale == 'smoke':
    _smoke(config)
  return config


def _step(scale: str, steps_per_call: int) -> ml_collections.ConfigDict:
  """The training step of `prompt_vs_head` at that scale, on less text, which does not change its time.

  It is AdamW on 15% of positions at the small scale too, so that every library can run it.
  """
  whole = base.get_config(scale)
  group = base.group(num_tokens=whole.hmm.num_tokens, bert=whole.bert, pretrain=whole.pretrain, corpus=whole.corpus)
  group.pretrain.update(optimizer='adamw', steps_per_call=steps_per_call)
  if scale != 'paper':
    group.pretrain.mask_rate = 0.15
  group.corpus.num_documents = 32
  return group


def _smoke(config: ml_collections.ConfigDict) -> None:
  config.repeats = 2
  config.inference.update(num_states=(3,), num_sequences=10, length=9)
  config.sampling.update(num_states=3, num_documents=4, corpus_documents=8, document_length=64)
  smoke = _step('smoke', steps_per_call=2)
  # One model for both, so that shared programs compile once.
  smoke.bert.update(dtype='bfloat16', num_layers=2)
  config.training.update(smoke)
  config.gpu.update(smoke)
