"""Facts about what a chain can reach and scores that are linear there: every text enumerated, state path by path."""

from fractions import Fraction
import itertools

import numpy as np
import pytest
from rationals import exact_hmm, path_weights

from hmm_jax.hmm import HMM
from hmm_jax.theory.exact.algebra import exact, rank
from hmm_jax.theory.limits.reachable import linear_score, reachable

# Four states in a ring, of which the first alone shows token 0: each token more tells one state more apart.
RING = HMM(np.full(4, 1 / 4), np.roll(np.eye(4), 1, axis=1), np.eye(2)[[0, 1, 1, 1]])
# States 0 and 1 speak and move alike, so that a text never parts them; W has dependent columns.
TWINS = HMM(
  np.array([0.25, 0.5, 0.25]),
  np.array([[0.125, 0.125, 0.75], [0.125, 0.125, 0.75], [0.5, 0.25, 0.25]]),
  np.array([[0.75, 0.25], [0.75, 0.25], [0.25, 0.75]]),
)
SHAPES = [(2, 2), (3, 2), (3, 3), (4, 2), (4, 3)]


def rational_hmms(rng):
  """Two of each shape, of rows of sixteenths with zeros among them."""
  rows = lambda *shape: rng.multinomial(16, np.ones(shape[-1]) / shape[-1], shape[:-1]) / 16
  return [HMM(rows(H), rows(H, H), rows(H, num_tokens)) for H, num_tokens in SHAPES for _ in range(2)]


def likelihoods(hmm, length):
  """P[x | H_1 = h] [n, H] of each text x of `length` tokens after the [MASK], a sum over paths of `Fraction`s."""
  hmm, anywhere = exact_hmm(hmm), np.full(hmm.num_states, Fraction(1))
  texts = itertools.product(range(hmm.num_tokens), repeat=length)
  return np.array([path_weights(anywhere, *hmm[1:], (None, *text), 0) for text in texts], object)


def test_the_span_is_that_of_all_texts_of_the_length():
  """At every length, for HMMs with zeros; it rises, and stands still once no token more tells states apart."""
  rng, smaller = np.random.default_rng(0), 0
  for hmm in rational_hmms(rng):
    for length in range(4):
      basis, texts = reachable(hmm, length).basis, likelihoods(hmm, length)
      assert len(basis) == rank(texts) == rank(np.vstack([texts, basis]))
    smaller += len(basis) < hmm.num_states
  assert 0 < smaller < 10
  assert [len(reachable(RING, length).basis) for length in range(6)] == [1, 2, 3, 4, 4, 4]
  assert [len(reachable(TWINS, length).basis) for length in range(4)] == [1, 2, 2, 2]


def test_linear_is_what_least_squares_over_all_texts_leaves_nothing_of():
  """b^T G(x) P[x from H_1] = mu^T P[H_0, x] for every text, exactly, with the b of float64 least squares."""
  rng, answers = np.random.default_rng(3), set()
  for hmm in rational_hmms(rng):
    mu, silent = rng.integers(-3, 4, (3, hmm.num_states)) / 4, hmm.initial_probs @ hmm.transition_matrix
    found, rows = linear_score(hmm, reachable(hmm, 3), mu, silent), likelihoods(hmm, 3)
    relative = (mu[:-1] - mu[-1]).T
    G, scores = (rows * exact(hmm.initial_probs)) @ exact(hmm.emission_matrix), (rows * exact(silent)) @ exact(relative)
    fit = np.linalg.lstsq(np.float64(G), np.float64(scores))[0]
    assert (found.head is not None) == np.allclose(np.float64(G) @ fit, np.float64(scores), rtol=0, atol=1e-9)
    if found.head is not None:
      assert (G @ found.head == scores).all()
      np.testing.assert_allclose(np.float64(found.head), fit, atol=1e-9)
      osc_b, osc_mu = np.ptp(fit, axis=0), np.ptp(relative, axis=0)
      assert found.size == pytest.approx(max(osc_b[osc_mu > 0] / osc_mu[osc_mu > 0]))
    answers.add(found.head is None)
  assert answers == {True, False}
