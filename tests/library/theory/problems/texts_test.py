"""Sequences to check on, and problems filled up to one size: against enumeration and exact posteriors."""

import numpy as np
from oracles import log_space_posterior
import pytest
import rationals
from theory_cases import drawn, exact_hmm, in_region_by_definition, LIMITS

from hmm_jax.theory.problems import texts
from hmm_jax.theory.theorems import padding, theorems
from hmm_jax.theory.theorems.padding import PaddedSizes

PADDED = PaddedSizes(num_states=8, num_tokens=7, memory_size=4, num_outputs=9)


def test_possible_sequences_are_those_with_probability():
  """By supports alone, the very sequences of `all_sequences` that exact arithmetic finds possible, in its order."""
  problem = drawn('C.6', 'unplanted', 2)
  hmm, supports = rationals.exact_hmm(problem.exact.hmm), texts.supports(problem.hmm)
  every = texts.all_sequences(hmm.num_tokens, 2)
  is_possible = [rationals.state_probs(hmm, rationals.likelihood_rows(hmm, x), 0, False).any() for x in every.tolist()]
  np.testing.assert_array_equal(texts.possible_sequences(supports, 2), every[is_possible])
  np.testing.assert_array_equal(texts.possible(supports, every), is_possible)
  assert 0 < sum(is_possible) < len(every)
  # With too few of them nothing longer than one token is asked for.
  assert (texts.possible_sequences(supports, 2, sum(is_possible) - hmm.num_tokens - 1)[:, 1] == hmm.num_tokens).all()


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


def test_the_end_of_a_text_is_no_position():
  """A state that is sure behind the last token, where nothing is said, does not put a text into R."""
  supports = texts.Supports(np.array([[True, False]]), ~np.eye(2, dtype=bool), np.ones((3, 1, 2), bool))
  tokens = np.array([[0, 2, 2], [0, 1, 2]])
  assert texts.in_region(supports, np.array([1]), tokens).tolist() == [False, True]


def loglik(hmm, tokens):
  """log P[x] of full texts, by logarithms in numpy."""
  emission_matrix = np.asarray(hmm.joint_emission_matrix, np.float64)
  return log_space_posterior(hmm, emission_matrix.T[tokens]).marginal_loglik


@pytest.mark.parametrize(('theorem', 'by_memory'), [('3.6', False), ('4.6', True), ('C.6', False)])
def test_a_filled_up_chain_says_the_same(theorem, by_memory):
  """It gives texts the same probability, and added tokens none, also where P[H_1 | M] differs by memory."""
  hmm = drawn(theorem).hmm
  filled_up = padding.chain(hmm, PADDED).validate()
  if by_memory:
    starts = np.random.default_rng(1).dirichlet(np.ones(hmm.num_states), hmm.memory_probs.shape)
    hmm = hmm._replace(initial_probs=starts)
    filled_up = padding.chain(hmm, PADDED).validate()
  assert filled_up.joint_emission_matrix.shape == (8 * 4 ** getattr(hmm, 'num_cells', 0), 7)
  tokens = np.indices((7, 7)).reshape(2, -1).T
  inside = (tokens < hmm.num_tokens).all(-1)
  found = loglik(filled_up, tokens)
  np.testing.assert_allclose(found[inside], loglik(hmm, tokens[inside]), atol=1e-12)
  assert (found[~inside] == -np.inf).all()
