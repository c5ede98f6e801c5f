"""Facts about proofs that no prompt with a linear head is right: checked in fractions."""

from fractions import Fraction
import itertools

import numpy as np
import pytest
import rationals

from hmm_jax.hmm import HMM
from hmm_jax.theory.limits import no_prompt as lib
from hmm_jax.theory.limits.constant_prompt import likelihoods
from tests.theory_cases import drawn

# Seeds of `problem`, by what is found.
CERTIFIED = (7, 9)
OPEN_BY_SEARCH = (0, 1, 2, 4, 6, 17)
OPEN_BY_TASK = (3, 5)


def problem(seed):
  """Dense rows over two or three tokens, a task that parts the middle scores, and all texts of length 5."""
  rng = np.random.default_rng(seed)
  num_states, num_tokens = int(rng.integers(3, 7)), 2 + seed % 2
  rows = lambda *shape: (counts := rng.integers(1, 9, shape).astype(float)) / counts.sum(1, keepdims=True)
  hmm = HMM(rows(1, num_states)[0], rows(num_states, num_states), rows(num_states, num_tokens))
  texts = np.array(list(itertools.product(range(num_tokens), repeat=5)))
  task_weights = np.vstack([rng.standard_normal(num_states), np.zeros(num_states)])
  weights = hmm.initial_probs * likelihoods(hmm, texts)
  scores = np.sort(weights @ task_weights[0] / weights.sum(1))
  task_weights[0] -= scores[len(scores) // 2 - 1 : len(scores) // 2 + 1].mean()
  return hmm, task_weights, texts


def labels_of(hmm, task_weights, texts):
  """In float64; the texts of these problems are no near ties."""
  return (likelihoods(hmm, texts) @ (task_weights * hmm.initial_probs).T).argmax(1)


def exact_likelihoods(hmm, text):
  """lambda(x), in proportion, as P[H_1 | x] from a uniform start, by other code."""
  uniform = hmm._replace(initial_probs=np.full(hmm.num_states, Fraction(1, hmm.num_states), object))
  return rationals.state_probs(uniform, rationals.likelihood_rows(hmm, [hmm.num_tokens, *text]), 0, leave_out=True)


@pytest.mark.parametrize('seed', CERTIFIED)
def test_a_proof_covers_all_sign_patterns_and_each_of_its_parts_holds_in_fractions(seed):
  hmm, task_weights, texts = problem(seed)
  found = lib.no_prompt(hmm, task_weights, hmm.initial_probs, texts, max_states=8)
  assert found.outcome == 'certified' and found.classes == (0, 1)
  exact = rationals.exact_hmm(hmm)
  v = rationals.exact(task_weights) * exact.initial_probs
  for refutation in found.refutations:
    futures = [exact_likelihoods(exact, texts[number].tolist()) for number in refutation.inputs]
    labels = [int((v @ future).argmax()) for future in futures]
    scaled = [future / max(future) for future in futures]
    sums = sum(m * (1 - 2 * label) * row for m, label, row in zip(refutation.weights, labels, scaled, strict=True))
    assert all(m > 0 for m in refutation.weights) and not (refutation.signs * sums > 0).any()
  patterns = {tuple(refutation.signs) for refutation in found.refutations}
  realised = np.sign(np.random.default_rng(0).standard_normal((3000, hmm.num_tokens)) @ hmm.emission_matrix.T)
  assert {tuple(signs) for signs in realised.astype(int)} <= patterns and len(patterns) < 2**hmm.num_states


@pytest.mark.parametrize('seed', [*OPEN_BY_SEARCH, *OPEN_BY_TASK])
def test_what_is_open_has_a_law_and_a_head_that_are_right(seed):
  """By the signs of the task or, where no head has these, by those of other coefficients."""
  hmm, task_weights, texts = problem(seed)
  found = lib.no_prompt(hmm, task_weights, hmm.initial_probs, texts, max_states=8)
  assert found.outcome == 'open' and (found.law >= 0).all() and found.law.sum() == pytest.approx(1)
  scores = likelihoods(hmm, texts) * found.law @ hmm.emission_matrix @ found.head
  np.testing.assert_array_equal(scores < 0, labels_of(hmm, task_weights, texts))


@pytest.mark.parametrize('seed', range(3))
def test_where_a_prompt_is_right_there_is_no_proof(seed):
  """Problems of Theorem 3.6 with a task of three classes, two of which label texts: a law and a head are right."""
  planted, texts = drawn('3.6', 'planted', seed), np.array(list(itertools.product(range(4), repeat=3)))
  weighed = planted.task_weights.any(0)
  futures, task_weights = likelihoods(planted.hmm, texts), np.zeros((3, 7))
  shares = futures[:, weighed] * planted.silent_probs[weighed]
  task_weights[:, weighed] = np.random.default_rng(1).standard_normal((3, weighed.sum()))
  task_weights[:, weighed] -= (shares / shares.sum(1, keepdims=True) @ task_weights[:, weighed].T).mean(0)[:, None]
  labels = (futures @ (task_weights * planted.silent_probs).T).argmax(1)
  found = lib.no_prompt(planted.hmm, task_weights, planted.silent_probs, texts, max_states=8)
  assert found.outcome == 'open' and found.classes == (0, 1) == tuple(np.unique(labels))
  np.testing.assert_array_equal(futures * found.law @ planted.hmm.emission_matrix @ found.head < 0, labels == 1)


def test_a_class_that_no_input_has_changes_nothing():
  """Scores of the two others are compared with each other and not with the last class."""
  hmm, task_weights, texts = problem(OPEN_BY_TASK[0])
  three = np.vstack([task_weights, np.full(hmm.num_states, -10.0)])
  found = lib.no_prompt(hmm, three, hmm.initial_probs, texts, max_states=8)
  scores = likelihoods(hmm, texts) * found.law @ hmm.emission_matrix @ found.head
  np.testing.assert_array_equal(scores < 0, labels_of(hmm, task_weights, texts))


def test_weights_that_prove_nothing_and_labels_that_are_not_those_are_undecided(monkeypatch):
  """What a program returns is checked: equal weights of all inputs refute no pattern, and a proof about the labels of
  another task is none."""
  hmm, task_weights, texts = problem(CERTIFIED[1])
  found = lambda: lib.no_prompt(hmm, task_weights, hmm.initial_probs, texts, max_states=8)
  with monkeypatch.context() as patched:
    patched.setattr(lib, 'exact', lambda array: -rationals.exact(array))
    assert found().outcome == 'undecided'
  monkeypatch.setattr(lib, '_game', lambda inputs, signs: (-1.0, np.ones(len(signs)), np.ones(len(inputs.targets))))
  assert found().outcome == 'undecided'


def test_a_proof_for_two_of_three_classes_is_one():
  """A third class that labels a few inputs leaves the proof for the other two."""
  hmm, task_weights, texts = problem(CERTIFIED[0])
  weights = hmm.initial_probs * likelihoods(hmm, texts)
  posteriors = weights / weights.sum(1, keepdims=True)
  third = 5 * np.eye(6)[0]
  three = np.vstack(
    [third - np.quantile(posteriors @ third - np.maximum(posteriors @ task_weights[0], 0), 0.9), task_weights]
  )
  labels = labels_of(hmm, three, texts)
  found = lib.no_prompt(hmm, three, hmm.initial_probs, texts, max_states=8)
  assert found.outcome == 'certified' and found.classes == (1, 2) and 0 < (labels == 0).sum() < 30
  assert set(labels[np.concatenate([refutation.inputs for refutation in found.refutations])]) == {1, 2}


def test_more_states_than_may_be_looked_at_are_undecided():
  hmm, task_weights, texts = problem(CERTIFIED[0])
  found = lib.no_prompt(hmm, task_weights, hmm.initial_probs, texts, max_states=5)
  assert found.outcome == 'undecided'


def test_inputs_that_a_prompt_can_make_impossible_prove_nothing():
  """State 0 keeps to itself and never emits token 2. A prompt that says 0 leaves texts with token 2 impossible, and a
  bias labels those alike, which no coefficients of lambda describe: none of them is of a proof."""
  hmm, task_weights, texts = problem(CERTIFIED[0])
  moves, emissions = hmm.transition_matrix.copy(), hmm.emission_matrix.copy()
  moves[0], emissions[0] = np.eye(6)[0], np.array([2, 7, 0]) / 9
  changed, with_token = hmm._replace(transition_matrix=moves, emission_matrix=emissions), texts[(texts == 2).any(1)]
  assert set(labels_of(changed, task_weights, with_token)) == {0, 1}
  assert (likelihoods(changed, with_token)[:, 0] == 0).all()
  found = lib.no_prompt(changed, task_weights, hmm.initial_probs, with_token, max_states=8)
  assert found.outcome == 'undecided'


def test_one_label_is_open():
  hmm, task_weights, texts = problem(0)
  found = lib.no_prompt(hmm, task_weights, hmm.initial_probs, texts[:1], max_states=8)
  assert found.outcome == 'open'


def test_likelihoods_are_those_of_every_continuation():
  """Against fractions, with a [MASK] inside, and 0 where no state can produce the text."""
  hmm, *_ = problem(CERTIFIED[1])
  texts = np.array([[0, 1, 2], [1, 3, 0], [3, 3, 1]])
  found, exact = likelihoods(hmm, texts), rationals.exact_hmm(hmm)
  wanted = np.array([exact_likelihoods(exact, text) for text in texts.tolist()]).astype(float)
  np.testing.assert_allclose(found, wanted / wanted.max(1, keepdims=True), rtol=1e-13)
  silent = hmm._replace(emission_matrix=np.array([[1.0, 0, 0]] * 4))
  assert not likelihoods(silent, np.array([[0, 1]])).any()
