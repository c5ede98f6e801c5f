"""Facts about the two counterexamples, and that `docs/theory.md` says what is computed.

Posteriors and G are exact: by `hmm_jax.theory.rationals`, and by sums over hidden paths that are written here.
"""

import contextlib
from fractions import Fraction
import functools
import io
import itertools
import pathlib
import re

from conftest import dirichlet_hmm
import jax
import numpy as np
from oracles import attention_by_the_paper
import pytest

from hmm_jax import theory
from hmm_jax.heads import AttentionHead
from hmm_jax.hmm import HMM
from hmm_jax.memory_hmm import MemoryHMM
from hmm_jax.model import ExactModel, prepend
from hmm_jax.theory import assumptions, counterexamples, rationals, structured

pytestmark = pytest.mark.usefixtures('without_optimisation')

PAGE = (pathlib.Path(__file__).parent.parent / 'docs' / 'theory.md').read_text()
THRESHOLDS = theory.Thresholds(support=1e-12, rank=1e-9)
MAX_NODES = 1000
LONGEST = 6

STATES = counterexamples.head_fails_prompt_succeeds()
MEMORY = counterexamples.head_fails_attention_succeeds()
CELL = 0


def small(array):
  """Floats as the fractions that they stand for."""
  fractions = [Fraction(value).limit_denominator(100) for value in np.asarray(array).reshape(-1).tolist()]
  return np.array(fractions, object).reshape(np.shape(array))


def texts_of(hmm, longest):
  """All x of positive probability, by length and then in order of tokens."""
  texts = [()]
  for _ in range(longest):
    texts = [(*text, token) for text in texts for token in range(hmm.num_tokens)]
    texts = [text for text in texts if masked_probs(hmm, text, 0).any()]
    yield from texts


def rows_of(hmm, text):
  """Likelihood rows of x' = (MASK, x)."""
  return rationals.likelihood_rows(hmm, (hmm.num_tokens, *text))


def masked_probs(hmm, text, position):
  """P[H_i | x'_{-i}] [E], exactly; positions of x' count from 0."""
  return rationals.state_probs(hmm, rows_of(hmm, text), position, leave_out=True)


def predicted(hmm, text):
  """G_1(x') [V], exactly."""
  return rationals.token_probs(hmm, rows_of(hmm, text), 0)


def text_prob(hmm, text):
  """P[X_{2:T+1} = x], exactly."""
  message = np.full(hmm.num_states, Fraction(1), object)
  for row in reversed(rows_of(hmm, text)[1:]):
    message = hmm.transition_matrix @ (row * message)
  return hmm.initial_probs @ message


def path_weights(initial_probs, transition_matrix, emission_matrix, seen, position):
  """P[state at `position` = h, what is seen] [H], a sum over all hidden paths; a token None is not seen."""
  weights = [Fraction(0)] * len(initial_probs)
  for path in itertools.product(range(len(initial_probs)), repeat=len(seen)):
    prob = initial_probs[path[0]]
    for here, there in zip(path, path[1:]):
      prob *= transition_matrix[here][there]
    for state, token in zip(path, seen):
      prob *= 1 if token is None else emission_matrix[state][token]
    weights[path[position]] += prob
  return np.array(weights, object)


def words(example, text):
  return ' '.join(example.tokens[token] for token in text)


def table(header, rows):
  """A table of the page."""
  lines = [header, ['---'] * len(header), *rows]
  return '\n'.join('| ' + ' | '.join(map(str, line)) + ' |' for line in lines)


# Praise, complaint and irony.


def state_label(text):
  """argmax of mu P[H_0 | x], and that it is no tie; H_0 is the state before the text."""
  probs = path_weights(small(STATES.silent_probs), *STATES.exact_hmm[1:], (None, *text), 0)
  scores = small(STATES.task_weights) @ probs
  assert scores[0] != scores[1]
  return int(scores[1] > scores[0])


def prompted(construction, text):
  """G_2(u, MASK, x) [V] of the constructed prompt, exactly."""
  prompt = list(small(construction['prompt']))
  return rationals.token_probs(STATES.exact_hmm, prompt + rows_of(STATES.exact_hmm, text), 1)


@pytest.fixture(scope='module')
def state_construction():
  return theory.theorem_3_6(STATES.hmm, STATES.task_weights, STATES.silent_probs, THRESHOLDS, MAX_NODES)


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


