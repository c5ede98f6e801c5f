"""Processes: their words by products of matrices, and how many states they need."""

import numpy as np
import pytest

from hmm_jax.distributions import processes

pytestmark = pytest.mark.usefixtures('without_optimisation')

# A process of two tokens: (state, token, next state, probability).
GOLDEN_MEAN = (0, 0, 0, 0.7), (0, 1, 1, 0.3), (1, 0, 0, 1)
EVEN = (0, 0, 0, 0.7), (0, 1, 1, 0.3), (1, 1, 0, 1)
ZERO_ONE_RANDOM = (0, 0, 1, 1), (1, 1, 2, 1), (2, 0, 0, 0.7), (2, 1, 0, 0.3)
# After no bit, a 0, a 1, equal bits, unequal bits.
FIRST_BIT, SECOND_BIT = (
  ((0, 0, 1, 0.7), (0, 1, 2, 0.3)),
  ((1, 0, 3, 0.6), (1, 1, 4, 0.4), (2, 0, 4, 0.6), (2, 1, 3, 0.4)),
)
RANDOM_RANDOM_XOR = *FIRST_BIT, *SECOND_BIT, (3, 0, 0, 1), (4, 1, 0, 1)


def _by_edges(edges):
  states, tokens, following, probs = zip(*edges)
  T = np.zeros((2, max(states) + 1, max(states) + 1))
  T[tokens, states, following] = probs
  return T


def _arriving(A, W):
  """T[x, i, j] = A_ij W_jx."""
  return A * W.T[:, None]


def _messages(T, initial_probs, length):
  """pi T[x_1] ... T[x_n] of every word, [V^n, S], whose sums are the probabilities of the words."""
  rows = np.atleast_2d(initial_probs)
  for _ in range(length):
    rows = np.einsum('ni,xij->nxj', rows, T).reshape(-1, T.shape[1])
  return rows


def _assert_same_words(hmm, T, initial_probs, length):
  """Words have one probability, and their messages over the HMM's states give those over the states of T."""
  A, W, expected = hmm.transition_matrix, hmm.emission_matrix, _messages(T, initial_probs, length)
  messages = _messages(_arriving(A, W), hmm.initial_probs * W.T, length - 1)
  np.testing.assert_allclose(messages.sum(1), expected.sum(1), atol=1e-14)
  next_state_probs = processes.from_transition_matrices(T, initial_probs).next_state_probs
  np.testing.assert_allclose(messages @ next_state_probs, expected, atol=1e-14)


@pytest.mark.parametrize(
  ('hmm', 'T', 'num_states'),
  [
    (processes.golden_mean(0.3), _by_edges(GOLDEN_MEAN), 2),
    (processes.even(0.3), _by_edges(EVEN), 3),
    (processes.zero_one_random(0.3), _by_edges(ZERO_ONE_RANDOM), 3),
    (processes.random_random_xor(0.7, 0.6), _by_edges(RANDOM_RANDOM_XOR), 8),
    (processes.mess3(), _arriving(0.85 * np.eye(3) + 0.05, 0.775 * np.eye(3) + 0.075), 3),
  ],
)
def test_words_have_the_probabilities_of_the_matrices(hmm, T, num_states):
  """Every word of eight tokens, and so every shorter one; the matrices are converted to no more states than needed."""
  _assert_same_words(hmm, T, processes.stationary_probs(T.sum(0)), 8)
  assert hmm.num_states == num_states == processes.from_transition_matrices(np.float32(T)).num_states


def test_any_matrices_are_converted():
  """To as many states as there are pairs (token, next state) that can occur; none has state 0, which one needs."""
  T = np.random.default_rng(0).random((3, 4, 4)) * [0, 1, 1, 1]
  T[1, 1:, 3] = 0
  T /= T.sum((0, 2))[:, None]
  for start, num_states in (([0.5, 0, 0, 0.5], 9), (processes.stationary_probs(T.sum(0)), 8)):
    hmm = processes.from_transition_matrices(T, start)
    _assert_same_words(hmm, T, start, 5)
    assert hmm.num_states == num_states


@pytest.mark.parametrize('dtype', [np.float32, np.float64])
@pytest.mark.parametrize('edge', [2.0**-22, 2.0**-40])
def test_a_small_edge_stays_apart(edge, dtype):
  """Words keep their probabilities if only one token leads from a state to another, with a small probability."""
  into_0 = [[[0.125, 0], [0, 0]], [[0.75, 0.125], [edge, 1 - edge]]]
  stays = [[[0.5 - edge, 0.5], [0.5, 0.5]], [[edge, 0], [0, 0]]]
  for T, start in ((into_0, [0, 1]), (stays, [1, 0])):
    hmm = processes.from_transition_matrices(dtype(T), start)
    words = _messages(hmm.emission_matrix.T[:, :, None] * hmm.transition_matrix, hmm.initial_probs, 3).sum(1)
    np.testing.assert_allclose(words, _messages(np.float64(dtype(T)), start, 3).sum(1), 1e-6)


@pytest.mark.parametrize(
  ('T', 'message'),
  [
    (np.ones((2, 2, 3)) / 6, 'transition_matrices has shape'),
    (np.ones((2, 2, 2)), 'transition_matrices has a row that sums to 4'),
    ([[[1.5, -0.5], [0, 1]]], 'transition_matrices has an entry that is negative'),
    (np.eye(2)[None], 'several stationary laws'),
  ],
)
def test_wrong_matrices_are_refused(T, message):
  """In one sentence."""
  with pytest.raises(ValueError, match=message):
    processes.from_transition_matrices(T)
