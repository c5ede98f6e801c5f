"""Problems that no family may draw; `scoring_test` shows that the drawn ones satisfy their assumptions."""

import jax
import pytest
import scipy.optimize
from theory_cases import CRITERIA, drawn, SIZES

from hmm_jax.theory import families


def test_impossible_conditioning_is_refused(monkeypatch):
  """No distributions have a smallest singular value of 2."""
  monkeypatch.setattr(families, 'MAX_DRAWS', 10)
  with pytest.raises(ValueError, match='conditioning is 2'):
    families.draw('4.6', 'planted', jax.random.key(0), SIZES['4.6'], CRITERIA, 2.0)


def test_planted_states_of_3_3_have_words_of_their_own():
  """Redraws would hide a family that plants none."""
  emissions = drawn('3.3').hmm.emission_matrix
  assert emissions[scipy.optimize.linear_sum_assignment(emissions, maximize=True)].min() >= 0.5
