"""The region of sequences to check on, also of problems filled up to one size: against exact posteriors."""

import numpy as np
import pytest
from theory_cases import drawn, exact_hmm, in_region_by_definition, LIMITS

from hmm_jax.theory.problems import texts
from hmm_jax.theory.theorems import padding, theorems
from hmm_jax.theory.theorems.padding import PaddedSizes

PADDED = PaddedSizes(num_states=8, num_tokens=7, memory_size=4, num_outputs=9)


@pytest.mark.parametrize(('theorem', 'seed'), [('4.3', 1), ('4.6', 0), ('C.6', 10)])
def test_the_region_is_that_of_the_definition(theorem, seed):
  """R (4.3) by supports is R by exact posteriors, of all sequences, impossible and short ones included."""
  problem = drawn(theorem, 'unplanted', seed)
  finding = theorems.finding(theorems.ON_EMISSIONS[theorem], problem, LIMITS)
  states, hmm, num_tokens = finding.witness['recoverable_states'], exact_hmm(problem), problem.hmm.num_tokens
  every = texts.all_sequences(num_tokens, 3)
  found, rng = texts.in_region(texts.supports(problem.hmm), states, every), np.random.default_rng(0)
  chosen = np.append(np.flatnonzero(found)[-8:], rng.choice(np.flatnonzero(~found), 12))
  expected = [in_region_by_definition(problem, hmm, states, text) for text in every[chosen].tolist()]
  np.testing.assert_array_equal(found[chosen], expected)
  filled_up, remasked = texts.supports(padding.chain(problem.hmm, PADDED)), padding.remasked(every, num_tokens, PADDED)
  np.testing.assert_array_equal(texts.in_region(filled_up, states, remasked), found)
  assert any(expected)
