"""A converged head is the optimum: the only point without slope."""

import numpy as np
import pytest
import scipy.special

from hmm_jax.converged import converged_head, whitened_head

RNG = np.random.default_rng(0)
FEATURES = RNG.dirichlet(np.ones(5), 80)
LABELS = {
  'separable': (FEATURES @ RNG.normal(size=(5, 3))).argmax(-1),
  'noisy': RNG.integers(3, size=80),
  'one class': np.full(80, 1),
}
HOW = dict(num_classes=3, tolerance=1e-9, max_iterations=2000)


@pytest.mark.parametrize('kind', LABELS)
@pytest.mark.parametrize('ridge', [1e-6, 1e-2])
def test_it_is_the_optimum(kind, ridge):
  """The gradient of the penalised cross-entropy, which is strictly convex, is 0 there but for the tolerance.

  Its norm is the one reported. Labels that features separate are fitted where the ridge is small.
  """
  found = converged_head(FEATURES, LABELS[kind], ridge=ridge, **HOW)
  with_ones, parameters = np.hstack([FEATURES, np.ones((80, 1))]), np.vstack(found.head)
  residuals = scipy.special.softmax(with_ones @ parameters, axis=1) - np.eye(3)[LABELS[kind]]
  gradient = with_ones.T @ residuals / 80 + ridge * parameters
  assert np.abs(gradient).max() < 1.01 * HOW['tolerance']
  np.testing.assert_allclose(np.linalg.norm(gradient), found.gradient_norm, atol=1e-12)
  assert kind == 'noisy' or ridge > 1e-6 or ((with_ones @ parameters).argmax(-1) == LABELS[kind]).all()


@pytest.mark.parametrize('ridge', [1e-6, 1e-2])
def test_a_whitened_head_hangs_on_no_coordinates(ridge):
  """Of features that are moved, and stretched by 1 to 1e9, its scores are the same, up to what all classes share.

  Those of a head that is converged in these coordinates are not. Probabilities sum to 1, which is no direction.
  """
  labels, stretched = LABELS['noisy'], (FEATURES[:, :4] @ np.diag([1, 1e-3, 1e-6, 1e-9])) + 7.0
  scores = lambda fit, x: x @ (head := fit(x, labels, ridge=ridge, **HOW).head).weights + head.bias
  np.testing.assert_allclose(scores(whitened_head, stretched), scores(whitened_head, FEATURES), atol=1e-4)
  assert np.abs(scores(converged_head, stretched) - scores(converged_head, FEATURES)).max() > 0.01


def test_the_ridge_of_a_whitened_head_is_that_of_unit_covariance():
  """Its gradient is 0 with half the ridge times the squares of the weights in standard deviations, and of the bias."""
  head = whitened_head(FEATURES[:, :4], LABELS['noisy'], ridge=0.1, **HOW).head
  bias = head.bias + FEATURES[:, :4].mean(0) @ head.weights
  residuals = scipy.special.softmax(FEATURES[:, :4] @ head.weights + head.bias, axis=1) - np.eye(3)[LABELS['noisy']]
  covariance = np.cov(FEATURES[:, :4].T, bias=True)
  slope = (FEATURES[:, :4] - FEATURES[:, :4].mean(0)).T @ residuals / 80 + 0.1 * covariance @ head.weights
  np.testing.assert_allclose(slope, 0, atol=1e-8)
  np.testing.assert_allclose(residuals.mean(0) + 0.1 * bias, 0, atol=1e-8)


@pytest.mark.parametrize(
  'field, value', [('ridge', 0.0), ('ridge', -1.0), ('max_iterations', 3), ('features', np.nan * FEATURES)]
)
def test_what_cannot_converge_is_refused(field, value):
  """No ridge, for which no optimum need exist, too few iterations, or features that are no numbers."""
  with pytest.raises(ValueError, match=f'^{field} '):
    converged_head(**{'features': FEATURES, 'labels': LABELS['separable'], 'ridge': 1e-6, **HOW, field: value})
