"""Facts about the two counterexamples.

Posteriors and G are exact: by `hmm_jax.theory.exact.rationals`, and by sums over hidden paths that are written here.
"""

from fractions import Fraction
import itertools

from conftest import dirichlet_hmm
import numpy as np
import pytest
import rationals
from theory_counterexamples_cases import (
  attention,
  CELL,
  masked_probs,
  MAX_NODES,
  MEMORY,
  memory_label,
  nouns_for_sure,
  predicted,
  prompted,
  rows_of,
  small,
  state_construction,
  state_label,
  STATES,
  texts_of,
  THRESHOLDS,
)

from hmm_jax import theory
from hmm_jax.hmm import HMM
from hmm_jax.memory_hmm import MemoryHMM

pytestmark = pytest.mark.usefixtures('without_optimisation')


LONGEST = 6


def test_the_float_hmms_are_the_fractions_and_valid():
  """`hmm` and `exact_hmm` are one distribution, and the first law is P[H_0], stationary."""
  STATES.hmm.validate()
  MEMORY.hmm.validate()
  for floats, fractions in zip(STATES.hmm, STATES.exact_hmm):
    np.testing.assert_array_equal(small(floats), fractions)
  exact, hmm = MEMORY.exact_hmm, MEMORY.hmm
  np.testing.assert_array_equal(small(np.multiply.outer(hmm.memory_probs, hmm.initial_probs)).reshape(-1), exact[0])
  np.testing.assert_array_equal(small(np.kron(np.eye(2), hmm.transition_matrix)), exact[1])
  np.testing.assert_array_equal(small(hmm.emission_matrix).reshape(6, 4), exact[2])
  for exact in (STATES.exact_hmm, MEMORY.exact_hmm):
    np.testing.assert_array_equal(exact.initial_probs @ exact.transition_matrix, exact.initial_probs)
  np.testing.assert_array_equal(small(STATES.silent_probs), STATES.exact_hmm.initial_probs)


def test_what_holds_of_the_first_example():
  """3.1 fails, so that Theorem 3.3 has no head; 3.2 and 3.5 hold, with H* = {praise, complaint} and B = {irony}."""
  arguments = STATES.hmm, STATES.task_weights
  assert theory.regularity(STATES.hmm, THRESHOLDS).holds
  finding = theory.relaxed_non_degeneracy(*arguments, THRESHOLDS, MAX_NODES)
  assert finding.holds
  assert [STATES.states[h] for h in finding.witness['essential_states']] == ['praise', 'complaint']
  assert [STATES.states[h] for h in finding.witness['prompt_states']] == ['irony']
  with pytest.raises(theory.AssumptionError, match='Assumption 3.1 fails'):
    theory.theorem_3_3(*arguments, STATES.silent_probs, THRESHOLDS)


@pytest.mark.parametrize('example', [STATES, MEMORY], ids=['states', 'memory'])
def test_the_certificate_proves_that_no_linear_head_is_right(example):
  """Its labels are right, it mixes G_1 of both classes to the same, and the linear program agrees."""
  texts, labels, weights = example.certificate
  label = state_label if example is STATES else memory_label
  assert [label(text) for text in texts] == list(labels)
  features = np.array([predicted(example.exact_hmm, text) for text in texts])
  mixtures = [sum(w * g for w, g, c in zip(weights, features, labels) if c == one) for one in (0, 1)]
  np.testing.assert_array_equal(mixtures[0], mixtures[1])
  assert [sum(w for w, c in zip(weights, labels) if c == one) for one in (0, 1)] == [Fraction(1, 2)] * 2
  pairs = [(index, 1 - label) for index, label in enumerate(labels)]
  assert theory.exact_certificate(features, labels, pairs, 2) == list(weights)
  assert not theory.linear_separation(features.astype(float), labels, 2, 1e-9).separable


def test_prompt_and_head_of_theorem_3_6_are_right():
  """On all texts up to length 6 in fractions, where no label is a tie."""
  np.testing.assert_array_equal(small(state_construction()['prompt']), [[0, 0, 1]])
  head = small(state_construction()['head'].weights)
  np.testing.assert_array_equal(head, [[4, 0], [-2, 0]])
  texts = list(texts_of(STATES.exact_hmm, LONGEST))
  labels = [state_label(text) for text in texts]
  scores = [prompted(state_construction(), text) @ head for text in texts]
  assert [int(score[1] > score[0]) for score in scores] == labels


def test_no_small_change_of_the_first_example_repairs_it():
  """Every probability moved by up to 2%: labels as before, no linear head still, and Theorem 3.6 still right."""
  rng = np.random.default_rng(0)
  texts = list(itertools.product(range(2), repeat=2))
  labels = [state_label(text) for text in texts]
  for _ in range(20):
    moved = [rows * rng.uniform(0.98, 1.02, rows.shape) for rows in (STATES.silent_probs, *STATES.hmm[1:])]
    silent_probs, transition_matrix, emission_matrix = (rows / rows.sum(-1, keepdims=True) for rows in moved)
    hmm = HMM(silent_probs @ transition_matrix, transition_matrix, emission_matrix)
    exact = HMM(*map(rationals.exact, hmm))
    silent = exact._replace(initial_probs=rationals.exact(silent_probs))
    scores = [masked_probs(silent, text, 0)[:2] for text in texts]
    assert [int(score[1] > score[0]) for score in scores] == labels
    features = np.array([predicted(exact, text) for text in texts], float)
    assert not theory.linear_separation(features, labels, 2, 1e-9).separable
    construction = theory.theorem_3_6(hmm, STATES.task_weights, silent_probs, THRESHOLDS, MAX_NODES)
    prompt, head = (rationals.exact(part) for part in (construction['prompt'], construction['head'].weights))
    probs = [rationals.token_probs(exact, [*prompt, *rows_of(exact, text)], 1) for text in texts]
    assert [int((g @ head).argmax()) for g in probs] == labels


