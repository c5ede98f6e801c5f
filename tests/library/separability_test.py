"""Facts about linear separability: points on a line, verified heads, and proofs checked term by term."""

from fractions import Fraction

import numpy as np
import pytest

from hmm_jax.tuning.separability import exact_certificate, linear_separation

TOLERANCE = 1e-9
HALF, THIRD = Fraction(1, 2), Fraction(1, 3)
# Distributions over two tokens are points on a line, (p, 1 - p).
MIDDLE_APART = [[Fraction(p, 5), Fraction(5 - p, 5)] for p in (1, 3, 4)]


def combination(features, labels, pairs, weights, num_classes):
  """sum of lambda (e_y - e_c) (x) G over the pairs, entry by entry, in the numbers of its arguments."""
  index, other = np.transpose(pairs)
  one_hot = np.eye(num_classes, dtype=int)
  signs = one_hot[np.array(labels)[index]] - one_hot[other]
  return (signs.T * weights) @ np.array(features)[index]


@pytest.mark.parametrize('num_classes', [2, 3])
def test_points_on_a_line_are_separable_iff_their_classes_are_intervals(num_classes):
  """For two tokens a head is a row of thresholds: both answers, on random points, by sorting.

  The least lead of a head is its margin. A proof has positive weights of pairs of an input and another class, with
  sum 1, under which all cancels: by duality no head has a margin above the bound, hence none above rounding.
  """
  rng, answers = np.random.default_rng(num_classes), []
  for _ in range(20):
    points, labels = rng.choice(50, 5, replace=False) / 50, rng.integers(num_classes, size=5)
    runs = 1 + np.count_nonzero(np.diff(labels[np.argsort(points)]))
    features = np.stack([points, 1 - points], axis=1)
    found = linear_separation(features, labels, num_classes, TOLERANCE)
    assert found.separable == (runs == len(set(labels.tolist())))
    if found.separable:
      scores = features @ found.head
      own = np.take_along_axis(scores, labels[:, None], 1)
      others = np.where(np.arange(num_classes) == labels[:, None], -np.inf, scores)
      assert TOLERANCE < found.margin == pytest.approx((own - others).min()) and not len(found.pairs)
    else:
      assert (found.weights > 0).all() and found.weights.sum() == pytest.approx(1)
      assert all(labels[index] != other for index, other in found.pairs)
      rest = np.abs(combination(features, labels, found.pairs, found.weights, num_classes)).max()
      assert rest == pytest.approx(found.residual, abs=1e-14) and rest < 1e-9
      assert 0 <= found.margin <= found.margin_at_most < 1e-9
    answers.append((found.separable, len(set(labels.tolist()))))
  assert {(True, num_classes), (False, num_classes)} <= set(answers)


def test_a_certificate_is_the_exact_mixture():
  """A point of class 1 a third of the way between two of class 0 is their mixture by 1/3 and 2/3, halved.

  Two of its copies that differ by one unit in the last place are no proof, and those that do not are. None is given if
  a pair is missing or proofs are several.
  """
  labels, pairs, middle = [0, 1, 0], [(0, 1), (1, 0), (2, 1)], MIDDLE_APART[1]
  weights = exact_certificate(MIDDLE_APART, labels, pairs, 2)
  assert weights == [THIRD / 2, HALF, THIRD]
  assert combination(MIDDLE_APART, labels, pairs, weights, 2).any() == 0
  assert exact_certificate(MIDDLE_APART, labels, pairs[:2], 2) is None
  assert exact_certificate([*MIDDLE_APART, middle], [*labels, 1], [*pairs, (3, 0)], 2) is None
  for shift, proof in ((Fraction(1, 2**60), None), (0, [HALF, HALF])):
    assert exact_certificate([middle, [middle[0] + shift, middle[1] - shift]], [0, 1], pairs[:2], 2) == proof
