"""What no problem of a family can be; that the problems are as their theorems assume, `scoring_test` shows."""

import jax
import pytest
from theory_cases import CRITERIA, SIZES

from hmm_jax.theory import families


def test_impossible_conditioning_is_refused(monkeypatch):
  """No distributions have a smallest singular value of 2."""
  monkeypatch.setattr(families, 'MAX_DRAWS', 10)
  with pytest.raises(ValueError, match='conditioning is 2'):
    families.draw('4.6', 'planted', jax.random.key(0), SIZES['4.6'], CRITERIA, 2.0)
