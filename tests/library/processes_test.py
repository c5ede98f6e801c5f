"""Processes of labelled matrices: words, beliefs over the states that were given, combinations, entropies."""

import contextlib

from memory_hmm_cases import dense_hmm
import numpy as np
from oracles import beliefs_of_paths
import pytest
import scipy.special

import hmm_jax as hj
from hmm_jax.distributions import processes
from hmm_jax.theory.enumeration import all_texts

MESS3, EVEN, BITS = processes.mess3(), processes.even(0.3), processes.random_random_xor(0.7, 0.6)
# T[x, i, j] = A_ij W_jx.
ARRIVING = hj.from_transition_matrices(MESS3.transition_matrix * MESS3.emission_matrix.T[:, None])
# State 0 is never entered, and no token decides a state.
ANY = np.random.default_rng(0).random((3, 3, 3)) * [0, 1, 1]
ANY /= ANY.sum((0, 2))[:, None]
# Token 1 alone leads from state 1 to 0, and seldom.
SMALL_EDGE = np.array([[[0.125, 0], [0, 0]], [[0.75, 0.125], [2.0**-22, 1 - 2.0**-22]]])


def _messages(T, initial_probs, length):
  """pi T[x_1] ... T[x_n] of every word, [V^n, S], whose sums are the probabilities of the words."""
  rows = np.atleast_2d(initial_probs)
  for _ in range(length):
    rows = np.einsum('ni,xij->nxj', rows, T).reshape(-1, T.shape[1])
  return rows


def _beliefs(process, texts, causal=True):
  return np.array([beliefs_of_paths(*processes.edges(process), text, causal) for text in texts])


@pytest.mark.parametrize(
  ('process', 'num_states'),
  [
    (EVEN, 3),
    (BITS, 8),
    (ARRIVING, 3),
    (hj.from_transition_matrices(ANY), 6),
    (hj.from_transition_matrices(ANY, [0.5, 0, 0.5]), 6),
    (hj.from_transition_matrices(SMALL_EDGE, [0, 1]), 3),
  ],
)
def test_words_have_the_probabilities_of_the_matrices(process, num_states):
  """In an HMM of no more states than needed, where any matrices need one for each pair (token, next state)."""
  T, start = process.transition_matrices, process.start_probs
  from_states = process.emission_matrix.T[:, :, None] * process.transition_matrix
  words = _messages(from_states, process.initial_probs, 6).sum(1)
  np.testing.assert_allclose(words, _messages(T, start, 6).sum(1), atol=1e-14)
  assert process.num_states == num_states == hj.from_transition_matrices(np.float32(T), start).num_states


@pytest.mark.parametrize('process', [EVEN, BITS, ARRIVING, hj.from_transition_matrices(ANY)])
def test_beliefs_are_sums_over_paths_of_the_given_states(process):
  """For every text with [MASK]s; zeros where the evidence is impossible."""
  texts = all_texts(process.num_tokens + 1, 3)
  for causal in (False, True):
    found = hj.beliefs(process, texts, causal=causal)
    np.testing.assert_allclose(found, _beliefs(process, texts, causal), atol=1e-13)


def test_a_causal_belief_gives_the_law_of_its_token():
  texts, memory = all_texts(3, 3), dense_hmm(np.random.default_rng(0), 2, num_tokens=2)
  laws = _beliefs(EVEN, texts) @ EVEN.transition_matrices.sum(2).T
  np.testing.assert_allclose(laws, hj.token_probs(hj.ExactModel(2, causal=True), EVEN, texts), atol=1e-6)
  # Those of a memory are the exact model's own.
  expected = hj.activations(hj.ExactModel(2), memory, texts)['beliefs']
  np.testing.assert_allclose(hj.beliefs(memory, texts), expected, atol=1e-13)


def test_a_text_with_bos_goes_on_as_the_process():
  texts = all_texts(2, 3)
  beliefs = _beliefs(processes.with_bos(EVEN), np.insert(texts, 0, 2, axis=1))
  np.testing.assert_allclose(beliefs[:, 1:, :2], _beliefs(EVEN, texts), atol=1e-14)


def test_factors_of_a_product_keep_their_beliefs():
  """Each has those of its own text."""
  texts = np.random.default_rng(0).integers(6, size=(20, 4))
  beliefs = processes.factor_probs(_beliefs(processes.product(MESS3, EVEN), texts), (3, 2))
  for factor, own_text, belief in zip((MESS3, EVEN), np.unravel_index(texts, (3, 2)), beliefs):
    np.testing.assert_allclose(belief, _beliefs(factor, own_text) * belief.any(-1, keepdims=True), atol=1e-14)


@pytest.mark.parametrize('process', [EVEN, BITS, MESS3])
def test_mixed_states_are_the_beliefs_of_all_texts(process):
  """Each one once, with the probability of the texts that lead to it."""
  found = hj.mixed_states(process, 6)
  for length, probs in enumerate(found.probs):
    messages = _messages(*processes.edges(process), length)
    messages = messages[messages.any(1)]
    weights = messages.sum(1)
    beliefs, group = np.unique((messages / weights[:, None]).round(9), axis=0, return_inverse=True)
    np.testing.assert_allclose(found.beliefs[probs > 0], beliefs, atol=1e-8)
    np.testing.assert_allclose(probs[probs > 0], np.bincount(group.ravel(), weights), atol=1e-14)


@pytest.mark.parametrize('process', [BITS, MESS3, processes.with_bos(EVEN)])
def test_entropies_are_those_of_all_texts(process):
  """The lower bound of h is that given the first state; from a law that is not stationary there is none."""
  T, start = processes.edges(process)
  with pytest.warns(match='stationary') if start.max() == 1 else contextlib.nullcontext():
    found = hj.entropies(process, 6)
  block = lambda start, length: scipy.special.entr(_messages(T, start, length).sum(1)).sum()
  expected = [block(start, length) for length in range(7)]
  np.testing.assert_allclose(found.block_entropies, expected, atol=1e-12)
  low = start @ [block(state, 6) - block(state, 5) for state in np.eye(len(start))]
  np.testing.assert_allclose(found.entropy_rate[0], np.nan if start.max() == 1 else low)
  assert not np.diff(found.excess_entropy) < -1e-9


def test_entropies_have_their_closed_forms():
  """h = H(p) / (1 + p) and C = H(1 / (1 + p)) of the golden mean process, also beside a clock that no token shows.

  E = C - h of a chain of order 1, and E = C of the even process, which longer words approach.
  """
  p, binary = 0.3, lambda q: scipy.special.entr([q, 1 - q]).sum()
  rate, complexity = binary(p) / (1 + p), binary(1 / (1 + p))
  golden = processes.golden_mean(p).transition_matrices
  found = hj.entropies(np.kron(golden, [[0, 1], [1, 0]]), 2)
  np.testing.assert_allclose([*found.entropy_rate, found.statistical_complexity], [rate, rate, complexity])
  np.testing.assert_allclose(hj.entropies(golden, 2).excess_entropy, complexity - rate)
  low, high = hj.entropies(EVEN, 12).excess_entropy
  assert complexity - 0.1 < low < complexity < high + 1e-12
