"""The best linear head on finitely many inputs, against all that there are: half-planes, and intervals on a line."""

from fractions import Fraction
import itertools

import numpy as np
import pytest

from hmm_jax.theory import best_head as best_head_lib
from hmm_jax.theory.separability import exact_certificate

HOW = dict(tolerance=1e-9, max_rounds=2, max_certificates=100)


def best_head(features, labels, num_classes=2, starts=(), **how):
  return best_head_lib.best_head(features, labels, num_classes, starts, **{**HOW, **how})


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


def assert_bracket(found, features, labels, num_classes):
  """The head has the accuracy that is said, strictly; certificates are disjoint, and their number bounds it."""
  scores = features @ found.head
  own = scores[np.arange(len(labels)), labels]
  others = np.where(np.arange(num_classes) == labels[:, None], -np.inf, scores).max(1)
  assert found.accuracy == (own > others).mean()
  inputs = np.concatenate([np.zeros(0, int), *found.certificates])
  assert len(np.unique(inputs)) == len(inputs)
  assert found.accuracy_at_most == 1 - len(found.certificates) / len(labels) and found.residual < 1e-11


@pytest.mark.parametrize('seed', range(12))
def test_the_best_of_all_half_planes_is_found_and_bounded(seed):
  """On 9 inputs over three tokens: what is found is the best there is, and no certificate contradicts it."""
  rng = np.random.default_rng(seed)
  features, labels = rng.dirichlet(np.ones(3), 9), rng.integers(2, size=9)
  sides = half_planes(features)
  most = (sides == labels.astype(bool)).sum(1).max()
  found = best_head(features, labels)
  assert_bracket(found, features, labels, 2)
  assert round(9 * found.accuracy) == most <= round(9 * found.accuracy_at_most)
  assert found.separable == (most == 9)
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
  assert_bracket(found, features, labels, 3)
  assert round(8 * found.accuracy) == most <= round(8 * found.accuracy_at_most)


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


def test_what_rounding_decides_is_neither_right_nor_ruled_out():
  """Two inputs 1e-10 apart with different labels: no head is surely right on both, and no certificate has them."""
  rng = np.random.default_rng(1)
  points = rng.dirichlet(np.ones(3), 20)
  points[1] = points[0] + 1e-10 * np.array([1, -1, 0])
  labels = (points[:, 0] > points[0, 0] + 1e-9).astype(int)
  labels[1] = 1 - labels[0]
  found = best_head(points, labels)
  assert found.accuracy_at_most == 1 and not found.certificates
  assert found.separable is (True if found.accuracy == 1 else None)
  # Equal but for nothing, they are a proof.
  points[1] = points[0]
  found = best_head(points, labels)
  assert [sorted(inputs) for inputs in found.certificates] == [[0, 1]] and found.separable is False
  assert found.accuracy == 19 / 20 == found.accuracy_at_most


def test_what_is_asked_for_ends_the_search():
  """No more certificates than asked for; and a start that is better than what few rounds find is not lost."""
  rng = np.random.default_rng(2)
  features, labels = rng.dirichlet(np.ones(4), 60), rng.integers(2, size=60)
  whole, cut = best_head(features, labels), best_head(features, labels, max_certificates=2)
  assert len(cut.certificates) == 2 < len(whole.certificates) and cut.accuracy_at_most == 1 - 2 / 60
  alone = best_head(features, labels, max_rounds=0)
  given = best_head(features, labels, starts=[features @ whole.head], max_rounds=0)
  assert alone.accuracy < whole.accuracy == given.accuracy


@pytest.mark.parametrize('others', [1, 2])
def test_the_best_on_a_line_is_the_best_of_all_its_pieces(others):
  """Against every midpoint between crossings and beyond, flat rows and ties among them; the place has that count."""
  rng = np.random.default_rng(others)
  for _ in range(40):
    margins, slopes = rng.integers(-3, 4, (2, 7, others)).astype(float)
    with np.errstate(divide='ignore', invalid='ignore'):
      crossings = -margins / slopes
    places = np.unique(crossings[np.isfinite(crossings)])
    between = [0.0] if not len(places) else [places[0] - 1, *(places[1:] + places[:-1]) / 2, places[-1] + 1]
    count = lambda t, margins=margins, slopes=slopes: int((margins + t * slopes > 0).all(1).sum())
    along, most = best_head_lib._best_on_line(margins, slopes)
    assert most == max(map(count, between)) == count(along)
