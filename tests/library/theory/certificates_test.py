"""Linear heads on all texts of a problem: rare tokens, ties, and proofs that are confirmed."""

import numpy as np
import pytest

from hmm_jax.distributions.hmm import HMM
from hmm_jax.theory import certificates
from hmm_jax.theory.problem import sparse_probs, StateProblem
from hmm_jax.tuning import separability

MARGIN = 1e-9


def of_two_states(seed):
  """H = 4 over two tokens."""
  rng = np.random.default_rng(seed)
  hmm = HMM(rng.dirichlet(np.ones(4)), sparse_probs(rng, 4, 4), rng.dirichlet(np.ones(2), 4))
  return StateProblem(hmm, hmm.initial_probs, np.array([rng.standard_normal(4), np.zeros(4)]))


def test_rare_tokens_are_no_obstacle():
  """A head that reads tokens of probability 1e-12 is found; with independent columns Theorem 3.3 promises one."""
  emission_matrix = np.array([[0.75, 0.25, 1e-12], [0.25, 0.75, 2e-12], [0.5, 0.5, 0]])
  hmm = HMM(np.ones(3) / 3, np.array([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.1, 0.2, 0.7]]), emission_matrix)
  decision = certificates.decide(StateProblem(hmm, hmm.initial_probs, np.array([[1.0, -1, 0], [0, 0, 0]])), 4, MARGIN)
  assert decision.outcome == 'separable'


def test_surely_right_excludes_ties_and_rounding():
  """Scores that are equal up to rounding put no label first."""
  features, labels = np.array([[0.5, 0.5], [0.5, 0.5], [-0.5, -0.5]]), np.array([0, 1, 1])
  for ahead, expected in ((1e-15, [False, False, False]), (1e-3, [True, False, True]), (-1e-3, [False, True, False])):
    head = np.array([[1 + ahead, 1], [1, 1]])
    assert separability.surely_right(features, labels, head).tolist() == expected


def test_a_proof_is_confirmed_only_with_its_own_labels():
  """Changing the label of one of its texts breaks the proof."""
  pairs = ((problem, certificates.decide(problem, 4, MARGIN)) for problem in map(of_two_states, range(8)))
  problem, decision = next(pair for pair in pairs if pair[1].proof)
  texts, (index, other) = decision.texts, decision.proof.pairs[0]
  assert certificates.is_exact(problem, texts.tokens, texts.labels, decision.proof)
  texts.labels[index] = other
  assert certificates.is_exact(problem, texts.tokens, texts.labels, decision.proof) is False


def test_texts_that_are_all_near_ties_have_a_constant_label():
  """Their probability is 1, and no text is left."""
  decision = certificates.decide(of_two_states(0), 2, 10.0)
  assert decision.outcome == 'constant' and decision.near_ties == pytest.approx(1) and not decision.texts.labels.size
