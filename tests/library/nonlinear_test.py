"""Facts about heads that are not linear: forms of degree k, a hidden layer, and what a form recovers of a state."""

import math

from conftest import in_float64
import jax
import numpy as np
import pytest

from hmm_jax.theory.powers import emission_powers, form_head
from hmm_jax.tuning.heads import LinearHead
from hmm_jax.tuning.nonlinear import Mlp, Polynomial, power_features

V = 4


@pytest.fixture
def rng():
  return np.random.default_rng(0)


@pytest.mark.parametrize('degree', [1, 2, 3])
def test_inner_products_of_powers_are_powers_of_inner_products(rng, degree):
  features = rng.normal(size=(6, V))
  powers = power_features(features, degree)
  assert powers.shape == (6, math.comb(V + degree - 1, degree)) and powers.dtype == np.float64
  np.testing.assert_allclose(powers @ powers.T, (features @ features.T) ** degree, rtol=1e-12, atol=1e-14)


def test_a_quadratic_head_is_any_quadratic_form(rng):
  """g^T Q g + b for a symmetric Q, behind a prompt of three rows."""
  head, form, bias = Polynomial(2, degree=2), rng.normal(size=(V, V)), rng.normal(size=2)
  form += form.T
  rows, columns = np.triu_indices(V)
  # An entry off the diagonal stands for two products.
  weights = form[rows, columns] * np.where(rows == columns, 1, math.sqrt(2))
  outputs = rng.dirichlet(np.ones(V), (7, 5))
  params = LinearHead(np.stack([weights, 0 * weights], 1), bias)
  read = head.read(outputs[:, head.positions(3)], np.zeros((7, 2), int))
  g = outputs[:, 3]
  expected = np.stack([np.einsum('nv,vw,nw->n', g, form, g), np.zeros(7)], 1) + bias
  np.testing.assert_allclose(in_float64(head.scores, params, read), expected, atol=1e-13)


def test_a_head_with_a_hidden_layer_is_two_layers_with_a_relu(rng):
  head = Mlp(2, width=5)
  start = head.init(jax.random.key(0), V, 0, 9)
  params, features = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), start), rng.normal(size=(7, V))
  inner = np.maximum(features @ params.hidden.weights + params.hidden.bias, 0)
  expected = inner @ params.output.weights + params.output.bias
  np.testing.assert_allclose(in_float64(head.scores, params, features), expected, atol=1e-12)


def test_a_form_of_degree_k_gives_the_weight_of_every_state(rng):
  """Of as many states as it has coefficients, 10 at V = 4 and k = 2, where a linear head reaches 4; of 11 none does."""
  emissions, mu = rng.dirichlet(np.ones(V), 11), rng.normal(size=(2, 11))
  assert [emission_powers(emissions[:10], k).rank for k in (1, 2)] == [4, 10]
  head = form_head(emissions[:10], mu[:, :10], 2)
  np.testing.assert_allclose(power_features(emissions[:10], 2) @ head.weights, mu[:, :10].T, atol=1e-6)
  with pytest.raises(ValueError, match='^degree is 2, at which the 11 powers have rank 10; valid'):
    form_head(emissions, mu, 2)
