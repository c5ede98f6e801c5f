"""Facts about the two counterexamples, and that the code of their page, docs/theory.md, runs.

Posteriors and G are exact: by `rationals`, and by sums over hidden paths.
"""

import contextlib
from fractions import Fraction
import io
import itertools
import pathlib
import re

import numpy as np
import pytest
import rationals
from theory_cases import EXACT

from hmm_jax import theory
from hmm_jax.heads import AttentionHead
from hmm_jax.hmm import HMM
from hmm_jax.memory_hmm import MemoryHMM
from hmm_jax.theory.problems import counterexamples

pytestmark = pytest.mark.usefixtures('without_optimisation')

PAGE = pathlib.Path(__file__).parents[4] / 'docs' / 'theory.md'
STATES = counterexamples.head_fails_prompt_succeeds()
MEMORY = counterexamples.head_fails_attention_succeeds()


def small(array):
  """Floats as the fractions that they stand for."""
  fractions = [Fraction(value).limit_denominator(100) for value in np.asarray(array, float).ravel().tolist()]
  return np.array(fractions, object).reshape(np.shape(array))


def joint_hmm(hmm):
  """Over joint states (memory, state), in small fractions."""
  initial_probs = np.asarray(hmm.joint_initial_probs)
  moves = np.kron(np.eye(initial_probs.size // hmm.num_states), hmm.transition_matrix)
  return HMM(*map(small, (initial_probs, moves, hmm.joint_emission_matrix)))


def smaller():
  """Two states and three tokens suffice for the second example: of longer texts, with other weights."""
  hmm = MemoryHMM(
    memory_probs=np.array([1, 2]) / 3,
    initial_probs=np.array([4, 3]) / 7,
    transition_matrix=np.array([[1, 3], [4, 0]]) / 4,
    cell_index=np.zeros(2, np.int32),
    emission_matrix=np.array([[[2, 2, 0], [2, 1, 1]], [[4, 0, 0], [2, 1, 1]]]) / 4,
  )
  weights = Fraction(1, 2), Fraction(21, 106), Fraction(13, 53), Fraction(3, 53)
  certificate = counterexamples.Certificate(((1, 0, 0, 2), (2,), (0, 2), (2, 0)), (0, 1, 1, 1), weights)
  return counterexamples.Counterexample(hmm, joint_hmm(hmm), np.eye(2), (), certificate)


SMALLER = smaller()


def rows_of(hmm, text):
  """Likelihood rows of x' = (MASK, x)."""
  return rationals.likelihood_rows(hmm, (hmm.num_tokens, *text))


def masked_probs(hmm, text, position=0):
  """P[H_i | x'_{-i}] [E], exactly; positions of x' count from 0."""
  return rationals.state_probs(hmm, rows_of(hmm, text), position, leave_out=True)


def all_texts(hmm, longest):
  """Every x of positive probability."""
  texts = [text for length in range(1, longest + 1) for text in itertools.product(range(hmm.num_tokens), repeat=length)]
  return [text for text in texts if masked_probs(hmm, text).any()]


def label(probs):
  """The class whose probability, the first or the second one, is larger; that it is no tie is checked."""
  assert probs[0] != probs[1]
  return int(probs[1] > probs[0])


def leave_one_out(hmm, text):
  """P[M = m, H_i = h | x'_{-i}] [M, H] at each position i of x', of two values of a memory."""
  return [masked_probs(hmm, text, i).reshape(2, -1) for i in range(len(text) + 1)]


def label_of(example, text):
  """Of the masked state, or of the memory, given the text."""
  probs = masked_probs(example.exact_hmm, text)
  return label(probs if example is STATES else probs.reshape(2, -1).sum(1))


def attention(head, inputs, probs):
  """The positions that an attention head in fractions attends to, and its score of class 0 over class 1."""
  keys = [head.query @ (head.key_weights @ g + beta) for g, beta in zip(probs, head.positions)]
  attended = [i for i, key in enumerate(keys) if key == max(keys)]
  values = [(head.value_weights @ probs[i] * head.token_embeddings[inputs[i]]) @ head.output for i in attended]
  return attended, sum(values) @ [1, -1]


@pytest.mark.parametrize('example', [STATES, MEMORY])
def test_the_floats_are_the_fractions_and_posteriors_are_sums_over_paths(example):
  """Of the masked state, on all texts of two words; the first law is that of the silent state too, being stationary."""
  exact = example.exact_hmm
  for floats, fractions in zip(joint_hmm(example.hmm.validate()), exact):
    np.testing.assert_array_equal(floats, fractions)
  assert (exact.initial_probs @ exact.transition_matrix == exact.initial_probs).all()
  for text in all_texts(exact, 2):
    weights = rationals.path_weights(*exact, (None, *text), 0)
    assert (masked_probs(exact, text) == weights / weights.sum()).all()


def test_the_snippet_of_the_page_runs_and_prints_what_it_says():
  """The python block of the page, run as it stands."""
  snippet, printed = re.search(r'```python\n(.*?)```\n\nprints\n\n```\n(.*?)```', PAGE.read_text(), re.DOTALL).groups()
  out = io.StringIO()
  with contextlib.redirect_stdout(out):
    exec(compile(snippet, 'docs/theory.md', 'exec'), {})  # The page is ours.
  assert out.getvalue() == printed


def test_what_holds_of_the_first_example():
  """3.1 fails, so that Theorem 3.3 has no head; 3.2 and 3.5 hold, with H* = {praise, complaint} and B = {irony}."""
  assert theory.regularity(STATES.hmm, EXACT).holds
  finding = theory.relaxed_non_degeneracy(STATES.hmm, STATES.task_weights, EXACT, 1000)
  states = [finding.witness[key].tolist() for key in ('essential_states', 'prompt_states')]
  assert finding.holds and states == [[0, 1], [2]]
  with pytest.raises(theory.AssumptionError, match=r'3\.1'):
    theory.theorem_3_3(STATES.hmm, STATES.task_weights, STATES.silent_probs, EXACT)


@pytest.mark.parametrize('example', [STATES, MEMORY, SMALLER])
def test_the_certificate_proves_that_no_linear_head_is_right(example):
  """Its labels are right, it mixes G_1 of both classes to the same, and the linear program agrees."""
  texts, labels, weights = example.certificate
  assert [label_of(example, text) for text in texts] == list(labels)
  features = np.array([masked_probs(example.exact_hmm, text) for text in texts]) @ example.exact_hmm.emission_matrix
  assert not (np.where(labels, -1, 1) * weights @ features).any() and sum(weights) == 1 and min(weights) > 0
  pairs = [(index, 1 - one) for index, one in enumerate(labels)]
  assert theory.exact_certificate(features, labels, pairs, 2) == list(weights)
  assert not theory.linear_separation(features.astype(float), labels, 2, 1e-9).separable


def test_prompt_and_head_of_theorem_3_6_are_right():
  """On all texts up to length 6 in fractions, where no label is a tie."""
  built = theory.theorem_3_6(STATES.hmm, STATES.task_weights, STATES.silent_probs, EXACT, 1000)
  prompt, head = small(built['prompt']), small(built['head'].weights)
  assert prompt.tolist() == [[0, 0, 1]] and head.tolist() == [[4, 0], [-2, 0]]
  texts = all_texts(STATES.exact_hmm, 6)
  assert len(texts) == 126
  for text in texts:
    probs = rationals.token_probs(STATES.exact_hmm, [*prompt, *rows_of(STATES.exact_hmm, text)], 1)
    assert label(probs @ head) == label_of(STATES, text)


def test_no_small_change_of_the_first_example_repairs_it():
  """Every probability moved by up to 2%: labels as before, and no linear head still."""
  rng, texts = np.random.default_rng(0), all_texts(STATES.exact_hmm, 2)[2:]
  labels = [label_of(STATES, text) for text in texts]
  for _ in range(8):
    silent_probs, *moved = (small(rows * rng.uniform(0.98, 1.02, rows.shape)) for rows in STATES.hmm)
    hmm = HMM(silent_probs @ moved[0], *moved)
    assert [label(masked_probs(hmm._replace(initial_probs=silent_probs), text)) for text in texts] == labels
    features = np.array([masked_probs(hmm, text) @ hmm.emission_matrix for text in texts], float)
    assert not theory.linear_separation(features, labels, 2, 1e-9).separable


def test_attention_of_theorem_4_3_is_right_on_all_of_r():
  """On all texts of R up to length 6 it attends to R's positions, those that are surely a noun, in fractions."""
  texts = all_texts(MEMORY.exact_hmm, 6)
  heads = {n: theory.theorem_4_3(MEMORY.hmm, MEMORY.task_weights, 0, n, EXACT)['head'] for n in range(2, 8)}
  heads = {n: AttentionHead(*map(small, head)) for n, head in heads.items()}
  inside = set()
  for text in texts:
    joints = leave_one_out(MEMORY.exact_hmm, text)
    surely = [i for i, joint in enumerate(joints) if joint[:, 1].sum() == 1]
    if surely:
      inside.add(text)
      probs = [joint.reshape(-1) @ MEMORY.exact_hmm.emission_matrix for joint in joints]
      attended, score = attention(heads[len(joints)], (MEMORY.hmm.num_tokens, *text), probs)
      assert attended == surely and score and int(score < 0) == label(joints[0].sum(1))
  assert (len(texts), len(inside)) == (497, 490) and set(MEMORY.certificate.texts) <= inside


@pytest.mark.parametrize(('example', 'states'), [(MEMORY, [1]), (SMALLER, [0])])
def test_what_holds_of_examples_with_a_memory(example, states):
  """3.1 fails of its joint states; 4.2 with H* and 4.4 hold, and every text of the certificate is in R (4.3)."""
  joint = HMM(*(array.astype(float) for array in example.exact_hmm))
  assert not theory.non_degeneracy(joint, EXACT).holds and theory.stationarity(example.hmm, EXACT, 1e-9).holds
  finding = theory.recoverable_hidden_states(example.hmm, 0, EXACT)
  assert finding.holds and finding.witness['recoverable_states'].tolist() == states
  for text in example.certificate.texts:
    assert any(probs[:, states].sum() == 1 for probs in leave_one_out(example.exact_hmm, text))
