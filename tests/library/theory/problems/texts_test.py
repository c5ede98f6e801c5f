"""Sequences to check on, and problems filled up to one size: against enumeration and exact posteriors."""

import jax
import numpy as np
from oracles import log_space_posterior
import pytest
import rationals
from theory_cases import drawn, exact_hmm, FAMILIES, in_region_by_definition, LIMITS

from hmm_jax.theory.exact.problem import StateProblem
from hmm_jax.theory.problems import texts
from hmm_jax.theory.theorems import padding, theorems
from hmm_jax.theory.theorems.padding import PaddedSizes

LENGTH = 3
PADDED = PaddedSizes(num_states=8, num_tokens=7, memory_size=4, num_outputs=9)


def test_all_sequences():
  """Each of V + ... + V^T sequences once, with [MASK] after the end and nowhere else."""
  tokens = texts.all_sequences(3, 4)
  assert tokens.shape == (3 + 9 + 27 + 81, 4) and tokens.dtype == np.int32
  assert len(np.unique(tokens, axis=0)) == len(tokens) and set(tokens.flat) == {0, 1, 2, 3}
  is_mask = tokens == 3
  assert (np.diff(is_mask.astype(int), axis=1) >= 0).all() and not is_mask[:, 0].any()


@pytest.mark.parametrize(('theorem', 'family'), FAMILIES)
def test_possible_sequences_are_those_with_probability(theorem, family):
  """By supports alone, the very sequences of `all_sequences` that exact arithmetic finds possible, in its order."""
  problem = drawn(theorem, family)
  hmm = rationals.exact_hmm(problem.exact.hmm)
  every = texts.all_sequences(problem.hmm.num_tokens, 2)
  is_possible = [rationals.state_probs(hmm, rationals.likelihood_rows(hmm, x), 0, False).any() for x in every.tolist()]
  found = texts.possible_sequences(texts.supports(problem.hmm), 2)
  np.testing.assert_array_equal(found, every[is_possible])
  # With 0 of them nothing longer than one token is asked for, and with all of them everything.
  lengths = lambda most: (texts.possible_sequences(texts.supports(problem.hmm), 2, most) < hmm.num_tokens).sum(1)
  of_one = (found[:, 1] == problem.hmm.num_tokens).sum()
  assert lengths(0).tolist() == lengths(len(found) - of_one - 1).tolist() == [1] * of_one
  assert len(lengths(len(found) - of_one)) == len(found)


@pytest.mark.parametrize(('theorem', 'family'), [case for case in FAMILIES if case[0][0] != '3'])
def test_the_region_is_that_of_the_definition(theorem, family):
  """R (4.3) by supports is R by exact posteriors, of all sequences, impossible and short ones included."""
  inside = 0
  for seed in range(4) if (theorem, family) != ('C.6', 'unplanted') else range(10, 13):
    problem = drawn(theorem, family, seed)
    finding = theorems.finding(theorems.ON_EMISSIONS[theorem], problem, LIMITS)
    states, hmm = finding.witness['recoverable_states'], exact_hmm(problem)
    every, supports = texts.all_sequences(problem.hmm.num_tokens, LENGTH), texts.supports(problem.hmm)
    found, rng = texts.in_region(supports, states, every), np.random.default_rng(seed)
    chosen = np.append(np.flatnonzero(found)[-8:], rng.choice(np.flatnonzero(~found), 12))
    expected = [in_region_by_definition(problem, hmm, states, text) for text in every[chosen].tolist()]
    np.testing.assert_array_equal(found[chosen], expected)
    filled_up = texts.supports(padding.chain(problem.hmm, PADDED))
    remasked = padding.remasked(every, problem.hmm.num_tokens, PADDED)
    np.testing.assert_array_equal(texts.in_region(filled_up, states, remasked), found)
    inside += sum(expected)
  assert inside


def test_the_end_of_a_text_is_no_position():
  """A state that is sure behind the last token, where nothing is said, does not put a text into R."""
  supports = texts.Supports(
    start=np.array([[True, False]]),
    moves=np.array([[False, True], [True, False]]),
    emits=np.ones((3, 1, 2), bool),
  )
  tokens = np.array([[0, 2, 2], [0, 1, 2]])
  assert texts.in_region(supports, np.array([1]), tokens).tolist() == [False, True]


def test_sampled_texts_are_possible():
  """Of a distribution in float64, as int32, and filled up as it is."""
  problem = drawn('C.6', 'unplanted')
  filled_up = padding.chain(problem.hmm, PADDED)
  tokens = texts.sampled(filled_up, jax.random.key(0), 50, 3)
  assert tokens.dtype == np.int32 and tokens.max() < problem.hmm.num_tokens
  possible = texts.possible_sequences(texts.supports(problem.hmm), 3)
  assert {tuple(text) for text in tokens.tolist()} <= {tuple(text) for text in possible.tolist()}


def loglik(hmm, tokens):
  """log P[x] of full texts, by logarithms in numpy."""
  emission_matrix = np.asarray(hmm.joint_emission_matrix, np.float64)
  return log_space_posterior(hmm, emission_matrix.T[tokens]).marginal_loglik


@pytest.mark.parametrize(('theorem', 'family'), FAMILIES)
def test_a_filled_up_chain_says_the_same(theorem, family):
  """It is a valid distribution of the padded sizes, gives texts the same probability, and added tokens none."""
  problem = drawn(theorem, family)
  filled_up = padding.chain(problem.hmm, PADDED).validate()
  assert (filled_up.num_states, filled_up.num_tokens) == (PADDED.num_states, PADDED.num_tokens)
  tokens = texts.all_sequences(PADDED.num_tokens, 2)
  tokens = tokens[(tokens < PADDED.num_tokens).all(-1)]
  inside = (tokens < problem.hmm.num_tokens).all(-1)
  found = loglik(filled_up, tokens)
  np.testing.assert_allclose(found[inside], loglik(problem.hmm, tokens[inside]), atol=1e-12)
  assert (found[~inside] == -np.inf).all()
  if not isinstance(problem, StateProblem):
    assert filled_up.memory_probs.shape == (PADDED.memory_size,) * problem.hmm.num_cells


def test_rows_of_a_prompt_keep_their_joint_states():
  """u stands where it stood, by what each cell holds and the state, and is 0 elsewhere."""
  problem = drawn('C.6')
  hmm, rng = problem.hmm, np.random.default_rng(0)
  prompt = rng.random((2, hmm.joint_initial_probs.size))
  found = padding.prompt_of(hmm, prompt, PADDED).reshape(2, 4, 4, 8)
  np.testing.assert_array_equal(found[:, :3, :3, : hmm.num_states], prompt.reshape(2, 3, 3, hmm.num_states))
  assert np.count_nonzero(found) == prompt.size


def test_a_start_by_memory_is_filled_up():
  """Where P[H_1 | M] differs by memory, likelihoods are the same too."""
  problem = drawn('4.6')
  rng = np.random.default_rng(1)
  hmm = problem.hmm._replace(initial_probs=rng.dirichlet(np.ones(problem.hmm.num_states), problem.hmm.memory_size))
  tokens = texts.all_sequences(problem.hmm.num_tokens, 2)[problem.hmm.num_tokens :]
  np.testing.assert_allclose(loglik(padding.chain(hmm, PADDED), tokens), loglik(hmm, tokens), atol=1e-12)
