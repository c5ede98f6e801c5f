"""Mixed states and entropies beside all texts, closed forms and a long text."""

import itertools

import jax
import numpy as np
import pytest
import scipy.special

import hmm_jax as hj

P = hj.processes


def _messages(process, length):
  """pi T[x_1] ... T[x_n] of every text, [V^n, S]."""
  T, start = P.edges(process)
  rows = start[None]
  for _ in range(length):
    rows = np.einsum('ni,xij->nxj', rows, T).reshape(-1, len(start))
  return rows


def _block_entropy(process, length):
  return scipy.special.entr(_messages(process, length).sum(1)).sum()


@pytest.mark.parametrize('process', [P.even(0.3), P.random_random_xor(), P.mess3()])
def test_mixed_states_are_the_beliefs_of_all_texts(process):
  """Each one once, with the probabilities of the texts that lead to it."""
  found = hj.mixed_states(process, 6)
  apart = np.abs(found.beliefs[:, None] - found.beliefs).max(-1) + np.eye(len(found.beliefs))
  assert apart.min() > 1e-9
  for length, probs in enumerate(found.probs):
    messages = _messages(process, length)
    weights = messages.sum(1)
    beliefs = messages[weights > 0] / weights[weights > 0, None]
    distances = np.abs(beliefs[:, None] - found.beliefs).max(-1)
    assert distances.min(1).max() < 1e-11
    of_texts = np.bincount(distances.argmin(1), weights[weights > 0], minlength=len(found.beliefs))
    np.testing.assert_allclose(probs, of_texts, atol=1e-14)


@pytest.mark.parametrize('process', [P.golden_mean(0.3), P.even(), P.random_random_xor(0.7, 0.6), P.with_bos(P.mess3())])
def test_block_entropies_are_those_of_all_texts(process):
  """Also from a law that is not stationary, for which nothing is said of endless texts."""
  found, expected = hj.entropies(process, 7), [_block_entropy(process, length) for length in range(8)]
  np.testing.assert_allclose(found.block_entropies, expected, atol=1e-12)
  np.testing.assert_allclose(found.myopic_entropies, np.diff(expected), atol=1e-12)
  assert np.isnan(found.entropy_rate).all() == np.isnan(found.excess_entropy).all() == (process.num_tokens == 4)


@pytest.mark.parametrize('p', [0.5, 0.3])
def test_golden_mean_and_even_have_their_closed_forms(p):
  """h = H(p) / (1 + p) and C = H(1 / (1 + p)) of both; E = H(1) - h of a chain of order 1, and C of the even process."""
  binary = lambda q: scipy.special.entr([q, 1 - q]).sum()
  rate, complexity = binary(p) / (1 + p), binary(1 / (1 + p))
  golden, even = hj.entropies(P.golden_mean(p), 40), hj.entropies(P.even(p), 40)
  for found in (golden, even):
    np.testing.assert_allclose([*found.entropy_rate, found.statistical_complexity], [rate, rate, complexity], atol=1e-12)
  np.testing.assert_allclose(golden.excess_entropy, complexity - rate, atol=1e-12)
  low, high = even.excess_entropy
  assert low <= complexity <= high + 1e-12 and high - low < 1e-3


def test_equal_futures_are_one_causal_state():
  """Two random bits and their exclusive or have h = 2/3 bits; the golden mean process beside a clock is itself."""
  np.testing.assert_allclose(hj.entropies(P.random_random_xor(), 5).entropy_rate, 2 / 3 * np.log(2), atol=1e-12)
  golden = P.golden_mean(0.3)
  with_clock = np.kron(golden.transition_matrices, [[0, 1], [1, 0]])
  found, expected = hj.entropies(with_clock, 6), hj.entropies(golden, 6)
  np.testing.assert_allclose(found.entropy_rate, expected.entropy_rate, atol=1e-12)
  np.testing.assert_allclose(found.statistical_complexity, expected.statistical_complexity, atol=1e-12)


def test_bounds_of_mess3_hold_its_entropies():
  """They are conditional entropies of all texts; one of another length, and long texts, lie between them."""
  T, start = P.edges(P.mess3())
  short, found = hj.entropies(P.mess3(), 4), hj.entropies(P.mess3(), 7)
  from_states = [hj.from_transition_matrices(T, state) for state in np.eye(3)]
  low = start @ [_block_entropy(each, 7) - _block_entropy(each, 6) for each in from_states]
  np.testing.assert_allclose(found.entropy_rate, [low, _block_entropy(P.mess3(), 7) - _block_entropy(P.mess3(), 6)])
  for bounds, closer in zip(short[2:4], found[2:4]):
    assert bounds[0] < closer[0] < closer[1] < bounds[1]
  # What the two halves of a text tell of each other.
  assert 2 * _block_entropy(P.mess3(), 4) - _block_entropy(P.mess3(), 8) < found.excess_entropy[1]
  texts = np.asarray(hj.sample_corpus(jax.random.key(0), P.mess3(), 256, 300))
  beliefs, surprises = np.tile(start, (256, 1)), []
  for tokens in texts.T:
    weights = np.einsum('ni,nij->nj', beliefs, T[tokens])
    surprises.append(-np.log(weights.sum(1)))
    beliefs = weights / weights.sum(1, keepdims=True)
  means = np.mean(surprises[20:], axis=0)
  error = means.std() / np.sqrt(256)
  assert found.entropy_rate[0] - 4 * error < means.mean() < found.entropy_rate[1] + 4 * error
