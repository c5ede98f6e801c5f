"""The best linear head on finitely many inputs, against all that there are: half-planes, and intervals on a line."""

from fractions import Fraction
import itertools

import numpy as np
import pytest

from hmm_jax.theory import best_head as best_head_lib, separability
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


@pytest.mark.parametrize(('seed', 'n'), [*((seed, 9) for seed in range(8)), (0, 40), (1, 40)])
def test_the_best_of_all_half_planes_is_found_and_bounded(seed, n):
  """Over three tokens: what is found is the best there is, and no certificate contradicts it."""
  rng = np.random.default_rng(seed)
  features, labels = rng.dirichlet(np.ones(3), n), rng.integers(2, size=n)
  sides = half_planes(features)
  most = (sides == labels.astype(bool)).sum(1).max()
  found = best_head(features, labels)
  assert_bracket(found, features, labels, 2)
  assert round(n * found.accuracy) == most <= round(n * found.accuracy_at_most)
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


def test_what_rounding_decides_is_no_certificate(monkeypatch):
  """Two inputs 1e-10 apart with different labels are none, though the program finds no margin; equal ones are."""
  rng = np.random.default_rng(1)
  points = rng.dirichlet(np.ones(3), 20)
  points[1] = points[0] + 1e-10 * np.array([1, -1, 0])
  labels = (points[:, 0] > points[0, 0] + 1e-9).astype(int)
  labels[1] = 1 - labels[0]
  found = best_head(points, labels)
  assert found.accuracy_at_most == 1 and not found.certificates
  points[1] = points[0]
  found = best_head(points, labels)
  assert [sorted(inputs) for inputs in found.certificates] == [[0, 1]] and found.separable is False
  assert found.accuracy == 19 / 20 == found.accuracy_at_most
  monkeypatch.setattr(best_head_lib, '_RESIDUAL', -1.0)
  found = best_head(points, labels)
  assert found.separable is None and (found.accuracy, found.accuracy_at_most) == (19 / 20, 1)


def test_what_rounding_could_turn_does_not_count(monkeypatch):
  """With rounding errors of a twentieth, inputs near the head's boundary are not right."""
  rng = np.random.default_rng(3)
  features = rng.dirichlet(np.ones(3), 60)
  labels = rng.integers(2, size=60)
  monkeypatch.setattr(separability, '_ROUNDING', 0.05)
  found = best_head(features, labels)
  right = separability.surely_right(features, labels, found.head).mean()
  assert found.accuracy == right < ((features @ found.head).argmax(1) == labels).mean()


def test_the_ramp_is_the_least_hinge_loss_of_what_is_kept():
  """No other head, near or far, has a smaller sum of hinge losses over the inputs that are kept."""
  rng = np.random.default_rng(4)
  rows, kept = rng.normal(size=(30, 2, 6)), np.arange(0, 30, 2)
  loss = lambda head: np.maximum(0, 0.5 - (rows[kept] @ head).min(1)).sum()
  found = best_head_lib._ramp(rows, kept, 0.5)
  others = [scale * rng.normal(size=6) for scale in (1e-3, 1e-1, 1) for _ in range(100)]
  assert loss(found) > 0 and all(loss(found) <= min(loss(found + other), loss(other)) + 1e-9 for other in others)


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


def test_weights_of_both_signs_are_no_certificate():
  """Three points on a line cancel by some weights; they are a proof where the middle one alone has another label."""
  points = np.array([0.2, 0.6, 0.9])
  features = np.stack([points, 1 - points], axis=1)
  for labels, is_proof in (([0, 1, 0], True), ([1, 0, 0], False), ([0, 0, 1], False)):
    pairs = np.stack([np.arange(3), 1 - np.array(labels)], axis=1)
    residual = best_head_lib._residual(separability.differences(features, labels, pairs, 2))
    assert (residual is not None and residual < 1e-15) == is_proof


def test_each_half_of_the_search_gains_on_its_own(monkeypatch):
  """Lines without linear programs, and linear programs without lines, find more than the convex start."""
  rng = np.random.default_rng(5)
  features, labels = rng.dirichlet(np.ones(5), 80), rng.integers(2, size=80)
  start = best_head(features, labels, max_rounds=0, max_certificates=0).accuracy
  for name, without in (('_RAMPS', ()), ('_best_on_line', lambda margins, slopes: (0.0, 0))):
    with monkeypatch.context() as patched:
      patched.setattr(best_head_lib, name, without)
      assert best_head(features, labels, max_certificates=0).accuracy > start
