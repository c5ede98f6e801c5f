"""A chain that tests of [MASK]s share."""

import numpy as np

from hmm_jax.distributions.hmm import HMM

# Four states and three tokens: one [MASK] has rank 3, two have rank 4, by their joint law and by their marginals. The
# start is not stationary.
CHAIN = HMM(
  np.float32([0.5, 0.25, 0.125, 0.125]),
  np.float32([[0, 1, 0, 3], [1, 2, 1, 0], [2, 1, 0, 1], [1, 0, 3, 0]]) / 4,
  np.float32([[1, 0, 0], [0, 1, 0], [0, 0.5, 0.5], [0.5, 0.25, 0.25]]),
)