def test_prompt_and_head_of_theorem_3_6_are_right(state_construction):
  """On all texts up to length 6 in fractions, where no label is a tie, and in floats on the exact model."""
  np.testing.assert_array_equal(small(state_construction['prompt']), [[0, 0, 1]])
  head = small(state_construction['head'].weights)
  np.testing.assert_array_equal(head, [[4, 0], [-2, 0]])
  assert 'u = (0, 0, 1)' in PAGE and 'b = (4, -2) for praise and (0, 0) for' in PAGE
  texts = list(texts_of(STATES.exact_hmm, LONGEST))
  labels = [state_label(text) for text in texts]
  scores = [prompted(state_construction, text) @ head for text in texts]
  assert [int(score[1] > score[0]) for score in scores] == labels
  assert len(texts) == 126 and f'all {len(texts)} texts of up to {LONGEST} tokens' in PAGE
  assert predicted_in_floats(state_construction, texts) == labels


def model_probs(hmm, prompt, texts):
  """G of the exact model for x' after a prompt, float64 [n, P + 1 + LONGEST, V].

  Shorter texts end in [MASK]s, which say nothing, so that all compile once.
  """
  model = ExactModel(hmm.num_tokens)
  inputs = np.full((len(texts), 1 + LONGEST), model.num_tokens)
  for row, text in zip(inputs, texts):
    row[1 : 1 + len(text)] = text
  predict = jax.jit(lambda hmm, prompt, inputs: model.predict(hmm, prepend(prompt, model.embed(hmm, inputs))))
  with jax.enable_x64(True):
    return np.asarray(predict(hmm, prompt, inputs))


def predicted_in_floats(construction, texts):
  """What a construction of Theorem 3.6 predicts on the exact model, in float64."""
  head, probs = construction['head'], model_probs(STATES.hmm, construction['prompt'], texts)
  return (probs[:, 1] @ head.weights + head.bias).argmax(-1).tolist()


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


# The cow and the toy.


def memory_weights(text, leave_out=None):
  """P[M = m, H_i = h, x'] [M, H] by paths; without x'_i and at i = `leave_out`, else at the [MASK]."""
  hmm = MEMORY.hmm
  position = leave_out or 0
  seen = [None if i in (0, leave_out) else token for i, token in enumerate((None, *text))]
  return np.array(
    [
      prior * path_weights(small(hmm.initial_probs), small(hmm.transition_matrix), small(rows), seen, position)
      for prior, rows in zip(small(hmm.memory_probs), hmm.emission_matrix)
    ]
  )


@functools.cache
def leave_one_out(text):
  """P[M = m, H_i = h | x'_{-i}] [M, H] at each position i of x', by `rationals`."""
  return [masked_probs(MEMORY.exact_hmm, text, i).reshape(2, 3) for i in range(len(text) + 1)]


def memory_probs(text):
  """P[M | x] [M]."""
  return leave_one_out(text)[0].sum(1)


def memory_label(text):
  """argmax of mu P[M | x], and that it is no tie."""
  scores = small(MEMORY.task_weights) @ memory_probs(text)
  assert scores[0] != scores[1]
  return int(scores[1] > scores[0])


def nouns_for_sure(text):
  """The positions of x' whose state is surely in H*, from 0; x' is in R (4.3) if there are any."""
  noun = MEMORY.states.index('noun')
  return [i for i, probs in enumerate(leave_one_out(text)) if probs.sum(0)[noun] == 1]


@functools.cache
def attention_head(length):
  """Of Theorem 4.3, for x' of this length."""
  return theory.theorem_4_3(MEMORY.hmm, MEMORY.task_weights, CELL, length, THRESHOLDS)['head']


def attention(text):
  """The largest key score, the positions that have it, and the score of class 0 over class 1, in fractions."""
  inputs = (MEMORY.hmm.num_tokens, *text)
  head = AttentionHead(*map(small, attention_head(len(inputs))))
  probs = [joint.reshape(-1) @ MEMORY.exact_hmm.emission_matrix for joint in leave_one_out(text)]
  keys = [head.query @ (head.key_weights @ g + beta) for g, beta in zip(probs, head.positions)]
  attended = [i for i, key in enumerate(keys) if key == max(keys)]
  values = [(head.value_weights @ probs[i] * head.token_embeddings[inputs[i]]) @ head.output for i in attended]
  mean = sum(values) / len(values)
  return max(keys), attended, mean[0] - mean[1]


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
  """On all texts of R up to length 6, no label a tie: in fractions it attends to R's positions; floats agree."""
  texts = list(texts_of(MEMORY.exact_hmm, LONGEST))
  inside = [text for text in texts if nouns_for_sure(text)]
  assert f'{len(texts)} texts of up to {LONGEST} tokens' in PAGE
  assert f'{len(inside)} of them are in R' in PAGE
  assert f'No label of the {len([memory_label(text) for text in texts])} is a tie' in PAGE
  assert set(MEMORY.certificate.texts) <= set(inside)
  labels = [memory_label(text) for text in inside]
  for text, label in zip(inside, labels):
    largest, attended, score = attention(text)
    assert largest == 1 and attended == nouns_for_sure(text)
    assert int(score < 0) == label and score != 0
  assert attended_in_floats(inside) == labels


