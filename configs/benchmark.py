"""Speed of exact inference and sampling beside dynamax and beside the flattened chain, in one process, alternating.

Claim, on two CPU cores: smoothing 2000 sequences of 129 tokens is at least 1.5 times, and sampling 200 documents of
10240 tokens at H = 30 at least 20 times, as fast as dynamax. The posterior of a memory of 7 values over 4 hidden states
is at least 3 times as fast by its own structure (a pass forward, P[M] P[x | M]) as through the flattened chain of 28
states, and equal to float32 precision. Every posterior at every position costs the two about the same at that size,
where the arrays themselves are the cost and not the products.

Where it stands, on a machine shared with other work: smoothing is 1.5 to 1.6 times as fast as dynamax at H = 4, which
leaves the claim little room, and 1.6 times at H = 10 and 30; sampling 47 times; the posterior of the memory 3.7 to 4.2.

Command: python -m experiments.main --config=configs/benchmark.py
"""

import ml_collections

from configs import base


def get_config(scale: str = 'small') -> ml_collections.ConfigDict:
  """`:small` (default) is what the claim speaks of; `:smoke` runs the path."""
  config = base.start('benchmark', scale, scales=('small', 'smoke'))
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
