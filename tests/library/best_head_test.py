"""The best linear head on finitely many inputs, against all that there are: half-planes, and intervals on a line."""

import itertools

from hmm_cases import float32_hmm
import numpy as np
import pytest
import rationals

from hmm_jax.tuning import best_head as best_head_lib, tasks
from hmm_jax.tuning.separability import exact_certificate


# Features are what they are: no G is hidden behind them.
def best_head(features, labels, error=0.0):
  return best_head_lib.best_head(features, labels, 2, [], error=error, tolerance=1e-9)


def num_right(found, features, labels):
  return ((features @ found.head).argmax(1) == labels).sum()


def most_by_half_planes(features, labels):
  """The most points in general position on the triangle of three tokens that a line gets right, of every line."""
  points, wanted = features[:, :2], labels.astype(bool)
  best = max(wanted.sum(), (~wanted).sum())
  for first, second in itertools.combinations(range(len(points)), 2):
    normal = np.array([[0, 1], [-1, 0]]) @ (points[second] - points[first])
    sides = (points - points[first]) @ normal > 0
    # A line through two points can be moved and turned so that each is on either side.
    others = np.delete(sides == wanted, [first, second])
    best = max(best, 2 + others.sum(), 2 + (~others).sum())
  return best


@pytest.mark.parametrize(('seed', 'n'), [(0, 9), (1, 9), (2, 9), (3, 9), (0, 40)])
def test_the_best_of_all_half_planes_is_found_and_bounded(seed, n):
  """Over three tokens, and certificates are disjoint, each one in exact arithmetic."""
  rng = np.random.default_rng(seed)
  features, labels = rng.dirichlet(np.ones(3), n), rng.integers(2, size=n)
  most, found = most_by_half_planes(features, labels), best_head(features, labels)
  assert num_right(found, features, labels) == most <= n - len(found.certificates)
  assert found.accuracy_at_most == 1 - len(found.certificates) / n and found.residual < 1e-11
  assert found.separable == (most == n) == (not found.certificates)
  assert len(set().union(*found.certificates)) == sum(map(len, found.certificates))
  for inputs in found.certificates:
    pairs = [(index, 1 - label) for index, label in enumerate(labels[inputs])]
    assert exact_certificate(rationals.as_fractions(features[inputs]), labels[inputs], pairs, 2)


def test_fewer_pairs_than_a_proof_takes_are_none():
  """Two inputs that are one in floats, with both labels, may be two without rounding: that is not for floats to say."""
  features = np.random.default_rng(0).dirichlet(np.ones(3), 20)
  features[1] = features[0]
  labels = (features[:, 0] > features[0, 0]).astype(int)
  labels[1] = 1
  found = best_head(features, labels)
  assert (num_right(found, features, labels), found.accuracy_at_most, found.separable) == (19, 1, None)


@pytest.mark.slow
def test_the_error_of_the_exact_model_in_floats_is_within_its_bound():
  """Every posterior, against exact arithmetic on the same floats, and the bound is no more than a thousandfold."""
  hmm = float32_hmm(0, 4, 5)
  tokens = np.insert(np.random.default_rng(0).integers(5, size=(3, 8)), 0, 5, axis=1)
  chain = hmm._make(map(rationals.as_fractions, hmm))
  exact = [rationals.state_probs(chain, rationals.likelihood_rows(chain, text), 0, True) for text in tokens.tolist()]
  error = np.abs(rationals.as_fractions(tasks.hidden_state_probs(hmm, tokens)) / np.array(exact) - 1).max()
  assert 0 < error < best_head_lib.relative_error(hmm, 9) < 1000 * error


@pytest.mark.parametrize(('error', 'most'), [(1e-9, 2 / 3), (1e-5, 1.0)])
def test_a_certificate_holds_for_all_inputs_within_the_error(error, most):
  """A text of class 1 lies 1e-6 inside of the hull of class 0; an error of 1e-5 may have put it there."""
  features = np.array([[0.9, 0.1], [0.1 + 1e-6, 0.9 - 1e-6], [0.1, 0.9]])
  found = best_head(features, np.array([0, 1, 0]), error=error)
  assert found.accuracy_at_most == pytest.approx(most)
