"""Facts about linear separability: points on a line, verified heads, and proofs checked term by term."""

from fractions import Fraction
import itertools

import numpy as np
import pytest
import rationals
import scipy.optimize

from hmm_jax.hmm import HMM
from hmm_jax.theory.limits.separability import exact_certificate, linear_separation

TOLERANCE = 1e-9
HALF, QUARTER, THIRD = Fraction(1, 2), Fraction(1, 4), Fraction(1, 3)
# Distributions over two tokens are points on a line, (p, 1 - p).
MIDDLE_APART = [[Fraction(p, 5), Fraction(5 - p, 5)] for p in (1, 3, 4)]


def combination(features, labels, pairs, weights, num_classes):
  """sum of lambda (e_y - e_c) (x) G over the pairs, entry by entry, in the numbers of its arguments."""
  total = [[0] * len(features[0]) for _ in range(num_classes)]
  for (index, other), weight in zip(pairs, weights, strict=True):
    for v, value in enumerate(features[index]):
      total[labels[index]][v] += weight * value
      total[other][v] -= weight * value
  return total


def assert_head_is_right(separation, features, labels):
  """The head puts every label first by at least the margin, and its entries are in [-1, 1]."""
  assert separation.separable and separation.margin > TOLERANCE
  scores = features @ separation.head
  own = scores[np.arange(len(labels)), labels]
  scores[np.arange(len(labels)), labels] = -np.inf
  np.testing.assert_array_less(separation.margin - 1e-9, own - scores.max(-1))
  assert np.abs(separation.head).max() <= 1 + 1e-9
  assert separation.pairs.shape == (0, 2) and separation.weights.shape == (0,) and separation.residual == 0


def assert_weights_prove(separation, features, labels, num_classes):
  """Positive weights of pairs of an input and another class, with sum 1, under which all cancels."""
  assert not separation.separable and separation.margin <= TOLERANCE
  assert (separation.weights > 0).all() and separation.weights.sum() == pytest.approx(1, abs=1e-12)
  assert all(labels[index] != other and 0 <= other < num_classes for index, other in separation.pairs)
  rest = np.abs(combination(features, labels, separation.pairs, separation.weights, num_classes)).max()
  np.testing.assert_allclose(separation.residual, rest, atol=1e-14)
  assert rest < 1e-9


@pytest.mark.parametrize('num_classes', [2, 3])
def test_points_on_a_line_are_separable_where_their_classes_are_intervals(num_classes):
  """For two tokens a head is a row of thresholds: both answers, on random points, by sorting."""
  rng = np.random.default_rng(num_classes)
  answers = []
  for _ in range(40):
    points = rng.choice(50, 5, replace=False) / 50
    labels = rng.integers(num_classes, size=5)
    runs = 1 + np.count_nonzero(np.diff(labels[np.argsort(points)]))
    features = np.stack([points, 1 - points], axis=1)
    separation = linear_separation(features, labels, num_classes, TOLERANCE)
    assert separation.separable == (runs == len(set(labels.tolist())))
    if separation.separable:
      assert_head_is_right(separation, features, labels)
    else:
      assert_weights_prove(separation, features, labels, num_classes)
    answers.append((separation.separable, len(set(labels.tolist()))))
  assert {(True, num_classes), (False, num_classes)} <= set(answers)


@pytest.mark.parametrize('num_classes', [2, 3, 4])
def test_labels_of_a_linear_head_are_separable_with_at_least_its_margin(num_classes):
  """The head that labelled the inputs is one of those allowed, so the largest margin is no smaller than its own."""
  rng = np.random.default_rng(num_classes)
  features = rng.dirichlet(np.ones(4), 30)
  head = 0.5 * np.eye(4)[:, :num_classes] + rng.uniform(-0.3, 0.3, (4, num_classes))
  labels = (features @ head).argmax(-1)
  separation = linear_separation(features, labels, num_classes, TOLERANCE)
  assert_head_is_right(separation, features, labels)
  best = np.sort(features @ head, axis=-1)
  assert separation.margin >= (best[:, -1] - best[:, -2]).min() - 1e-9 and len(set(labels)) == num_classes


