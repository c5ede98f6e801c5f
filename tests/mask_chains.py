"""A chain that tests of [MASK]s share."""

import numpy as np

from hmm_jax.distributions.hmm import HMM

# The start is not stationary.
CHAIN = HMM(
  *map(
    np.float32,
    ([0.5, 0.25, 0.25], [[0.25, 0.5, 0.25], [0, 0.5, 0.5], [0.75, 0, 0.25]], [[1, 0], [0.5, 0.5], [0.25, 0.75]]),
  )
)
