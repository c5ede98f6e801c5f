"""What is known of linear heads on all texts of a problem, beside sorting: with two tokens a head is a threshold."""

import functools

import numpy as np
import pytest
import rationals

from hmm_jax.hmm import HMM
from hmm_jax.theory.exact.problem import sparse_probs, StateProblem
from hmm_jax.theory.limits import certificates, separability
from hmm_jax.theory.problems import counterexamples, enumeration

TOLERANCE, LENGTH = 1e-9, 4


def _decided(problem, length=LENGTH):
  texts = enumeration.possible_texts(problem, length)
  texts = texts.where(texts.gaps > TOLERANCE)
  return texts, certificates.decide(problem, texts, TOLERANCE)


@functools.cache
def _random(seed):
  """H = 4 over two tokens, decided."""
  rng = np.random.default_rng(seed)
  hmm = HMM(rng.dirichlet(np.ones(4)), sparse_probs(rng, 4, 4), rng.dirichlet(np.ones(2), 4))
  task_weights = np.array([rng.standard_normal(4), np.zeros(4)])
  problem = StateProblem(hmm, hmm.initial_probs, task_weights)
  return problem, *_decided(problem)


def _least_errors(texts):
  """The least probability of a wrong label over thresholds on G_1 of token 0, by trying every one, either way round."""
  values = texts.features[:, 0]
  errors = []
  for threshold in [-1, *(np.unique(values)), 2]:
    above = values > threshold
    wrong = texts.probs[above == (texts.labels == 0)].sum()
    errors += [wrong, texts.probs.sum() - wrong]
  return min(errors)


def _is_separable(texts):
  ordered = texts.labels[np.argsort(texts.features[:, 0])]
  return np.count_nonzero(np.diff(ordered)) <= 1


@pytest.mark.parametrize('seed', range(12))
def test_outcomes_are_those_of_sorting(seed):
  """Constant, separable or certified as the order of G_1 says, and no head errs less than a proof shows."""
  _, texts, decision = _random(seed)
  if len(set(texts.labels.tolist())) < 2:
    assert decision.outcome == 'constant'
  else:
    assert decision.outcome == ('separable' if _is_separable(texts) else 'certified')
  assert decision.least_error <= _least_errors(texts) + 1e-12
  assert (decision.least_error > 0) == (decision.outcome == 'certified') == (decision.proof is not None)
  right = texts.probs[separability.surely_right(texts.features, texts.labels, decision.head)].sum()
  assert right <= 1 - _least_errors(texts) + 1e-12
  assert decision.outcome == 'certified' or right == pytest.approx(texts.probs.sum())


def test_the_random_problems_have_every_outcome():
  """What the test above compares is not all of one kind."""
  assert {_random(seed)[2].outcome for seed in range(12)} >= {'separable', 'certified'}


def test_the_first_counterexample_is_certified_with_the_error_of_its_page():
  """On texts of length 2 each proof has a text as likely as 5/27, and docs/theory.md says at least 7/27 is wrong."""
  example = counterexamples.head_fails_prompt_succeeds()
  problem = StateProblem(example.hmm, example.silent_probs, example.task_weights)
  texts, decision = _decided(problem, 2)
  assert decision.outcome == 'certified'
  assert 5 / 27 - 1e-12 <= decision.least_error <= 7 / 27 + 1e-12
  assert _least_errors(texts) == pytest.approx(7 / 27)


def test_independent_columns_have_a_linear_head():
  """Assumption 3.1 with 3.2: Theorem 3.3 has a head, and one is found that is right by more than rounding."""
  rng = np.random.default_rng(0)
  hmm = HMM(np.ones(3) / 3, rng.dirichlet(np.ones(3), 3), rng.dirichlet(np.ones(4), 3))
  problem = StateProblem(hmm, hmm.initial_probs, np.array([[1, -1, 0], [0, 0, 0.0]]))
  texts, decision = _decided(problem)
  assert (
    decision.outcome == 'separable' and separability.surely_right(texts.features, texts.labels, decision.head).all()
  )
  scores = texts.features @ decision.head
  np.testing.assert_array_equal(scores.argmax(-1), texts.labels)


def test_rare_tokens_are_no_obstacle():
  """A head that reads tokens of probability 1e-12 is found, and proofs with such tokens are."""
  rng = np.random.default_rng(1)
  emission_matrix = np.concatenate([rng.dirichlet(np.ones(2), 3), 1e-12 * rng.random((3, 1))], axis=1)
  hmm = HMM(rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(3), 3), emission_matrix)
  problem = StateProblem(hmm, hmm.initial_probs, np.array([[1, -1, 0], [0, 0, 0.0]]))
  texts, decision = _decided(problem)
  assert len(set(texts.labels.tolist())) == 2 and decision.outcome == 'separable'
  assert separability.surely_right(texts.features, texts.labels, decision.head).all()


def test_surely_right_is_no_tie_and_no_rounding():
  """Scores that are equal, or equal but for rounding, put no label first."""
  texts = enumeration.Texts(
    np.zeros((3, 1), np.int32), np.ones(3) / 3, np.full((3, 2), 0.5), np.array([0, 1, 0]), np.ones(3)
  )
  heads = {1e-15: [False, False, False], 1e-3: [True, False, True], -1e-3: [False, True, False]}
  for ahead, expected in heads.items():
    head = np.array([[1 + ahead, 1], [1, 1]])
    assert separability.surely_right(texts.features, texts.labels, head).tolist() == expected


def test_a_proof_is_confirmed_with_its_own_labels_alone():
  """Fractions confirm a certified proof, in which every weight is positive; another label of a text breaks it."""
  problem, texts, decision = next(_random(seed) for seed in range(12) if _random(seed)[2].outcome == 'certified')
  proof = decision.proof
  assert certificates.is_exact(problem, texts.tokens, texts.labels, proof)
  flipped = texts.labels.copy()
  flipped[proof.pairs[0, 0]] = 1 - flipped[proof.pairs[0, 0]]
  assert certificates.is_exact(problem, texts.tokens, flipped, proof) is False
  exact = rationals.exact_hmm(problem.hmm)
  rows = [rationals.likelihood_rows(exact, [2, *tokens]) for tokens in texts.tokens[proof.pairs[:, 0]].tolist()]
  features = [rationals.token_probs(exact, row, 0).tolist() for row in rows]
  pairs = np.column_stack([np.arange(len(rows)), proof.pairs[:, 1]])
  assert separability.exact_certificate(features, texts.labels[proof.pairs[:, 0]], pairs, 2)


def test_ties_in_a_proof_are_of_the_lower_class():
  """A text whose scores are both 0 has label 0; as label 1 it is no part of a proof."""
  hmm = HMM(np.array([0.5, 0.5]), np.array([[1, 0], [0.5, 0.5]]), np.eye(2))
  problem = StateProblem(hmm, hmm.initial_probs, np.array([[-1.0, 0], [0, 0]]))
  tokens, pairs = np.array([[1], [1]]), np.array([[0, 1], [1, 0]])
  found = separability.Separation(False, 0.0, np.zeros((2, 2)), pairs, np.ones(2) / 2, 0.0)
  assert certificates.is_exact(problem, tokens, np.array([0, 1]), found) is False
  # Alone it proves nothing either: a head may put class 0 first.
  one = found._replace(pairs=pairs[:1])
  assert certificates.is_exact(problem, tokens, np.array([0, 1]), one) is False
