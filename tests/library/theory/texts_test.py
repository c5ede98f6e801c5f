"""Sequences to check on, also of problems filled up to one size: R against exact posteriors."""

import numpy as np
import pytest
from theory_cases import CRITERIA, drawn, exact_hmm, in_region_by_definition

from hmm_jax.theory import padding, texts, theorems
from hmm_jax.theory.padding import PaddedSizes

PADDED = PaddedSizes(num_states=8, num_tokens=7, memory_size=4, num_outputs=9)


@pytest.mark.parametrize(('theorem', 'seed'), [('4.3', 1), ('4.6', 0), ('C.6', 10)])
def test_the_region_is_that_of_the_definition(theorem, seed):
  """R (4.3) by supports is R by exact posteriors, of all sequences, impossible and short ones included.

  Possible sequences are found token by token, or among all.
  """
  problem = drawn(theorem, 'unplanted', seed)
  finding = theorems.finding(theorems.ON_EMISSIONS[theorem], problem, CRITERIA)
  states, hmm, num_tokens = finding.witness['recoverable_states'], exact_hmm(problem), problem.hmm.num_tokens
  every, supports = texts.all_sequences(num_tokens, 3), texts.supports(problem.hmm)
  np.testing.assert_array_equal(texts.possible_sequences(supports, 3), every[texts.possible(supports, every)])
  found, rng = texts.in_region(supports, states, every), np.random.default_rng(0)
  chosen = np.append(np.flatnonzero(found)[-8:], rng.choice(np.flatnonzero(~found), 12))
  expected = [in_region_by_definition(problem, hmm, states, text) for text in every[chosen].tolist()]
  np.testing.assert_array_equal(found[chosen], expected)
  filled_up, remasked = texts.supports(padding.chain(problem.hmm, PADDED)), padding.remasked(every, num_tokens, PADDED)
  np.testing.assert_array_equal(texts.in_region(filled_up, states, remasked), found)
  assert any(expected)


def test_the_end_of_a_text_is_no_position():
  """A state that is sure behind the last token, where nothing is said, does not put a text into R."""
  supports = texts.Supports(np.array([[True, False]]), ~np.eye(2, dtype=bool), np.ones((3, 1, 2), bool))
  tokens = np.array([[0, 2, 2], [0, 1, 2]])
  assert texts.in_region(supports, np.array([1]), tokens).tolist() == [False, True]
