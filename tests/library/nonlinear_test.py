"""Forms of degree k: their inner products, and what one recovers of a state."""

import math

import numpy as np
import pytest

from hmm_jax.theory.powers import emission_powers, form_head
from hmm_jax.tuning.nonlinear import power_features

V, RNG = 4, np.random.default_rng(0)


@pytest.mark.parametrize('degree', [1, 2, 3])
def test_inner_products_of_powers_are_powers_of_inner_products(degree):
  features = RNG.normal(size=(6, V))
  powers = power_features(features, degree)
  assert powers.shape == (6, math.comb(V + degree - 1, degree)) and powers.dtype == np.float64
  np.testing.assert_allclose(powers @ powers.T, (features @ features.T) ** degree, rtol=1e-12, atol=1e-14)


def test_a_form_of_degree_k_gives_the_weight_of_every_state():
  """Of as many states as it has coefficients, 10 at V = 4 and k = 2, where a linear head reaches 4; of 11 none does."""
  emissions, mu = RNG.dirichlet(np.ones(V), 11), RNG.normal(size=(2, 11))
  assert [emission_powers(emissions[:10], k).rank for k in (1, 2)] == [4, 10]
  head = form_head(emissions[:10], mu[:, :10], 2)
  np.testing.assert_allclose(power_features(emissions[:10], 2) @ head.weights, mu[:, :10].T, atol=1e-6)
  with pytest.raises(ValueError, match='^degree is 2, at which the 11 powers have rank 10; valid'):
    form_head(emissions, mu, 2)
