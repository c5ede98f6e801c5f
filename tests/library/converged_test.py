"""A converged head is the optimum: the only point without slope, which other methods reach from elsewhere too."""

import numpy as np
import pytest
import scipy.optimize
import scipy.special

from hmm_jax.converged import converged_head

RNG = np.random.default_rng(0)
FEATURES = RNG.dirichlet(np.ones(5), 80)
LABELS = {
  'separable': (FEATURES @ RNG.normal(size=(5, 3))).argmax(-1),
  'noisy': RNG.integers(3, size=80),
  'one class': np.full(80, 1),
}
HOW = dict(num_classes=3, tolerance=1e-9, max_iterations=2000)


def loss(parameters, labels, ridge):
  """Mean cross-entropy + ridge / 2 times the squares, by log_softmax, of weights [5, 3] with the bias below."""
  weights, bias = np.split(parameters.reshape(6, 3), [5])
  log_probs = scipy.special.log_softmax(FEATURES @ weights + bias, axis=1)
  return -log_probs[np.arange(80), labels].mean() + ridge / 2 * (parameters**2).sum()


def newton(labels, ridge):
  """The optimum by scipy's trust-region Newton on exact derivatives, from a random start."""
  with_ones, targets = np.hstack([FEATURES, np.ones((80, 1))]), np.eye(3)[labels]
  probs = lambda x: scipy.special.softmax(with_ones @ x.reshape(6, 3), axis=1)
  gradient = lambda x: (with_ones.T @ (probs(x) - targets) / 80).ravel() + ridge * x

  def hessian(x):
    p = probs(x)
    curvature_nxCxC = p[:, :, None] * np.eye(3) - p[:, :, None] * p[:, None]
    blocks = np.einsum('nf,ncd,ng->fcgd', with_ones, curvature_nxCxC, with_ones) / 80
    return blocks.reshape(18, 18) + ridge * np.eye(18)

  start = np.random.default_rng(1).normal(size=18)
  options = dict(gtol=1e-12, maxiter=2000)
  return scipy.optimize.minimize(
    loss, start, (labels, ridge), 'trust-exact', lambda x, *_: gradient(x), lambda x, *_: hessian(x), options=options
  ).x


@pytest.mark.parametrize('kind', LABELS)
@pytest.mark.parametrize('ridge', [1e-6, 1e-2])
def test_it_is_the_optimum_that_newton_finds(kind, ridge):
  """Loss and predictions are those of a trust-region Newton method from another start; the bound on the loss holds."""
  found, expected = converged_head(FEATURES, LABELS[kind], ridge=ridge, **HOW), newton(LABELS[kind], ridge)
  parameters = np.append(found.head.weights, found.head.bias)
  least = loss(expected, LABELS[kind], ridge)
  assert loss(parameters, LABELS[kind], ridge) <= least + found.gradient_norm**2 / (2 * ridge) + 1e-14
  # In units of |parameters|, since the flattest direction has the curvature of the ridge alone.
  np.testing.assert_allclose(parameters, expected, atol=2 * (found.gradient_norm + 1e-11) / ridge)
  np.testing.assert_allclose(parameters, expected, rtol=0, atol=1e-3 * np.abs(expected).max())


def test_the_gradient_is_that_of_the_loss():
  """Its norm, as reported, agrees with differences of the loss; at the optimum no step helps."""
  found = converged_head(FEATURES, LABELS['noisy'], ridge=1e-2, **HOW)
  parameters = np.append(found.head.weights, found.head.bias)
  slopes = scipy.optimize.approx_fprime(parameters, loss, 1e-7, LABELS['noisy'], 1e-2)
  assert found.gradient_norm <= 18**0.5 * HOW['tolerance'] and np.abs(slopes).max() < 1e-6
  best = loss(parameters, LABELS['noisy'], 1e-2)
  for step in np.random.default_rng(2).normal(0, 1e-2, (20, 18)):
    assert loss(parameters + step, LABELS['noisy'], 1e-2) > best


def test_separable_labels_are_learned_and_the_type_of_features_is_no_matter():
  """A small ridge leaves hardly an error on separable labels; float32 features give the optimum of their values."""
  found = converged_head(FEATURES, LABELS['separable'], ridge=1e-6, **HOW)
  predicted = (FEATURES @ found.head.weights + found.head.bias).argmax(-1)
  assert (predicted == LABELS['separable']).all()
  rounded = np.float32(FEATURES)
  of_float32 = converged_head(rounded, LABELS['separable'], ridge=1e-6, **HOW)
  of_float64 = converged_head(np.float64(rounded), LABELS['separable'], ridge=1e-6, **HOW)
  np.testing.assert_array_equal(of_float32.head.weights, of_float64.head.weights)


@pytest.mark.parametrize(
  ('changes', 'named'),
  [
    ({'ridge': 0.0}, 'ridge is 0.0'),
    ({'ridge': -1.0}, 'ridge is -1.0'),
    ({'max_iterations': 3}, 'max_iterations is 3'),
  ],
)
def test_what_cannot_converge_is_refused(changes, named):
  """No ridge, for which no optimum need exist, and too few iterations."""
  with pytest.raises(ValueError, match=named):
    converged_head(FEATURES, LABELS['separable'], **{'ridge': 1e-6, **HOW, **changes})


def test_features_that_are_no_numbers_are_refused():
  features = np.where(np.arange(5) == 2, np.nan, FEATURES)
  with pytest.raises(ValueError, match='not finite'):
    converged_head(features, LABELS['noisy'], ridge=1e-6, **HOW)