def test_two_states_never_suffice_for_the_first_example():
  """With |H| = 2, or one token, a linear head is right: by Theorem 3.3, or since the text says nothing."""
  rng = np.random.default_rng(1)
  texts = list(itertools.product(range(2), repeat=4))
  for _ in range(10):
    hmm, silent_probs = dirichlet_hmm(rng, 2, 2), rng.dirichlet(np.ones(2))
    hmm = hmm._replace(initial_probs=silent_probs @ hmm.transition_matrix)
    head = theory.theorem_3_3(hmm, np.eye(2), silent_probs, THRESHOLDS)['head']
    exact = HMM(*map(rationals.exact, hmm))
    silent = exact._replace(initial_probs=rationals.exact(silent_probs))
    for text in texts:
      assert (predicted(exact, text).astype(float) @ head.weights).argmax() == masked_probs(silent, text, 0).argmax()
    one_law = silent._replace(emission_matrix=np.array([[Fraction(1, 3), Fraction(2, 3)]] * 2, object))
    moves = small(rng.integers(1, 9, (2, 2)))
    one_law = one_law._replace(transition_matrix=moves / moves.sum(-1, keepdims=True))
    assert len({tuple(masked_probs(one_law, text, 0)) for text in texts}) == 1


def test_what_holds_of_the_second_example():
  """3.1 fails of its joint states; 3.2, 4.2 with H* = {noun} and 4.4 hold."""
  joint = HMM(*(array.astype(float) for array in MEMORY.exact_hmm))
  assert not theory.non_degeneracy(joint, THRESHOLDS).holds
  assert np.linalg.matrix_rank(joint.emission_matrix) == 4
  assert theory.stationarity(MEMORY.hmm, THRESHOLDS, 1e-9).holds
  finding = theory.recoverable_hidden_states(MEMORY.hmm, CELL, THRESHOLDS)
  assert finding.holds
  assert [MEMORY.states[h] for h in finding.witness['recoverable_states']] == ['noun']


def test_other_probabilities_do_not_part_the_texts_of_the_second_certificate():
  """G_1 is "rolled" for both, exactly, whatever nouns say and however probable the moves that may happen are."""
  rng = np.random.default_rng(2)
  for _ in range(10):
    drawn = [rows * rng.integers(1, 9, rows.shape) for rows in MEMORY.exact_hmm]
    hmm = HMM(*(rows / rows.sum(-1, keepdims=True) for rows in drawn))
    for text in MEMORY.certificate.texts:
      assert predicted(hmm, text).tolist() == [0, 0, 0, 1]


def test_attention_of_theorem_4_3_is_right_on_all_of_r():
  """On all texts of R up to length 6: in fractions it attends to R's positions; floats agree."""
  texts = list(texts_of(MEMORY.exact_hmm, LONGEST))
  inside = [text for text in texts if nouns_for_sure(text)]
  assert (len(texts), len(inside)) == (497, 490)
  assert set(MEMORY.certificate.texts) <= set(inside)
  labels = [memory_label(text) for text in inside]
  for text, label in zip(inside, labels):
    largest, attended, score = attention(text)
    assert largest == 1 and attended == nouns_for_sure(text)
    assert int(score < 0) == label and score != 0


def test_two_states_and_three_tokens_suffice_for_the_second_example():
  """So small a one has a certificate in R as well, of longer texts with other weights.

  Fewer cannot do: with H* = H a linear head at the [MASK] recovers P[M, H_1 | x] itself, so that some state is outside
  of H*, and its column is off the span of the M |H*| = 2 columns at least of H*.
  """
  hmm = MemoryHMM(
    memory_probs=np.array([1, 2]) / 3,
    initial_probs=np.array([4, 3]) / 7,
    transition_matrix=np.array([[1, 3], [4, 0]]) / 4,
    cell_index=np.zeros(2, np.int32),
    emission_matrix=np.array([[[2, 2, 0], [2, 1, 1]], [[4, 0, 0], [2, 1, 1]]]) / 4,
  )
  assert theory.recoverable_hidden_states(hmm, 0, THRESHOLDS).holds
  assert theory.stationarity(hmm, THRESHOLDS, 1e-9).holds
  joint = np.multiply.outer(hmm.memory_probs, hmm.initial_probs).reshape(-1)
  rows = joint, np.kron(np.eye(2), hmm.transition_matrix), hmm.emission_matrix.reshape(4, 3)
  exact = HMM(*map(small, rows))
  texts = (1, 0, 0, 2), (2,), (0, 2), (2, 0)
  probs = [[masked_probs(exact, text, i).reshape(2, 2) for i in range(len(text) + 1)] for text in texts]
  assert all(any(of_one.sum(0)[0] == 1 for of_one in of_text) for of_text in probs)
  labels = [int(of_text[0].sum(1)[1] > of_text[0].sum(1)[0]) for of_text in probs]
  features = [predicted(exact, text) for text in texts]
  weights = theory.exact_certificate(features, labels, [(i, 1 - label) for i, label in enumerate(labels)], 2)
  assert weights == [Fraction(1, 2), Fraction(21, 106), Fraction(13, 53), Fraction(3, 53)]
