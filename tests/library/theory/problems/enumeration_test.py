"""All texts of one length: probabilities, predictions and labels beside the batched passes and exact fractions."""

import numpy as np
import pytest
import rationals
from theory_cases import first_predictions

from hmm_jax.hmm import HMM
from hmm_jax.theory.exact.problem import sparse_probs, StateProblem
from hmm_jax.theory.problems import counterexamples, enumeration

LENGTH = 3


def _problem(seed: int) -> StateProblem:
  """H = 4 over V = 3 with exact zeros, a silent state and three classes."""
  rng = np.random.default_rng(seed)
  silent_probs, transition_matrix = rng.dirichlet(np.ones(4)), sparse_probs(rng, 4, 4)
  hmm = HMM(silent_probs @ transition_matrix, transition_matrix, sparse_probs(rng, 4, 3))
  return StateProblem(hmm, silent_probs, rng.standard_normal((3, 4)))


@pytest.mark.parametrize('seed', range(3))
def test_texts_are_those_of_the_batched_passes(seed):
  """The same possible texts, G_1 and labels as `scoring.predict`, which shares no line with them."""
  problem = _problem(seed)
  texts, every = enumeration.possible_texts(problem, LENGTH), enumeration.all_texts(3, LENGTH)
  features, scores, possible = first_predictions(problem, every)
  numbers = texts.tokens @ 3 ** np.arange(LENGTH)[::-1]
  np.testing.assert_array_equal(every[numbers], texts.tokens)
  assert sorted(numbers) == np.flatnonzero(possible).tolist()
  np.testing.assert_allclose(texts.features, features[numbers], atol=1e-12)
  clear = texts.gaps > 1e-9
  np.testing.assert_array_equal(texts.labels[clear], scores[numbers][clear].argmax(-1))


@pytest.mark.parametrize('seed', range(3))
def test_texts_come_likeliest_first_with_their_exact_probability(seed):
  """P[x] is the sum over paths in fractions, and all of them sum to 1."""
  problem = _problem(seed)
  texts = enumeration.possible_texts(problem, LENGTH)
  assert (np.diff(texts.probs) <= 0).all() and texts.probs.sum() == pytest.approx(1, abs=1e-12)
  exact = rationals.exact_hmm(problem.hmm)
  start = rationals.exact(problem.silent_probs)
  for tokens, prob in zip(texts.tokens[:10].tolist(), texts.probs):
    weights = start / start.sum()
    for token in tokens:
      weights = (weights @ exact.transition_matrix) * exact.emission_matrix[:, token]
    assert prob == pytest.approx(float(weights.sum()), rel=1e-13)


def test_a_text_without_mass_on_what_mu_weighs_is_of_class_0():
  """0 >= 0 is no near tie: its gap is infinite."""
  transition_matrix = np.array([[1, 0], [0.5, 0.5]])
  hmm = HMM(np.array([0.5, 0.5]), transition_matrix, np.array([[1.0, 0], [0, 1]]))
  problem = StateProblem(hmm, hmm.initial_probs, np.array([[-1.0, 0], [0, 0]]))
  texts = enumeration.possible_texts(problem, 1)
  labels = {int(tokens[0]): (int(label), gap) for tokens, label, gap in zip(texts.tokens, texts.labels, texts.gaps)}
  # Token 1 is of state 1, which only state 1 moves to, and token 0 may follow either.
  assert labels == {0: (1, 1.0), 1: (0, np.inf)}


def test_predictions_after_a_prompt_are_those_of_the_page():
  """G_2 of the first counterexample after its prompt, irony alone: "good" has 5/12 before good and 1/6 before bad."""
  hmm = counterexamples.head_fails_prompt_succeeds().hmm
  after_irony = (np.array([0, 0, 1]) * hmm.initial_probs) @ hmm.transition_matrix
  np.testing.assert_allclose(enumeration.first_predictions(hmm, after_irony, 1)[:, 0], [5 / 12, 1 / 6])
