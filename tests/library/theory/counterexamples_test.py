"""Facts about the two counterexamples in exact fractions, and that docs/findings/theory.md is true of the first.

Posteriors and G are those of `rationals`, and sums over hidden paths.
"""

import itertools

from conftest import DOCS
import numpy as np
import pytest
import rationals
from theory_cases import exact_posterior
from theory_fractions import in_region, read

from hmm_jax import theory
from hmm_jax._support.rational.algebra import fraction_rows
from hmm_jax.distributions.memory_hmm import MemoryHMM

pytestmark = pytest.mark.usefixtures('without_optimisation')

PAGE = ' '.join((DOCS / 'findings' / 'theory.md').read_text().split())
NOUN = 1


def in_fractions(problem):
  """The problem in `Fraction`s; all probabilities are multiples of 1/12."""
  exact = lambda rows: fraction_rows(np.rint(12 * rows))
  hmm = problem.hmm._replace(
    initial_probs=exact(problem.hmm.initial_probs),
    transition_matrix=exact(problem.hmm.transition_matrix),
    emission_matrix=exact(problem.hmm.emission_matrix),
  )
  if isinstance(hmm, MemoryHMM):
    hmm = hmm._replace(memory_probs=exact(hmm.memory_probs))
  return problem._replace(hmm=hmm, silent_probs=hmm.initial_probs, task_weights=problem.task_weights.astype(int))


STATES = in_fractions(theory.head_fails_prompt_succeeds())
MEMORY = in_fractions(theory.head_fails_attention_succeeds())
JOINT = rationals.exact_hmm(MEMORY.hmm)


def masked_probs(hmm, text):
  """P[H_1 | x] [E] of x' = (MASK, x)."""
  return rationals.state_probs(hmm, rationals.likelihood_rows(hmm, (hmm.num_tokens, *text)), 0, leave_out=True)


def texts_up_to(num_tokens, longest):
  for length in range(1, longest + 1):
    yield from itertools.product(range(num_tokens), repeat=length)


def prompted(text):
  """G_2 [V] of (u, MASK, x) with the prompt of Theorem 3.6, which says that irony came before."""
  rows = [np.array([0, 0, 1]), *rationals.likelihood_rows(STATES.hmm, (2, *text))]
  return rationals.token_probs(STATES.hmm, rows, 1)


@pytest.mark.parametrize('problem', [theory.head_fails_prompt_succeeds(), theory.head_fails_attention_succeeds()])
def test_the_floats_are_the_fractions_and_the_start_is_stationary(problem):
  exact = in_fractions(problem)
  for floats, fractions in zip(problem.hmm.validate(), exact.hmm):
    np.testing.assert_allclose(floats, fractions.astype(float), rtol=1e-15)
  assert (exact.hmm.initial_probs @ exact.hmm.transition_matrix == exact.hmm.initial_probs).all()


def test_the_table_of_the_page():
  words, labels = ('good', 'bad'), ('praise', 'complaint')
  for text in itertools.product(range(2), repeat=2):
    posterior = masked_probs(STATES.hmm, text)
    says, after_prompt = (posterior @ STATES.hmm.emission_matrix)[0], prompted(text)[0]
    x, label = ' '.join(words[token] for token in text), labels[posterior[:2].argmax()]
    assert f'| {x} | {label} | {says} | {after_prompt} |' in PAGE


def test_no_linear_head_is_right_on_states():
  """With two tokens a head is a threshold on G_1(good): the best errs on 7/27, and the library proves it wrong."""
  texts = list(itertools.product(range(2), repeat=2))
  posteriors = np.array([masked_probs(STATES.hmm, text) for text in texts])
  probs = np.array([rationals.path_weights(*STATES.hmm, (None, *text), 0).sum() for text in texts])
  features, labels = posteriors @ STATES.hmm.emission_matrix, posteriors[:, :2].argmax(1)
  errors = [probs[(features[:, 0] < threshold) == labels].sum() for threshold in (0, *features[:, 0], 1)]
  least = min(*errors, 1 - max(errors))
  assert least.as_integer_ratio() == (7, 27)
  assert f'errs on at least {least} of' in PAGE
  # A mixture of "good good" and "good bad" has the G_1 of "bad bad".
  weights = theory.exact_certificate(features, labels, [(0, 1), (1, 1), (3, 0)], 2)
  assert [str(weight) for weight in weights] == ['4/15', '7/30', '1/2']


def test_no_linear_head_is_right_on_the_memory():
  """ "the cow" and "the toy" have one G_1 and different labels."""
  predicted = [masked_probs(JOINT, text) @ JOINT.emission_matrix for text in ((0, 1), (0, 2))]
  assert (predicted[0] == predicted[1]).all()
  assert [exact_posterior(MEMORY, JOINT, text).argmax() for text in ((0, 1), (0, 2))] == [0, 1]


def test_the_prompt_of_theorem_3_6_is_right():
  """On every text of up to six words the head asks if G_2(good) is at least 1/3; no label is a tie."""
  for text in texts_up_to(2, 6):
    praise, complaint, _ = masked_probs(STATES.hmm, text)
    assert praise != complaint and (3 * prompted(text)[0] >= 1) == (praise > complaint)


def test_the_head_of_theorem_4_3_is_right():
  """ "the cow" and "the toy" are in R, and scores have the sign of the label."""
  assert in_region(MEMORY, JOINT, [NOUN], (0, 1)) and in_region(MEMORY, JOINT, [NOUN], (0, 2))
  scores = [read(MEMORY, NOUN, text).score for text in ((0, 1), (0, 2))]
  assert [score.as_integer_ratio() for score in scores] == [(5, 12), (-1, 12)]
