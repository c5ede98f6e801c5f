"""Facts about what a chain can reach and scores that are linear there: every text enumerated, state path by path."""

from fractions import Fraction
import itertools

import numpy as np
import pytest
from rationals import exact_hmm, path_weights

from hmm_jax.hmm import HMM
from hmm_jax.theory.exact import algebra
from hmm_jax.theory.exact.algebra import exact
from hmm_jax.theory.limits.reachable import linear_score, reachable

# Four states in a ring, of which the first alone shows token 0: each token more tells one state more apart.
RING = HMM(np.full(4, 1 / 4), np.roll(np.eye(4), 1, axis=1), np.eye(2)[[0, 1, 1, 1]])
# States 0 and 1 speak and move alike, so that a text never parts them; W has dependent columns.
TWINS = HMM(
  np.array([0.25, 0.5, 0.25]),
  np.array([[0.125, 0.125, 0.75], [0.125, 0.125, 0.75], [0.5, 0.25, 0.25]]),
  np.array([[0.75, 0.25], [0.75, 0.25], [0.25, 0.75]]),
)


def rational_hmm(rng, num_states, num_tokens):
  """Rows of sixteenths with zeros among them."""
  rows = lambda *shape: rng.multinomial(16, np.ones(shape[-1]) / shape[-1], shape[:-1]) / 16
  return HMM(rows(num_states), rows(num_states, num_states), rows(num_states, num_tokens))


def likelihoods(hmm, length):
  """P[x | H_1 = h] [n, H] of each text x of `length` tokens after the [MASK], a sum over paths of `Fraction`s."""
  hmm, anywhere = exact_hmm(hmm), np.full(hmm.num_states, Fraction(1))
  texts = itertools.product(range(hmm.num_tokens), repeat=length)
  rows = [path_weights(anywhere, hmm.transition_matrix, hmm.emission_matrix, (None, *text), 0) for text in texts]
  return np.array(rows, object).reshape(-1, hmm.num_states)


def posteriors(hmm, length):
  """P[H_1 | x] [n, H] of each text that has probability."""
  joint = exact_hmm(hmm).initial_probs * likelihoods(hmm, length)
  return np.array([row / row.sum() for row in joint if row.sum()], object).reshape(-1, hmm.num_states)


def test_the_dimension_is_that_of_all_texts_of_the_length():
  """At every length, for HMMs with zeros; it rises, and stands still once no token more tells states apart."""
  rng = np.random.default_rng(0)
  smaller = 0
  for num_states, num_tokens in ((2, 2), (3, 2), (3, 3), (4, 2), (4, 3)):
    for hmm in [rational_hmm(rng, num_states, num_tokens) for _ in range(3)]:
      dimensions = [len(reachable(hmm, length).basis) for length in range(4)]
      assert dimensions == [algebra.rank(likelihoods(hmm, length)) for length in range(4)]
      smaller += dimensions[-1] < num_states
  assert 0 < smaller < 15
  assert [len(reachable(RING, length).basis) for length in range(6)] == [1, 2, 3, 4, 4, 4]
  assert [len(reachable(TWINS, length).basis) for length in range(4)] == [1, 2, 2, 2]


def test_the_basis_is_of_its_words():
  """The likelihoods of words of fewer tokens lie in the span of all texts of the length."""
  for hmm in (RING, TWINS):
    reach = reachable(hmm, 2)
    texts = likelihoods(hmm, 2)
    assert algebra.rank(reach.basis) == len(reach.basis) == algebra.rank(np.vstack([texts, reach.basis]))
    for word, row in zip(reach.words, reach.basis):
      own = likelihoods(hmm, len(word))[int(''.join(map(str, word)) or '0', hmm.num_tokens)]
      assert algebra.rank(np.array([own, row], object)) == 1


