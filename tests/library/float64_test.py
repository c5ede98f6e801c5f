"""Concrete float64 is not cut to float32; and the one private name of JAX that the library imports."""

import jax
import numpy as np
from oracles import log_space_posterior
import pytest

import hmm_jax as hj
from hmm_jax.inference.posterior import last_filtered

CHAIN = hj.HMM(np.array([0.25, 0.75]), np.array([[1, 1e-60], [0, 1.0]]), np.array([[1, 1e-40], [5e-324, 1]]))
# Every way for the chain to show 0 1 0, 1 0 0 or 0 0 0 needs a number that float32, or a CPU's float64, takes for 0.
TEXTS = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]])
COLUMNS = CHAIN.emission_matrix.T[TEXTS]
CASES = {
  'tokens': (CHAIN, COLUMNS),
  'near the largest of float64': (CHAIN._replace(emission_matrix=np.full((2, 2), 0.5)), np.full((3, 3, 2), 1.7e308)),
  'integers': (CHAIN, np.array([[[3_000_000_000, 1], [1, 2**40], [1, 1]]] * 3)),
}


@pytest.mark.parametrize('case', CASES.values(), ids=CASES)
def test_numbers_that_float32_lacks_enter_inference(case):
  """The evidence and the posteriors are those of sums of logarithms."""
  expected = log_space_posterior(*case)
  assert np.isfinite(expected.marginal_loglik).all()
  posterior = hj.forward_backward(*case)
  np.testing.assert_allclose(posterior.marginal_loglik, expected.marginal_loglik, 1e-6)
  np.testing.assert_allclose(posterior.smoothed_probs, expected.smoothed_probs, 1e-6, 1e-30)


def test_they_enter_every_pass_from_lists_and_inside_jit():
  expected = log_space_posterior(CHAIN, COLUMNS).marginal_loglik
  lists = hj.HMM(*(x.tolist() for x in CHAIN)), COLUMNS.tolist()
  for loglik in (jax.jit(lambda: hj.forward_backward(CHAIN, COLUMNS).marginal_loglik)(), last_filtered(*lists)[1]):
    np.testing.assert_allclose(loglik, expected, 1e-6)
