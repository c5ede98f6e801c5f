"""Facts about k masks before a text and a prompt behind one: every word and text, in fractions."""

from fractions import Fraction
import itertools

import numpy as np
import pytest
from rationals import as_fractions, likelihood_rows, state_weights, token_probs
from theory_assumptions_cases import EXACT

import hmm_jax as hj
from hmm_jax._support.rational.algebra import fraction_rows, PRIME, rank
from hmm_jax.theory import theorem_3_3

# The start is not stationary. Of a token one move before a state, P[0 | state] is 1/7, 3/4 and 2/7.
CHAIN = hj.HMM(*map(fraction_rows, ([1, 2, 3], [[1, 2, 0], [0, 1, 2], [2, 0, 1]], [[2, 0], [1, 1], [0, 2]])))


def from_uniform(transitions, emissions):
  """An HMM of rows that are divided by their sums."""
  return hj.HMM(*map(fraction_rows, (np.ones(len(transitions)), transitions, emissions)))


# The lumpable chain of docs/findings/theory.md, and one of which states 0 and 1 have equal pasts.
LUMPABLE = from_uniform([[1, 3, 6], [6, 4, 0], [3, 3, 4]], [[1, 0], [1, 0], [0, 1]])
TWINS = from_uniform([[1, 1, 2], [2, 2, 0], [1, 1, 2]], [[1, 1], [1, 1], [0, 2]])


def law(hmm, words, position):
  """P[word, state at `position`] [n, H] of words in which V is any token."""
  return np.array([state_weights(hmm, likelihood_rows(hmm, word), position) for word in words])


def futures(hmm, length):
  """P[x | H_1] [n, H] of every text x after H_1, and the texts."""
  texts = list(itertools.product(range(hmm.num_tokens), repeat=length))
  anywhere = hmm._replace(initial_probs=np.full(hmm.num_states, Fraction(1)))
  return law(anywhere, [(hmm.num_tokens, *text) for text in texts], 0), texts


def pasts(hmm, masks, joint):
  """P[word, H_1] [n, H] of every word of k tokens up to that of H_1, or of every token in every place."""
  words = itertools.product(range(hmm.num_tokens + 1), repeat=masks)
  return law(hmm, [word for word in words if word.count(hmm.num_tokens) == (0 if joint else masks - 1)], masks - 1)


# P[state 0] is 0 modulo the prime.
RARE = from_uniform(np.ones((2, 2), int), np.eye(2, dtype=int))._replace(initial_probs=fraction_rows([PRIME, 1]))


@pytest.mark.parametrize(
  ('hmm', 'future_rank', 'masks', 'ranks'),
  [(LUMPABLE, 3, None, [2, 2, 2]), (TWINS, 2, 1, [2]), (RARE, 1, 1, [2]), (CHAIN, 3, 2, [2, 3])],
)
def test_masks_needed_by_chains_of_two_tokens(hmm, future_rank, masks, ranks):
  """The joint law and the marginals need as many, and have the ranks of every word."""
  needed = hj.theory.masks_needed(hmm)
  assert needed.future_rank == future_rank
  for count, joint in ((needed.joint, True), (needed.marginals, False)):
    assert (count.masks, count.ranks) == (masks, ranks) and rank(pasts(hmm, len(ranks), joint)) == ranks[-1]
    M = hj.theory.masks_as_one_token(hmm, len(ranks), joint).emission_matrix
    values = np.linalg.svd(np.float64(M), compute_uv=False)
    ratio = values[-1] / values[0] if ranks[-1] == len(M) else 0
    assert count.singular_value_ratios[-1] == pytest.approx(ratio, abs=1e-9)


@pytest.mark.parametrize(('masks', 'joint'), [(2, True), (3, False)])
def test_the_head_of_k_masks_gives_every_label(masks, joint):
  """The likeliest state by a prior of its own."""
  (follows, _), prior = futures(CHAIN, 4), fraction_rows([3, 1, 2])
  head = theorem_3_3(hj.theory.masks_as_one_token(CHAIN, masks, joint), np.eye(3), prior, EXACT)['head']
  scores = follows @ pasts(CHAIN, masks, joint).T @ head.weights
  assert (scores.argmax(1) == (follows * prior).argmax(1)).all()


def predicted(hmm, prompt, position, texts):
  """G [n, V] at a [MASK], which stands at this place among the rows of a prompt."""
  rows = list(np.insert(as_fractions(prompt), position, 1, axis=0))
  return np.array([token_probs(hmm, rows + likelihood_rows(hmm, text), position) for text in texts])


@pytest.mark.parametrize(('mu', 'blanks'), [(np.diag([1, 0, 1]), 1), ([[2, -1, 1], [0, 0, 0]], 0)])
def test_an_inner_prompt_gives_every_label(mu, blanks):
  """Two independent rows and three classes, or disjoint hulls of three rows; the prior is not that of the chain."""
  (follows, texts), prior = futures(CHAIN, 4), fraction_rows([3, 1, 2])
  built = hj.theory.inner_prompt(CHAIN, mu, prior, blanks, EXACT)
  scores = predicted(CHAIN, built['prompt'], 0, texts) @ as_fractions(built['head'].weights)
  assert (scores.argmax(1) == (follows * prior @ np.transpose(mu)).argmax(1)).all()