def test_one_class_alone_has_the_largest_margin_there_is():
  """Entries of G sum to 1 and those of b are in [-1, 1], so that no margin passes 2."""
  features = np.random.default_rng(2).dirichlet(np.ones(3), 4)
  separation = linear_separation(features, np.ones(4, int), 2, TOLERANCE)
  assert_head_is_right(separation, features, np.ones(4, int))
  assert separation.margin == pytest.approx(2)


def test_a_program_that_presolving_gives_up_is_solved_as_it_stands(monkeypatch):
  """HiGHS may end without a status after presolving; without a solution either way it is an error."""
  solve, tried = scipy.optimize.linprog, []

  def gives_up(*arguments, options, **rest):
    tried.append(options['presolve'])
    result = solve(*arguments, options=options, **rest)
    return (
      result if not options['presolve'] and len(tried) < 3 else scipy.optimize.OptimizeResult(status=4, message='-')
    )

  monkeypatch.setattr(scipy.optimize, 'linprog', gives_up)
  features, labels = np.eye(2), np.array([0, 1])
  assert linear_separation(features, labels, 2, TOLERANCE).separable and tried == [True, False]
  with pytest.raises(RuntimeError, match='HiGHS'):
    linear_separation(features, labels, 2, TOLERANCE)


def test_one_prediction_for_two_labels_is_impossible():
  """Two inputs with the same G and different labels are the whole proof, with half the weight each."""
  features, labels = np.array([[0.3, 0.7], [0.9, 0.1], [0.3, 0.7]]), np.array([0, 1, 1])
  separation = linear_separation(features, labels, 2, TOLERANCE)
  assert_weights_prove(separation, features, labels, 2)
  assert dict(zip(separation.pairs[:, 0].tolist(), separation.weights)) == pytest.approx({0: 0.5, 2: 0.5})


def test_a_prediction_of_zeros_has_no_strict_label():
  """Where G = 0 every head ties, and this one input is a proof on its own."""
  features, labels = np.array([[0.0, 0.0], [0.4, 0.6]]), np.array([0, 1])
  separation = linear_separation(features, labels, 2, TOLERANCE)
  assert_weights_prove(separation, features, labels, 2)
  assert separation.pairs.tolist() == [[0, 1]]


def test_margins_up_to_the_tolerance_count_as_none():
  """Two points at a distance of 1e-4 are separable below their margin of twice that, and not above."""
  features, labels = np.array([[0.5, 0.5], [0.5 + 1e-4, 0.5 - 1e-4]]), np.array([0, 1])
  separation = linear_separation(features, labels, 2, 1e-6)
  assert_head_is_right(separation, features, labels)
  assert not linear_separation(features, labels, 2, 1.1 * separation.margin).separable


def test_a_certificate_is_the_exact_mixture():
  """A point of class 1 a third of the way between two of class 0 is their mixture by 1/3 and 2/3, halved."""
  labels, pairs = [0, 1, 0], [(0, 1), (1, 0), (2, 1)]
  weights = exact_certificate(MIDDLE_APART, labels, pairs, 2)
  assert weights == [THIRD / 2, HALF, THIRD] and all(type(weight) is Fraction for weight in weights)
  assert combination(MIDDLE_APART, labels, pairs, weights, 2) == [[0, 0], [0, 0]]


def test_three_classes_on_one_prediction_make_a_cycle():
  """The same G labelled 0, 1 and 2: each must beat the next, with a third of the weight each."""
  features, pairs = [[QUARTER, 1 - QUARTER]] * 3, [(0, 1), (1, 2), (2, 0)]
  assert exact_certificate(features, [0, 1, 2], pairs, 3) == [THIRD] * 3


