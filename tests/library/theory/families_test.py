"""A planted family plants what it says; `scoring_test` shows that drawn problems satisfy their assumptions."""

import scipy.optimize
from theory_cases import drawn


def test_planted_states_of_3_3_have_words_of_their_own():
  """Redraws would hide a family that plants none."""
  emissions = drawn('3.3').hmm.emission_matrix
  assert emissions[scipy.optimize.linear_sum_assignment(emissions, maximize=True)].min() >= 0.5
