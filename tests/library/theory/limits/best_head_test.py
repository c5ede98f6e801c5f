"""The best linear head on finitely many inputs, against all that there are: half-planes, and intervals on a line."""

from fractions import Fraction
import itertools

import jax
import numpy as np
import pytest
import rationals

from hmm_jax import HMM, random_hmm, tasks
from hmm_jax.theory.limits import best_head as best_head_lib, separability
from hmm_jax.theory.limits.separability import exact_certificate

# Features are what they are: no G is hidden behind them.
HOW = dict(error=0.0, tolerance=1e-9, max_rounds=2, max_certificates=100)


def best_head(features, labels, num_classes=2, starts=(), **how):
  return best_head_lib.best_head(features, labels, num_classes, starts, **{**HOW, **how})


def accuracy(found, features, labels):
  return ((features @ found.head).argmax(1) == labels).mean()


def half_planes(features):
  """Every way [k, n] in which lines part points in general position on the triangle of three tokens."""
  points = features[:, :2]
  found = {(True,) * len(points), (False,) * len(points)}
  for first, second in itertools.combinations(range(len(points)), 2):
    normal = np.array([[0, 1], [-1, 0]]) @ (points[second] - points[first])
    sides = (points - points[first]) @ normal > 0
    # A line through two points can be moved and turned so that each is on either side.
    for one, other in itertools.product((False, True), repeat=2):
      sides[[first, second]] = one, other
      found |= {tuple(sides.tolist()), tuple((~sides).tolist())}
  return np.array(sorted(found))


def assert_bracket(found, features, labels):
  """Certificates are disjoint, and their number bounds the accuracy."""
  inputs = np.concatenate([np.zeros(0, int), *found.certificates])
  assert len(np.unique(inputs)) == len(inputs)
  assert found.accuracy_at_most == 1 - len(found.certificates) / len(labels) and found.residual < 1e-11


@pytest.mark.parametrize(('seed', 'n'), [*((seed, 9) for seed in range(8)), (0, 40), (1, 40)])
def test_the_best_of_all_half_planes_is_found_and_bounded(seed, n):
  """Over three tokens: what is found is the best there is, and no certificate contradicts it."""
  rng = np.random.default_rng(seed)
  features, labels = rng.dirichlet(np.ones(3), n), rng.integers(2, size=n)
  sides = half_planes(features)
  most = (sides == labels.astype(bool)).sum(1).max()
  found = best_head(features, labels)
  assert_bracket(found, features, labels)
  assert round(n * accuracy(found, features, labels)) == most <= round(n * found.accuracy_at_most)
  assert found.separable == (most == n)
  for inputs in found.certificates:
    assert not (sides[:, inputs] == labels[inputs].astype(bool)).all(1).any()


def intervals(points, labels, num_classes):
  """The most inputs on a line that intervals, one for each class in any order, get right."""
  ordered = labels[np.argsort(points)]
  cuts = itertools.combinations_with_replacement(range(len(points) + 1), num_classes - 1)
  of_cuts = lambda ends, order: np.repeat(order, np.diff([0, *ends, len(points)]))
  orders = list(itertools.permutations(range(num_classes)))
  return max((of_cuts(ends, order) == ordered).sum() for ends in cuts for order in orders)


@pytest.mark.parametrize('seed', range(6))
def test_three_classes_on_a_line(seed):
  """Over two tokens heads of three classes are intervals: the best is found, and the bound is not below it."""
  rng = np.random.default_rng(seed)
  points, labels = rng.permutation(np.linspace(0.05, 0.95, 8)), rng.integers(3, size=8)
  features = np.stack([points, 1 - points], axis=1)
  most, found = intervals(points, labels, 3), best_head(features, labels, 3)
  assert_bracket(found, features, labels)
  assert round(8 * accuracy(found, features, labels)) == most <= round(8 * found.accuracy_at_most)


def test_certificates_are_exact():
  """On rational features each certificate has positive weights that solve the equations without rounding."""
  rng = np.random.default_rng(0)
  counts = rng.multinomial(97, np.ones(4) / 4, 60)
  features, labels = counts / 97, rng.integers(2, size=60)
  found = best_head(features, labels, max_rounds=1)
  assert len(found.certificates) > 5 and found.separable is False
  for inputs in found.certificates:
    exact = [[Fraction(int(count), 97) for count in row] for row in counts[inputs]]
    pairs = [(index, 1 - label) for index, label in enumerate(labels[inputs])]
    weights = exact_certificate(exact, labels[inputs], pairs, 2)
    assert weights is not None and min(weights) > 0


def cornered(distance):
  """Three corners of class 0 and an input of class 1 that far inside of their triangle, [4, 3], and the labels."""
  inside = (1 - distance) * np.array([0.5, 0.5, 0]) + distance * np.ones(3) / 3
  return np.array([*np.eye(3), inside]), np.array([0, 0, 0, 1])


