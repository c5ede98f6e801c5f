"""The oracle in fractions against sums over all hidden paths."""

from fractions import Fraction
import itertools

import numpy as np
import rationals

from hmm_jax.hmm import HMM

# A chain with zeros: after token 1 comes no token 0 but right at the start.
SMALL = HMM(
  np.array([Fraction(1, 3), Fraction(2, 3), 0]),
  np.array([[0, Fraction(1, 2), Fraction(1, 2)], [0, Fraction(1, 7), Fraction(6, 7)], [0, 0, Fraction(1)]]),
  np.array([[Fraction(1, 5), Fraction(4, 5)], [Fraction(1), 0], [0, Fraction(1)]]),
)


def test_state_probs_equal_the_sum_over_all_paths():
  """They do so exactly for every text of tokens and [MASK]s, at each position, given its token or not."""
  kinds = set()
  for tokens in itertools.product(range(3), repeat=3):
    rows = rationals.likelihood_rows(SMALL, tokens)
    for position, leave_out in itertools.product(range(3), [True, False]):
      seen = [None if token == 2 else token for token in tokens]
      if leave_out:
        seen[position] = None
      weights = rationals.path_weights(*SMALL, seen, position)
      probs = rationals.state_probs(SMALL, rows, position, leave_out)
      np.testing.assert_array_equal(probs * weights.sum(), weights)
      assert probs.sum() == weights.any()
      kinds.add(weights.any())
  assert kinds == {True, False}
