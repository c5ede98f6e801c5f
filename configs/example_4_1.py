"""The paper's Example 4.1: a sentence of a memory-augmented HMM, and the posterior of its memory word by word.

Claim: in "The cow in the pasture rolled on the grass happily." the cell read is the subject at "cow" and "rolled", the
location at "pasture" and "grass" and the sentiment at "happily"; the posterior of each cell sharpens there, and no
article or preposition moves any.

Command: python -m experiments.main --config=example_4_1
Cost: seconds on two CPU cores.
Expected: after the whole sentence P[cow] = 0.88, P[pasture] = 0.88, P[happy] = 0.82.

`sentence` may be any that the example can generate:
  --config.sentence="The child in the kitchen danced on the rug. The child wept."
"""

import ml_collections

from configs import base

SCALES = ('small',)


def get_config(scale: str = 'small') -> ml_collections.ConfigDict:
  """Return the config of `small`, the only scale."""
  config = base.start('example_4_1', scale)
  config.sentence = 'The cow in the pasture rolled on the grass happily.'
  config.figure = base.figure(7.2, 2.5)
  return config


def reduce(config: ml_collections.ConfigDict) -> None:
  """Change nothing: `:smoke` is as small as `small`."""
