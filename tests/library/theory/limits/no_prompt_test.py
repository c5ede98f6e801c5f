"""Facts about proofs that no prompt with a linear head is right: checked in fractions."""

from fractions import Fraction

import numpy as np
import pytest
import rationals
from theory_cases import dense

from hmm_jax.theory.limits import no_prompt as lib
from hmm_jax.theory.limits.constant_prompt import likelihoods
from hmm_jax.theory.problems.enumeration import all_texts

# Seeds of `problem`, by what is found.
CERTIFIED = 7
OPEN_BY_SEARCH, OPEN_BY_TASK = 0, 3


def problem(seed):
  """Dense rows over two or three tokens, a task that parts the middle scores, and all texts of length 5."""
  rng, num_tokens = np.random.default_rng(seed), 2 + seed % 2
  hmm, _ = dense(rng, rng.integers(3, 7), num_tokens)
  texts, weights = all_texts(num_tokens, 5), rng.standard_normal(hmm.num_states)
  joint = hmm.initial_probs * likelihoods(hmm, texts)
  # Between two of the 32 or 243 scores.
  middle = np.quantile(joint @ weights / joint.sum(1), 0.498)
  return hmm, np.vstack([weights - middle, np.zeros(hmm.num_states)]), texts


def decided(hmm, task_weights, texts, max_states=8):
  return lib.no_prompt(hmm, task_weights, hmm.initial_probs, texts, max_states)


def labels_of(hmm, task_weights, texts):
  """In float64; the texts of these problems are no near ties."""
  return (likelihoods(hmm, texts) @ (task_weights * hmm.initial_probs).T).argmax(1)


def exact_likelihoods(hmm, text):
  """lambda(x) of largest entry 1, as P[H_1 | x] from a uniform start, by other code."""
  uniform = hmm._replace(initial_probs=np.full(hmm.num_states, Fraction(1)))
  rows = rationals.likelihood_rows(hmm, [hmm.num_tokens, *text])
  probs = rationals.state_probs(uniform, rows, 0, leave_out=True)
  return probs / max(probs)


def test_a_proof_covers_all_sign_patterns_and_each_of_its_parts_holds_in_fractions():
  """Farkas weights for every pattern that a random head has, and for not all of 2^H. A class
  without inputs changes nothing."""
  hmm, task_weights, texts = problem(CERTIFIED)
  found = decided(hmm, np.vstack([np.full(hmm.num_states, -10.0), task_weights]), texts)
  assert found.outcome == 'certified' and found.classes == (1, 2)
  exact = rationals.exact_hmm(hmm)
  v = (rationals.exact(task_weights) * exact.initial_probs)[0]
  for refutation in found.refutations:
    futures = np.array([exact_likelihoods(exact, texts[number].tolist()) for number in refutation.inputs])
    targets = np.where(futures @ v >= 0, 1, -1)
    assert min(refutation.weights) > 0 and not (refutation.signs * (refutation.weights * targets @ futures) > 0).any()
  patterns = {tuple(refutation.signs) for refutation in found.refutations}
  realised = np.sign(np.random.default_rng(0).standard_normal((3000, hmm.num_tokens)) @ hmm.emission_matrix.T)
  assert {tuple(signs) for signs in realised.astype(int)} <= patterns and len(patterns) < 2**hmm.num_states


@pytest.mark.parametrize('seed', [OPEN_BY_SEARCH, OPEN_BY_TASK])
def test_what_is_open_has_a_law_and_a_head_that_are_right(seed):
  """By the signs of the task or, where no head has these, by those of other coefficients."""
  hmm, task_weights, texts = problem(seed)
  found = decided(hmm, task_weights, texts)
  assert (found.outcome, found.classes) == ('open', (0, 1)) and (found.law >= 0).all()
  scores = likelihoods(hmm, texts) * found.law @ hmm.emission_matrix @ found.head
  np.testing.assert_array_equal(scores < 0, labels_of(hmm, task_weights, texts))


def test_weights_that_prove_nothing_and_labels_that_are_not_those_are_undecided(monkeypatch):
  """What a program returns is checked: equal weights of all inputs refute no pattern, and a proof about the labels of
  another task is none."""
  hmm, task_weights, texts = problem(CERTIFIED)
  with monkeypatch.context() as patched:
    patched.setattr(lib, 'exact', lambda array: -rationals.exact(array))
    assert decided(hmm, task_weights, texts).outcome == 'undecided'
  solved = lib.separability.largest_margin
  equal = lambda rows, bounds, **equations: (solved(rows, bounds, **equations)[0], np.ones(rows.shape[0]))
  monkeypatch.setattr(lib.separability, 'largest_margin', equal)
  assert decided(hmm, task_weights, texts).outcome == 'undecided'


def test_more_states_than_may_be_looked_at_are_undecided_and_one_label_is_open():
  hmm, task_weights, texts = problem(CERTIFIED)
  assert decided(hmm, task_weights, texts, max_states=5).outcome == 'undecided'
  assert decided(hmm, task_weights, texts[:1]).outcome == 'open'


def test_inputs_that_a_prompt_can_make_impossible_prove_nothing():
  """State 0 keeps to itself and never emits token 2. A prompt that says 0 leaves texts with token 2 impossible, and a
  bias labels those alike, which no coefficients of lambda describe: none of them is of a proof."""
  hmm, task_weights, texts = problem(CERTIFIED)
  moves, emissions, with_token = hmm.transition_matrix.copy(), hmm.emission_matrix.copy(), texts[(texts == 2).any(1)]
  moves[0], emissions[0] = np.eye(6)[0], np.array([2, 7, 0]) / 9
  changed = hmm._replace(transition_matrix=moves, emission_matrix=emissions)
  assert set(labels_of(changed, task_weights, with_token)) == {0, 1}
  assert decided(changed, task_weights, with_token).outcome == 'undecided'
