"""A converged head is the optimum: the only point without slope."""

import numpy as np
import pytest
import scipy.special

from hmm_jax.tuning.optimum import converged_head, whitened_head

RNG = np.random.default_rng(0)
FEATURES = RNG.dirichlet(np.ones(5), 80)
LABELS = {
  'separable': (FEATURES @ RNG.normal(size=(5, 3))).argmax(-1),
  'noisy': RNG.integers(3, size=80),
  'one class': np.full(80, 1),
}
HOW = dict(num_classes=3, tolerance=1e-9, max_iterations=20)


@pytest.mark.parametrize('kind', LABELS)
@pytest.mark.parametrize('ridge', [1e-6, 1e-2])
def test_it_is_the_optimum(kind, ridge):
  """The gradient of the penalised cross-entropy, which is strictly convex, is 0 there but for the tolerance.

  Its norm is the one reported. Labels that features separate are fitted where the ridge is small. Newton's method needs
  few steps, which a wrong second derivative does not.
  """
  found = converged_head(FEATURES, LABELS[kind], ridge=ridge, **HOW)
  with_ones, parameters = np.hstack([FEATURES, np.ones((80, 1))]), np.vstack(found.head)
  residuals = scipy.special.softmax(with_ones @ parameters, axis=1) - np.eye(3)[LABELS[kind]]
  gradient = with_ones.T @ residuals / 80 + ridge * parameters
  assert np.abs(gradient).max() < 1.01 * HOW['tolerance']
  np.testing.assert_allclose(np.linalg.norm(gradient), found.gradient_norm, atol=1e-12)
  assert kind == 'noisy' or ridge > 1e-6 or ((with_ones @ parameters).argmax(-1) == LABELS[kind]).all()


@pytest.mark.parametrize('ridge', [1e-6, 1e-2])
def test_a_whitened_head_is_converged_on_features_of_unit_covariance(ridge):
  """Coordinates by Cholesky, here, give the same scores, also where features differ by 1e9 in their sizes.

  Probabilities sum to 1, which is no direction.
  """
  moved = FEATURES[:, :4] - FEATURES[:, :4].mean(0)
  coordinates = np.linalg.solve(np.linalg.cholesky(np.cov(moved.T, bias=True)), moved.T).T
  scores = lambda fit, x: x @ (head := fit(x, LABELS['noisy'], ridge=ridge, **HOW).head).weights + head.bias
  expected = scores(converged_head, coordinates)
  np.testing.assert_allclose(scores(whitened_head, FEATURES), expected, atol=1e-4)
  np.testing.assert_allclose(scores(whitened_head, moved * np.logspace(-150, 150, 4)), expected, atol=1e-4)
  rounding = 0.1 + np.spacing(0.1) * RNG.integers(2, size=(80, 3))
  np.testing.assert_allclose(scores(whitened_head, np.hstack([moved, rounding])), expected, atol=1e-4)
