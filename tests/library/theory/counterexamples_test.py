"""Facts about the two counterexamples of docs/findings/theory.md in exact fractions."""

import itertools

import jax
import numpy as np
import rationals
from theory_assumptions_cases import small_fractions
from theory_cases import exact_posterior
from theory_fractions import in_region, read

from hmm_jax import theory

NOUN = 1


def in_fractions(problem):
  exact = lambda leaf: small_fractions(leaf) if getattr(leaf, 'dtype', None) == np.float64 else leaf
  return jax.tree.map(exact, problem)


STATES = in_fractions(theory.head_fails_prompt_succeeds())
MEMORY = in_fractions(theory.head_fails_attention_succeeds())
JOINT = rationals.exact_hmm(MEMORY.hmm)


def masked_probs(hmm, text):
  """P[H_1 | x] [E] of x' = (MASK, x)."""
  return rationals.state_probs(hmm, rationals.likelihood_rows(hmm, (hmm.num_tokens, *text)), 0, leave_out=True)


def prompted(text):
  """G_2(good) of (u, MASK, x) with the prompt of Theorem 3.6, which says that irony came before."""
  rows = [np.array([0, 0, 1]), *rationals.likelihood_rows(STATES.hmm, (2, *text))]
  return rationals.token_probs(STATES.hmm, rows, 1)[0]


def test_no_linear_head_is_right_on_states():
  """A mixture of "good good" and "good bad" has the G_1 of "bad bad", as the library proves."""
  texts = list(itertools.product(range(2), repeat=2))
  posteriors = np.array([masked_probs(STATES.hmm, text) for text in texts])
  features, labels = posteriors @ STATES.hmm.emission_matrix, posteriors[:, :2].argmax(1)
  assert [*map(str, features[:, 0])] == ['31/48', '17/42', '13/21', '8/15'] and labels.tolist() == [0, 0, 1, 1]
  weights = theory.exact_certificate(features, labels, [(0, 1), (1, 1), (3, 0)], 2)
  assert [*map(str, weights)] == ['4/15', '7/30', '1/2']


def test_the_prompt_of_theorem_3_6_is_right():
  """On every text of up to six words the head asks if G_2(good) is at least 1/3; no label is a tie."""
  for text in itertools.chain(*(itertools.product(range(2), repeat=length) for length in range(1, 7))):
    praise, complaint, _ = masked_probs(STATES.hmm, text)
    assert praise != complaint and (3 * prompted(text) >= 1) == (praise > complaint)
  assert [str(prompted(text)) for text in itertools.product(range(2), repeat=2)] == ['16/33', '14/39', '5/21', '1/15']


def test_attention_is_right_on_the_memory_and_no_linear_head():
  """ "the cow" and "the toy" have one G_1 and different labels; both are in R, and scores have the label's sign."""
  predicted = [masked_probs(JOINT, text) @ JOINT.emission_matrix for text in ((0, 1), (0, 2))]
  assert (predicted[0] == predicted[1]).all()
  for label, noun, score in ((0, 1, '5/12'), (1, 2, '-1/12')):
    assert exact_posterior(MEMORY, JOINT, (0, noun)).argmax() == label
    assert in_region(MEMORY, JOINT, [NOUN], (0, noun)) and str(read(MEMORY, NOUN, (0, noun))) == score