def test_what_the_error_of_features_could_turn_is_no_certificate():
  """An input that near the edge could lie outside of it; and one outside of it is no certificate at all."""
  for distance, error, expected in (
    (1e-3, 0.0, 1),
    (1e-3, 1e-6, 1),
    (1e-3, 1e-2, 0),
    (1e-6, 1e-9, 1),
    (1e-6, 1e-5, 0),
  ):
    features, labels = cornered(distance)
    found = best_head(features, labels, error=error)
    assert [sorted(inputs) for inputs in found.certificates] == [[0, 1, 2, 3]] * expected
    assert found.separable is (False if expected else None)
    assert (accuracy(found, features, labels), found.accuracy_at_most) == (3 / 4, 1 - expected / 4)


@pytest.mark.parametrize('error', [1e-9, 1e-3, 0.03])
def test_a_proof_holds_for_all_that_features_may_be(error):
  """Where it is given, each of the extreme features has positive weights in exact arithmetic; else some may not."""
  rng, outcomes = np.random.default_rng(7), []
  for _ in range(60):
    features, labels = rng.dirichlet(np.ones(3), 4), rng.permutation([0, 0, 1, int(rng.integers(2))])
    pairs = np.stack([np.arange(4), 1 - labels], axis=1)
    proven = bool(best_head(features, labels, error=error).certificates)
    moved = [features * (1 + error * signs) for signs in rng.choice([-1, 1], (8, 4, 3))]
    exact = [[[Fraction(value) for value in row] for row in one.tolist()] for one in moved]
    holds = [exact_certificate(one, labels, pairs, 2) is not None for one in exact]
    assert all(holds) or not proven
    outcomes.append((proven, all(holds)))
  assert {(True, True), (False, False)} <= set(outcomes)


def test_fewer_pairs_than_a_proof_takes_are_none():
  """Two inputs that are one in floats, with both labels, may be two without rounding: that is not for floats to say."""
  features = np.random.default_rng(0).dirichlet(np.ones(3), 20)
  features[1] = features[0]
  labels = (features[:, 0] > features[0, 0]).astype(int)
  labels[1] = 1
  found = best_head(features, labels)
  assert (accuracy(found, features, labels), found.accuracy_at_most, found.separable) == (19 / 20, 1, None)


@pytest.mark.parametrize('seed', range(3))
def test_the_error_of_the_exact_model_in_floats_is_within_its_bound(seed):
  """Every entry of G, against exact arithmetic on the same floats, and the bound is no more than a thousandfold."""
  hmm = random_hmm(jax.random.key(seed), num_states=4, num_tokens=5)
  rng = np.random.default_rng(seed)
  tokens = rng.integers(5, size=(30, 9))
  tokens[:, 0] = 5
  states = tasks.first_state_probs(hmm, tokens)
  exact_hmm = HMM(*map(rationals.exact, hmm))
  rows = [rationals.likelihood_rows(exact_hmm, text) for text in tokens.tolist()]
  exact = np.array([rationals.state_probs(exact_hmm, row, 0, leave_out=True) for row in rows])
  errors = [abs(Fraction(p) / q - 1) for p, q in zip(states.ravel().tolist(), exact.ravel()) if q]
  bound = best_head_lib.relative_error(hmm, 9)
  assert 0 < max(errors) < bound < 1e-12 and bound < 1000 * max(errors)


def test_what_is_asked_for_ends_the_search(monkeypatch):
  """No more certificates than asked for; and a start that is better than what few rounds find is not lost."""
  rng = np.random.default_rng(2)
  features, labels = rng.dirichlet(np.ones(4), 60), rng.integers(2, size=60)
  whole, cut = best_head(features, labels), best_head(features, labels, max_certificates=2)
  assert len(cut.certificates) == 2 < len(whole.certificates) and cut.accuracy_at_most == 1 - 2 / 60
  alone = best_head(features, labels, max_rounds=0)
  given = best_head(features, labels, starts=[whole.head], max_rounds=0)
  reached = [accuracy(found, features, labels) for found in (alone, whole, given)]
  assert reached[0] < reached[1] == reached[2]
  # Nor one that needs a direction which the coordinates of the search leave out.
  monkeypatch.setattr(separability, 'whitening', lambda features: np.diag([1.0, 1, 1, 0]))
  head = np.array([[0, -0.2], [0, -0.2], [0, -0.2], [0, 0.8]])
  labels = (features @ head).argmax(1)
  alone, given = best_head(features, labels), best_head(features, labels, starts=[head])
  assert accuracy(alone, features, labels) < 1 == accuracy(given, features, labels)