@pytest.mark.parametrize(
  ('features', 'labels', 'pairs'),
  [
    (MIDDLE_APART, [0, 1, 0], [(0, 1), (1, 0)]),
    (MIDDLE_APART, [1, 0, 0], [(0, 0), (1, 1), (2, 1)]),
    (MIDDLE_APART, [0, 0, 1], [(0, 1), (1, 1), (2, 0)]),
    (MIDDLE_APART, [0, 1, 1], [(0, 1), (1, 0), (2, 0)]),
    ([*MIDDLE_APART, MIDDLE_APART[1]], [0, 1, 0, 1], [(0, 1), (1, 0), (2, 1), (3, 0)]),
    ([*MIDDLE_APART, [HALF, HALF]], [0, 1, 0, 1], [(0, 1), (1, 0), (2, 1), (3, 0)]),
    (MIDDLE_APART, [0, 1, 0], []),
    (MIDDLE_APART, [0, 1, 0], np.zeros((0, 2), int)),
  ],
  ids=['a pair short', 'separable', 'separable 2', 'separable 3', 'twice the same', 'two proofs', 'none', 'no pairs'],
)
def test_what_is_no_unique_proof_is_none(features, labels, pairs):
  """None where pairs are missing, the data is separable (a weight would be negative), or proofs are several."""
  assert exact_certificate(features, labels, pairs, 2) is None


def test_the_pairs_of_separable_data_are_no_proof():
  """`Separation.pairs` of separable data can be handed on, and prove nothing."""
  features = np.array([[0.2, 0.8], [0.7, 0.3]])
  separation = linear_separation(features, [0, 1], 2, TOLERANCE)
  assert exact_certificate(rationals.exact(features), [0, 1], separation.pairs, 2) is None


def test_a_proof_by_hand_need_not_hold_in_floats():
  """The certificate is exact: moved by one unit in the last place, the middle point still has its proof, by other
  weights, but a pair that cancelled no longer does."""
  moved = MIDDLE_APART[1][0] + Fraction(1, 2**60)
  features = [MIDDLE_APART[0], [moved, 1 - moved], MIDDLE_APART[2]]
  weights = exact_certificate(features, [0, 1, 0], [(0, 1), (1, 0), (2, 1)], 2)
  assert weights[1] == HALF and weights[0] == THIRD / 2 - Fraction(5, 3 * 2**61)
  pair = [MIDDLE_APART[1], [moved, 1 - moved]]
  assert exact_certificate(pair, [0, 1], [(0, 1), (1, 0)], 2) is None
  assert exact_certificate([pair[0], pair[0]], [0, 1], [(0, 1), (1, 0)], 2) == [HALF, HALF]


@pytest.mark.parametrize('num_classes', [2, 3])
def test_an_hmm_with_more_states_than_tokens_has_an_exact_proof(num_classes):
  """H = 4 over V = 2: from the exact G of all texts the linear program finds pairs that have an exact proof, whose
  weights are those of the program and cancel to 0, not to rounding."""
  rng = np.random.default_rng(1)
  hmm = rationals.exact_hmm(HMM(*(rng.dirichlet(np.ones(size), shape) for size, shape in ((4, None), (4, 4), (2, 4)))))
  task_weights = rationals.exact(rng.standard_normal((num_classes, 4)))
  texts = [rationals.likelihood_rows(hmm, [2, *tokens]) for tokens in itertools.product(range(2), repeat=4)]
  features = [rationals.token_probs(hmm, rows, 0).tolist() for rows in texts]
  scores = np.array([task_weights @ rationals.state_probs(hmm, rows, 0, leave_out=True) for rows in texts])
  # An affine function of a posterior is a linear one, and centred scores make every class occur.
  labels = [int(row.argmax()) for row in scores - scores.mean(0)]
  assert set(labels) == set(range(num_classes))
  separation = linear_separation(features, labels, num_classes, TOLERANCE)
  assert_weights_prove(separation, np.array(features, float), labels, num_classes)
  proof = exact_certificate(features, labels, separation.pairs, num_classes)
  np.testing.assert_allclose(np.array(proof, float), separation.weights, atol=1e-6)
  assert all(weight > 0 for weight in proof) and sum(proof) == 1
  assert combination(features, labels, separation.pairs, proof, num_classes) == [[0, 0]] * num_classes
