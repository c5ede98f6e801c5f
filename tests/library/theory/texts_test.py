"""Sequences to check on, against exact posteriors."""

import numpy as np
import pytest
from theory_cases import drawn, exact_hmm, exact_posterior

from hmm_jax.theory import texts


@pytest.mark.parametrize('theorem', ['3.3', 'C.6'])
def test_possible_sequences_have_a_posterior(theorem):
  """Others have none; all of 1 to 3 tokens are tried, with [MASK]s after them."""
  problem = drawn(theorem, 'unplanted')
  num_tokens, hmm = problem.hmm.num_tokens, exact_hmm(problem)
  every = texts.all_sequences(num_tokens, 3, 4)
  assert len(every) == num_tokens + num_tokens**2 + num_tokens**3 and (every[:, 3] == num_tokens).all()
  has_posterior = [exact_posterior(problem, hmm, text).any() for text in every.tolist()]
  np.testing.assert_array_equal(texts.possible_sequences(problem.hmm, 3, 4), every[has_posterior])
  assert not all(has_posterior)
