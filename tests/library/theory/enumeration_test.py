"""All texts of one length: probabilities, predictions and labels beside exact fractions."""

import numpy as np
import rationals
from theory_cases import drawn, exact_hmm

from hmm_jax.distributions.hmm import HMM
from hmm_jax.theory import enumeration
from hmm_jax.theory.problem import StateProblem


def test_every_sequence_up_to_a_length_is_there_once():
  """Those that are shorter end in [MASK]s."""
  expected = [[0, 2], [1, 2], [0, 0], [0, 1], [1, 0], [1, 1]]
  assert enumeration.all_sequences(2, 2, 2).tolist() == expected


def test_texts_are_those_with_probability_and_their_fractions():
  """A silent state and three classes: probability, G_1 and label; likeliest first."""
  problem = drawn('3.6', 'unplanted')
  found, silent, first = enumeration.possible_texts(problem, 2), exact_hmm(problem), rationals.exact_hmm(problem.hmm)
  for tokens, prob, features, label, _ in zip(*found):
    rows = rationals.likelihood_rows(first, [first.num_tokens, *tokens])
    weights = rationals.state_weights(silent, rows, 0)
    np.testing.assert_allclose(prob, float(weights.sum()), rtol=1e-13)
    np.testing.assert_allclose(features, np.float64(rationals.token_probs(first, rows, 0)), atol=1e-12)
    assert label == (problem.task_weights @ weights).argmax()
  assert (np.diff(found.probs) <= 0).all()
  np.testing.assert_allclose(found.probs.sum(), 1)


def test_a_text_without_mass_on_the_support_of_mu_is_of_class_0():
  """0 >= 0 is no near tie: its gap is infinite."""
  hmm = HMM(np.array([0.5, 0.5]), np.array([[1, 0], [0.5, 0.5]]), np.eye(2))
  texts = enumeration.possible_texts(StateProblem(hmm, hmm.initial_probs, np.array([[-1.0, 0], [0, 0]])), 1)
  # Token 1 is of state 1, which only state 1 moves to, and token 0 may follow either.
  assert list(zip(texts.tokens[:, 0], texts.labels, texts.gaps)) == [(0, 1, 1.0), (1, 0, np.inf)]
