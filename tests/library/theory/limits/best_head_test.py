"""The best linear head on finitely many inputs, against all that there are: half-planes, and intervals on a line."""

import itertools

import jax
import numpy as np
import pytest
import rationals

from hmm_jax import random_hmm, tasks
from hmm_jax.theory.limits import best_head as best_head_lib
from hmm_jax.theory.limits.separability import exact_certificate

# Features are what they are: no G is hidden behind them.
HOW = dict(error=0.0, tolerance=1e-9, max_rounds=2, max_certificates=100)


def best_head(features, labels, num_classes=2, starts=(), **how):
  return best_head_lib.best_head(features, labels, num_classes, starts, **{**HOW, **how})


def num_right(found, features, labels):
  return ((features @ found.head).argmax(1) == labels).sum()


def is_proof(features, labels, inputs):
  """Decides it for two classes, the floats being the fractions that they stand for."""
  pairs = [(index, 1 - label) for index, label in enumerate(labels[inputs])]
  return exact_certificate(rationals.exact(features[inputs]), labels[inputs], pairs, 2) is not None


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


def most_by_intervals(points, labels):
  """The most inputs on a line that three intervals, one for each class in any order, get right."""
  ordered, size = labels[np.argsort(points)], len(points)
  cuts = itertools.combinations_with_replacement(range(size + 1), 2)
  every = itertools.product(cuts, itertools.permutations(range(3)))
  return max((np.repeat(order, np.diff([0, *ends, size])) == ordered).sum() for ends, order in every)


def assert_bracket(found, features, labels, most):
  """The best head is found, and the bound, one for each of disjoint certificates, is not below it."""
  inputs = np.concatenate([np.zeros(0, int), *found.certificates])
  assert len(np.unique(inputs)) == len(inputs) and found.residual < 1e-11
  assert found.accuracy_at_most == 1 - len(found.certificates) / len(labels)
  assert num_right(found, features, labels) == most <= round(len(labels) * found.accuracy_at_most)


@pytest.mark.parametrize(('seed', 'n'), [(0, 9), (1, 9), (2, 9), (3, 9), (0, 40)])
def test_the_best_of_all_half_planes_is_found_and_bounded(seed, n):
  """Over three tokens, and each certificate is one in exact arithmetic."""
  rng = np.random.default_rng(seed)
  features, labels = rng.dirichlet(np.ones(3), n), rng.integers(2, size=n)
  most, found = most_by_half_planes(features, labels), best_head(features, labels)
  assert_bracket(found, features, labels, most)
  assert found.separable == (most == n) and bool(found.certificates) == (most < n)
  assert all(is_proof(features, labels, inputs) for inputs in found.certificates)


@pytest.mark.parametrize('seed', range(3))
def test_three_classes_on_a_line(seed):
  """Over two tokens heads of three classes are intervals."""
  rng = np.random.default_rng(seed)
  points, labels = rng.permutation(np.linspace(0.05, 0.95, 8)), rng.integers(3, size=8)
  features = np.stack([points, 1 - points], axis=1)
  assert_bracket(best_head(features, labels, 3), features, labels, most_by_intervals(points, labels))


@pytest.mark.parametrize(
  ('distance', 'error', 'is_shown'), [(1e-3, 1e-6, True), (1e-3, 1e-2, False), (1e-6, 1e-9, True), (1e-6, 1e-5, False)]
)
def test_what_the_error_of_features_could_turn_is_no_certificate(distance, error, is_shown):
  """Of three corners and an input of the other class that far inside of their triangle."""
  inside = (1 - distance) * np.array([0.5, 0.5, 0]) + distance * np.ones(3) / 3
  features, labels = np.array([*np.eye(3), inside]), np.array([0, 0, 0, 1])
  found = best_head(features, labels, error=error)
  assert [sorted(inputs) for inputs in found.certificates] == [[0, 1, 2, 3]] * is_shown
  assert found.separable is (False if is_shown else None)
  assert (num_right(found, features, labels), found.accuracy_at_most) == (3, 1 - is_shown / 4)


def test_a_proof_holds_for_all_that_features_may_be():
  """Where it is given, each of the extreme features has positive weights in exact arithmetic; else some may not."""
  rng, outcomes, error = np.random.default_rng(7), set(), 0.03
  for _ in range(40):
    features, labels = rng.dirichlet(np.ones(3), 4), rng.permutation([0, 0, 1, int(rng.integers(2))])
    proven = bool(best_head(features, labels, error=error).certificates)
    signs = rng.choice([-1, 1], (8, 4, 3))
    holds = all(is_proof(features * (1 + error * sign), labels, np.arange(4)) for sign in signs)
    assert holds or not proven
    outcomes.add((proven, holds))
  assert {(True, True), (False, False)} <= outcomes


def test_fewer_pairs_than_a_proof_takes_are_none():
  """Two inputs that are one in floats, with both labels, may be two without rounding: that is not for floats to say."""
  features = np.random.default_rng(0).dirichlet(np.ones(3), 20)
  features[1] = features[0]
  labels = (features[:, 0] > features[0, 0]).astype(int)
  labels[1] = 1
  found = best_head(features, labels)
  assert (num_right(found, features, labels), found.accuracy_at_most, found.separable) == (19, 1, None)


def test_the_error_of_the_exact_model_in_floats_is_within_its_bound():
  """Every entry of G, against exact arithmetic on the same floats, and the bound is no more than a thousandfold."""
  hmm = random_hmm(jax.random.key(0), num_states=4, num_tokens=5)
  tokens = np.random.default_rng(0).integers(5, size=(30, 9))
  tokens[:, 0] = 5
  exact_hmm = hmm._make(map(rationals.exact, hmm))
  exact = [
    rationals.state_probs(exact_hmm, rationals.likelihood_rows(exact_hmm, text), 0, leave_out=True)
    for text in tokens.tolist()
  ]
  computed = rationals.exact(tasks.first_state_probs(hmm, tokens))
  bound = best_head_lib.relative_error(hmm, 9)
  assert 0 < np.abs(computed / np.array(exact) - 1).max() < bound < 1e-12
  assert bound < 1000 * np.abs(computed / np.array(exact) - 1).max()


def test_what_is_asked_for_ends_the_search():
  """No more certificates than asked for; and a start that is better than what few rounds find is not lost."""
  rng = np.random.default_rng(2)
  features, labels = rng.dirichlet(np.ones(4), 60), rng.integers(2, size=60)
  whole, cut = best_head(features, labels), best_head(features, labels, max_certificates=2)
  assert len(cut.certificates) == 2 < len(whole.certificates) and cut.accuracy_at_most == 1 - 2 / 60
  alone = best_head(features, labels, max_rounds=0)
  given = best_head(features, labels, starts=[whole.head], max_rounds=0)
  reached = [num_right(found, features, labels) for found in (alone, whole, given)]
  assert reached[0] < reached[1] == reached[2]
