"""All texts of one length: probabilities, predictions and labels beside exact fractions."""

import numpy as np
import pytest
import rationals
from theory_assumptions_cases import memory_hmm
from theory_cases import exact_hmm

from hmm_jax.distributions.hmm import HMM
from hmm_jax.theory import enumeration
from hmm_jax.theory.problem import sparse_probs, StateProblem

LENGTH = 3


def test_every_sequence_up_to_a_length_is_there_once():
  """Those that are shorter end in [MASK]s."""
  expected = [[0, 2], [1, 2], [0, 0], [0, 1], [1, 0], [1, 1]]
  assert enumeration.all_sequences(2, 2, 2).tolist() == expected


def test_possible_sequences_are_those_that_a_chain_can_make():
  """Of a memory a value holds throughout: token 0 or 1 shows it, token 2 never comes first."""
  shown = memory_hmm(np.array([[[1, 0, 0], [0, 0, 1]], [[0, 1, 0], [0, 0, 1]]]))
  hmm = shown._replace(initial_probs=np.array([1.0, 0]))
  found = enumeration.possible_sequences(hmm, 2, 2).tolist()
  assert found == [[0, 3], [1, 3], [0, 0], [0, 2], [1, 1], [1, 2]]


def test_texts_are_those_with_probability_and_their_fractions():
  """H = 4, V = 3 with exact zeros, a silent state, three classes: probability, G_1 and label; likeliest first."""
  rng = np.random.default_rng(1)
  silent_probs, transition_matrix = rng.dirichlet(np.ones(4)), sparse_probs(rng, 4, 4)
  hmm = HMM(silent_probs @ transition_matrix, transition_matrix, sparse_probs(rng, 4, 3))
  problem = StateProblem(hmm, silent_probs, rng.standard_normal((3, 4)))
  found, silent, first = enumeration.possible_texts(problem, LENGTH), exact_hmm(problem), rationals.exact_hmm(hmm)
  for tokens, prob, features, label, _ in zip(*found):
    rows = rationals.likelihood_rows(first, [3, *tokens])
    weights = rationals.path_weights(*silent, (None, *tokens), 0)
    assert prob == pytest.approx(float(weights.sum()), rel=1e-13)
    np.testing.assert_allclose(features, np.float64(rationals.token_probs(first, rows, 0)), atol=1e-12)
    assert label == (problem.task_weights @ weights).argmax()
  assert (np.diff(found.probs) <= 0).all() and found.probs.sum() == pytest.approx(1, abs=1e-12)


def test_a_text_without_mass_on_the_support_of_mu_is_of_class_0():
  """0 >= 0 is no near tie: its gap is infinite."""
  hmm = HMM(np.array([0.5, 0.5]), np.array([[1, 0], [0.5, 0.5]]), np.eye(2))
  texts = enumeration.possible_texts(StateProblem(hmm, hmm.initial_probs, np.array([[-1.0, 0], [0, 0]])), 1)
  # Token 1 is of state 1, which only state 1 moves to, and token 0 may follow either.
  assert list(zip(texts.tokens[:, 0], texts.labels, texts.gaps)) == [(0, 1, 1.0), (1, 0, np.inf)]
