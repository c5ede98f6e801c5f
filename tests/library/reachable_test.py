"""Facts about what a chain can reach and scores that are linear there: every text enumerated, in fractions."""

from fractions import Fraction
import itertools

import numpy as np
import pytest
from rationals import exact_hmm, likelihood_rows, state_weights

from hmm_jax._support.rational.algebra import as_fractions
from hmm_jax.distributions.hmm import HMM
from hmm_jax.tuning.reachable import linear_score, reachable

SHAPES = [(2, 2), (3, 2), (3, 3), (4, 2), (4, 3)]


def rational_hmms(rng):
  """Two of each shape, of rows of sixteenths with zeros among them."""
  rows = lambda *shape: rng.multinomial(16, np.ones(shape[-1]) / shape[-1], shape[:-1]) / 16
  return [HMM(rows(H), rows(H, H), rows(H, num_tokens)) for H, num_tokens in SHAPES for _ in range(2)]


def likelihoods(hmm, texts):
  """P[x | H_1 = h] [n, H] of each text x after the [MASK]."""
  anywhere = exact_hmm(hmm)._replace(initial_probs=np.full(hmm.num_states, Fraction(1)))
  return np.array([state_weights(anywhere, likelihood_rows(anywhere, (hmm.num_tokens, *text)), 0) for text in texts])


def test_likelihoods_of_its_words_are_a_basis_of_those_of_all_texts():
  rank = lambda rows: np.linalg.matrix_rank(np.float64(rows), tol=1e-9)
  for hmm in rational_hmms(np.random.default_rng(4)):
    of_words = likelihoods(hmm, reachable(hmm, 3).words)
    of_texts = likelihoods(hmm, itertools.product(range(hmm.num_tokens), repeat=3))
    assert len(of_words) == rank(of_words) == rank(of_texts) == rank(np.vstack([of_words, of_texts]))


def test_a_score_is_linear_iff_least_squares_over_all_texts_is_exact():
  """b^T G(x) P[x from H_1] = mu^T P[H_0, x] for every text, exactly, with the b of float64 least squares."""
  rng, answers = np.random.default_rng(3), set()
  for hmm, length in itertools.product(rational_hmms(rng), (1, 3)):
    mu, silent = rng.integers(-3, 4, (3, hmm.num_states)) / 4, hmm.initial_probs @ hmm.transition_matrix
    found = linear_score(hmm, reachable(hmm, length), mu, silent)
    rows = likelihoods(hmm, itertools.product(range(hmm.num_tokens), repeat=length))
    relative = (mu[:-1] - mu[-1]).T
    G = (rows * as_fractions(hmm.initial_probs)) @ as_fractions(hmm.emission_matrix)
    scores = (rows * as_fractions(silent)) @ as_fractions(relative)
    fit = np.linalg.lstsq(np.float64(G), np.float64(scores))[0]
    assert (found.head is not None) == np.allclose(np.float64(G) @ fit, np.float64(scores), rtol=0, atol=1e-9)
    if found.head is not None:
      assert (G @ found.head == scores).all()
      np.testing.assert_allclose(np.float64(found.head), fit, atol=1e-9)
      osc_b, osc_mu = np.ptp(fit, axis=0), np.ptp(relative, axis=0)
      assert found.size == pytest.approx(max(osc_b[osc_mu > 0] / osc_mu[osc_mu > 0]))
    answers.add(found.head is None)
  assert answers == {True, False}