@pytest.mark.parametrize('num_classes', [2, 3])
def test_linear_is_what_least_squares_over_all_texts_leaves_nothing_of(num_classes):
  """Yes and no by float64 least squares of the score on G; and a head that exists gives the score exactly."""
  rng, answers = np.random.default_rng(num_classes), []
  for num_states, num_tokens in ((2, 2), (3, 2), (3, 3), (4, 2), (4, 3)):
    for hmm in [rational_hmm(rng, num_states, num_tokens) for _ in range(4)]:
      mu, length = rng.integers(-3, 4, (num_classes, num_states)) / 4, 3
      found = linear_score(hmm, reachable(hmm, length), mu, hmm.initial_probs)
      probs = posteriors(hmm, length)
      G, scores = probs @ exact_hmm(hmm).emission_matrix, probs @ exact(mu[:-1] - mu[-1]).T
      fit = np.linalg.lstsq(np.float64(G), np.float64(scores))[0]
      assert (found.head is not None) == bool(np.abs(np.float64(G) @ fit - np.float64(scores)).max() < 1e-9)
      if found.head is not None:
        assert (G @ found.head == scores).all()
      answers.append(found.head is not None)
  assert 3 <= sum(answers) <= 17


def test_a_score_of_a_silent_state_is_linear_up_to_a_positive_factor():
  """With D = P[H_1] / P[H_0]: b^T G(x) P[x from H_1] = mu^T P[H_0, x] for every text, and not so for D = 1."""
  rng = np.random.default_rng(5)
  hmm = HMM(*(np.float64(rows + 1 / 8) for rows in rational_hmm(rng, 3, 3)))
  silent, mu = np.array([0.5, 0.25, 0.25]), np.array([[1, -2, 0], [0, 0, 0.5]])
  found = linear_score(hmm, reachable(hmm, 3), mu, silent)
  rows, start = likelihoods(hmm, 3), exact_hmm(hmm).initial_probs
  joint = (rows * start) @ exact_hmm(hmm).emission_matrix
  assert (joint @ found.head == (rows * exact(silent)) @ exact(mu[:-1] - mu[-1]).T).all()
  same = linear_score(hmm, reachable(hmm, 3), mu, hmm.initial_probs)
  assert (joint @ same.head == (rows * start) @ exact(mu[:-1] - mu[-1]).T).all() and (same.head != found.head).any()


def test_planted_scores():
  """Yes without Assumption 3.1: a multiple of one emission column, or twins that no text parts. No: a third state."""
  twins = reachable(TWINS, 5)
  assert linear_score(TWINS, twins, [[1, 0, 0], [0, 0, 0]], TWINS.initial_probs).head is not None
  ring = reachable(RING, 3)
  assert linear_score(RING, ring, [[0, 1, 1, 1], [0, 0, 0, 0]], RING.initial_probs).head is not None
  assert linear_score(RING, ring, [[0, 1, 0, 0], [0, 0, 0, 0]], RING.initial_probs) == (None, None)
  # After no token at all there is one posterior, and any score is linear.
  assert linear_score(RING, reachable(RING, 0), [[0, 1, 0, 0], [0, 0, 0, 0]], RING.initial_probs).head is not None


def test_the_head_is_the_least_one_and_its_size_is_relative_to_mu():
  """As the pseudo-inverse in float64 has it: to tell two states that speak nearly alike takes 1 / difference."""
  mu = np.array([[1.0, 0], [0, 0]])
  for difference in (1 / 2, 2**-20):
    hmm = HMM(np.full(2, 0.5), np.array([[0.75, 0.25], [0.25, 0.75]]), np.array([[0.5, 0.375, 0.125]] * 2))
    hmm.emission_matrix[1] += [difference / 2, -difference / 2, 0]
    found = linear_score(hmm, reachable(hmm, 2), 3 * mu, hmm.initial_probs)
    expected = np.linalg.lstsq(hmm.emission_matrix, np.array([3.0, 0]))[0]
    np.testing.assert_allclose(np.float64(found.head[:, 0]), expected, rtol=1e-6)
    assert found.size == pytest.approx(np.ptp(expected) / 3, rel=1e-6) and found.size >= 1 / difference


def test_words_that_the_prime_hides_are_missed_aloud(monkeypatch):
  """Modulo 2 and 3 determinants vanish: either all of it is found, or an error is raised, never a smaller S."""
  rng, raised = np.random.default_rng(1), 0
  for prime in (2, 3):
    for module in ('limits.reachable', 'exact.algebra'):
      monkeypatch.setattr(f'hmm_jax.theory.{module}.PRIME', prime)
    for hmm in [rational_hmm(rng, 3, 2) for _ in range(8)]:
      try:
        dimension = len(reachable(hmm, 3).basis)
      except ArithmeticError:
        raised += 1
      else:
        assert dimension == algebra.rank(likelihoods(hmm, 3))
  assert raised
