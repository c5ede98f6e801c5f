"""Speed of exact inference and sampling beside dynamax and beside the flattened chain, in one process, alternating.

Claim, on two CPU cores: for 2000 sequences of 129 tokens all posteriors, computed in float64, take no longer than
dynamax's smoother in float32, and the smoothed rows alone at most two thirds of its time; sampling 200 documents of
10240 tokens at H = 30 is at least 20 times as fast. The posterior of a memory of 7 values over 4 hidden states is at
least twice as fast by its own structure (a pass forward, P[M] P[x | M]) as through the flattened chain of 28 states,
and the same in every float32 bit.

Where it stood, on two cores that nothing else used (medians of 15): all posteriors 1.11, 1.36 and 1.23 times as fast
as dynamax at H = 4, 10 and 30, smoothed rows alone 1.80, 2.66 and 2.05 times; sampling 34 times; the posterior of the
memory 2.4. The target of 1.25 for all posteriors is missed at H = 4 and 30, that of 2 for smoothed rows at H = 4. The
float32 arithmetic before it, in pairs on this machine, was 1.6 times dynamax at each H.

Command: python -m experiments.main --config=benchmark
"""

import ml_collections

from configs import base

SCALES = base.SMALL_AND_SMOKE


def get_config(scale: str = 'small') -> ml_collections.ConfigDict:
  """`:small` (default) is what the claim speaks of; `:smoke` runs the path."""
  config = base.start('benchmark', scale, SCALES)
  config.num_states = (4, 10, 30)
  config.num_tokens = 10
  config.num_sequences = 2000
  config.length = 129
  config.memory_size = 7
  config.memory_states = 4
  config.sampling_states = 30
  config.num_documents = 200
  config.document_length = 10240
  config.repeats = 15
  if scale == 'smoke':
    config.update(num_states=(3,), num_sequences=10, length=9, num_documents=4, document_length=64, repeats=2)
  return config