def attended_in_floats(texts):
  """What the head of Theorem 4.3 predicts on the exact model, in float64, at the paper's argmax."""
  classes = []
  for text, probs in zip(texts, model_probs(MEMORY.hmm, np.zeros((0, 6)), texts), strict=True):
    length = 1 + len(text)
    _, scores = attention_by_the_paper(attention_head(length), probs[:length], (MEMORY.hmm.num_tokens, *text), 0.0)
    classes.append(int(scores.argmax()))
  return classes


def test_two_states_and_three_tokens_suffice_for_the_second_example():
  """So small a one has a certificate in R as well, of longer texts and with the weights that the page names.

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
  assert 'weights ' + ', '.join(map(str, weights)) in PAGE


# The page.


def fraction_rows(names, *matrices):
  """Rows of a table: a name and what the matrices have in its row."""
  return [[name, *(value for matrix in matrices for value in matrix[i])] for i, name in enumerate(names)]


def test_the_page_has_the_matrices():
  """Both distributions, and the two parts of the first construction."""
  exact = STATES.exact_hmm
  header = ['now', 'P[H_0]', *(f'next {state}' for state in STATES.states), *(f'"{token}"' for token in STATES.tokens)]
  rows = fraction_rows(STATES.states, exact.initial_probs[:, None], exact.transition_matrix, exact.emission_matrix)
  assert table(header, rows) in PAGE
  hmm, exact = MEMORY.hmm, MEMORY.exact_hmm
  header = ['now', 'P[H_1]', *(f'next {state}' for state in MEMORY.states)]
  rows = fraction_rows(MEMORY.states, small(hmm.initial_probs)[:, None], small(hmm.transition_matrix))
  assert table(header, rows) in PAGE
  joint = [f'{value}, {state}' for value in MEMORY.classes for state in MEMORY.states]
  header = ['memory, state', *(f'"{token}"' for token in MEMORY.tokens)]
  assert table(header, fraction_rows(joint, exact.emission_matrix)) in PAGE
  cow, toy = small(hmm.memory_probs)
  assert f'P[M = cow] = {cow} and P[M = toy] = {toy}' in PAGE


def test_the_page_has_the_texts_of_the_first_example(state_construction):
  """Posteriors, labels and G, by `rationals`; the sums over paths say the same."""
  rows = []
  for text in texts_of(STATES.exact_hmm, 2):
    before = masked_probs(STATES.exact_hmm, text, 0)
    g, with_prompt = predicted(STATES.exact_hmm, text), prompted(state_construction, text)
    by_paths = path_weights(small(STATES.silent_probs), *STATES.exact_hmm[1:], (None, *text), 0)
    np.testing.assert_array_equal(before, by_paths / by_paths.sum())
    by_paths = path_weights(*STATES.exact_hmm, (None, *text), 0)
    np.testing.assert_array_equal(g, by_paths / by_paths.sum() @ STATES.exact_hmm.emission_matrix)
    initial = STATES.exact_hmm.initial_probs * [0, 0, 1]
    by_paths = path_weights(initial, *STATES.exact_hmm[1:], (None, None, *text), 1)
    np.testing.assert_array_equal(with_prompt, by_paths / by_paths.sum() @ STATES.exact_hmm.emission_matrix)
    prob = text_prob(STATES.exact_hmm, text)
    rows.append([words(STATES, text), prob, *before, STATES.classes[state_label(text)], g[0], with_prompt[0]])
  posterior = [f'P[{state}]' for state in STATES.states]
  assert table(['x', 'P[x]', *posterior, 'label', 'G_1 of "good"', 'prompted G_2 of "good"'], rows) in PAGE


def test_the_page_has_the_texts_of_the_second_example():
  """Posteriors, labels, G and what the attention head sees, by `rationals`; the sums over paths say the same."""
  rows = []
  for text in texts_of(MEMORY.exact_hmm, 2):
    by_paths = memory_weights(text)
    probs, g, sure = memory_probs(text), predicted(MEMORY.exact_hmm, text), nouns_for_sure(text)
    np.testing.assert_array_equal(probs, by_paths.sum(1) / by_paths.sum())
    np.testing.assert_array_equal(g, (by_paths.reshape(-1) / by_paths.sum()) @ MEMORY.exact_hmm.emission_matrix)
    by_paths = [memory_weights(text, leave_out=i).sum(0) for i in range(len(text) + 1)]
    assert sure == [i for i, states in enumerate(by_paths) if states[1] == states.sum()]
    prob, label = text_prob(MEMORY.exact_hmm, text), MEMORY.classes[memory_label(text)]
    seen = [', '.join(str(i + 1) for i in sure), attention(text)[2]] if sure else ['', '']
    rows.append([words(MEMORY, text), prob, *probs, label, ', '.join(map(str, g)), *seen])
  posterior = [f'P[{value}]' for value in MEMORY.classes]
  header = ['x', 'P[x]', *posterior, 'label', 'G_1', 'surely a noun', 'attention']
  assert table(header, rows) in PAGE


def test_the_page_has_the_arithmetic_of_the_attention_head():
  """What is not zero or one in keys and values, and the two texts of the certificate step by step."""
  noun, (_, cow, toy, _) = MEMORY.states.index('noun'), range(4)
  head = AttentionHead(*map(small, attention_head(3)))
  assert (head.query @ head.key_weights).tolist() == [0, 1, 1, 0] and not head.positions.any()
  assert 'G_i(cow) + G_i(toy), the probability of a noun' in PAGE
  values = head.value_weights.reshape(2, 3, 4)
  assert not np.delete(values, noun, axis=1).any() and not values[..., [0, 3]].any()
  line = '({}) G_i(cow) - ({}) G_i(toy) and ({}) G_i(toy) - ({}) G_i(cow)'
  shown = values[:, noun]
  assert line.format(shown[0, cow], -shown[0, toy], shown[1, toy], -shown[1, cow]) in PAGE
  for text in MEMORY.certificate.texts:
    g = leave_one_out(text)[2].reshape(-1) @ MEMORY.exact_hmm.emission_matrix
    of_cow, of_toy = shown @ g
    assert f'G_3 = ({", ".join(map(str, g))}), which gives {of_cow} and {of_toy}' in PAGE
    as_cow, as_toy = head.token_embeddings[text[-1]].reshape(2, 3)[:, noun]
    line = f'{of_cow} × {as_cow} - {of_toy} × {as_toy} = {attention(text)[2]}'
    assert line in PAGE and of_cow * as_cow - of_toy * as_toy == attention(text)[2]


def test_the_page_has_the_certificates_and_what_they_cost():
  """The arithmetic of the first, and the least probability that a linear head gets wrong of texts of length 2."""
  texts, _, weights = STATES.certificate
  g = [predicted(STATES.exact_hmm, text)[0] for text in texts]
  first, second = (2 * weight for weight in weights[:2])
  line = f'{first} × {g[0]} + {second} × {g[1]} = {first * g[0]} + {second * g[1]} = {g[2]}'
  assert line in PAGE and first * g[0] + second * g[1] == g[2]
  pairs = list(itertools.product(range(2), repeat=2))
  ordered = sorted(pairs, key=lambda text: predicted(STATES.exact_hmm, text)[0])
  # A linear head on two tokens is a threshold on the first: the first k of these get one class, the rest the other.
  errors = [
    sum(text_prob(STATES.exact_hmm, text) for i, text in enumerate(ordered) if state_label(text) != ((i < k) == side))
    for k in range(5)
    for side in (False, True)
  ]
  order = ', '.join(f'{words(STATES, text)} ({STATES.classes[state_label(text)]})' for text in ordered)
  assert order in PAGE
  assert f'at least {min(errors)} of the probability of texts of length 2' in PAGE
  assert predicted(STATES.exact_hmm, (0,))[0] == predicted(STATES.exact_hmm, (1, 1))[0]
  assert state_label((0,)) != state_label((1, 1))
  texts = MEMORY.certificate.texts
  wrong = min(text_prob(MEMORY.exact_hmm, text) for text in texts)
  assert f'at least {wrong} of the probability of texts of length 2' in PAGE


def test_the_snippet_of_the_page_runs_and_prints_what_it_says():
  """The python block of the page, run as it stands."""
  snippet, printed = re.search(r'```python\n(.*?)```\n\nprints\n\n```\n(.*?)```', PAGE, re.DOTALL).groups()
  out = io.StringIO()
  with contextlib.redirect_stdout(out):
    exec(compile(snippet, 'docs/theory.md', 'exec'), {})  # The page is ours.
  assert out.getvalue() == printed


def test_the_page_names_functions_that_exist():
  """Every function in the tables of functions is one of the theory modules."""
  section = PAGE.split('## Statements and functions')[1].split('\n## ')[0]
  named = set(re.findall(r'`(\w+)`', section))
  rooms = theory, assumptions, structured, rationals, counterexamples
  assert named and all(any(hasattr(room, name) for room in rooms) for name in named), named
