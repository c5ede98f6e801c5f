"""Concrete float64 is not cut to float32; and the one private name of JAX that the library imports."""

import jax
from jax._src import config
import numpy as np
from oracles import log_space_posterior, rows_of
import pytest

import hmm_jax as hj
from hmm_jax._support import float64
from hmm_jax.distributions import processes
from hmm_jax.inference.pairs import probs_between
from hmm_jax.inference.posterior import last_filtered
from hmm_jax.tuning import tasks

pytestmark = pytest.mark.usefixtures('without_optimisation')


def test_jax_has_the_switch_for_64_bits():
  """If a new JAX has moved it, find `explicit_x64_dtypes` in its sources, and import it from there in float64.py."""
  assert float64.explicit_x64_dtypes is config.explicit_x64_dtypes
  assert float64.ExplicitX64Mode is config.ExplicitX64Mode


CHAIN = hj.HMM(np.array([0.25, 0.75]), np.array([[1, 1e-60], [0, 1.0]]), np.array([[1, 1e-40], [5e-324, 1]]))
# Every way for the chain to show 0 1 0, 1 0 0 or 0 0 0 needs a number that float32, or a CPU's float64, takes for 0.
TEXTS = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]])
COLUMNS = CHAIN.emission_matrix.T[TEXTS]
CASES = {
  'tokens': (CHAIN, COLUMNS),
  'an outlier': (CHAIN, COLUMNS * 4e-256),
  'a number below the least normal one': (
    CHAIN._replace(initial_probs=np.array([1, 1e-60]), transition_matrix=np.eye(2)),
    np.array([[[1e-310, 1e-260], [1, 1], [1, 1]]] * 3),
  ),
  'below the least normal number': (CHAIN, np.full((3, 3, 2), 5e-324)),
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


def test_they_enter_every_pass_from_any_container():
  """Also inside `jit`."""
  hmm, rows = CASES['tokens']
  expected = log_space_posterior(hmm, rows).marginal_loglik
  lists = hj.forward_backward(hj.HMM(*(x.tolist() for x in hmm)), rows.tolist())
  for posterior in (lists, jax.jit(lambda: hj.forward_backward(hmm, rows))()):
    np.testing.assert_allclose(posterior.marginal_loglik, expected, 1e-6)
  np.testing.assert_allclose(last_filtered(hmm, rows)[1], expected, 1e-6)
  np.testing.assert_allclose(probs_between(hmm, rows[:, :1], rows[:, 2:]).sum(-1), 1, 1e-6)


@pytest.mark.slow
def test_tokens_of_a_wide_chain_keep_their_numbers():
  """Rows, predictions, labels and paths, also of tokens that are mapped over."""
  rows = hj.token_likelihoods(CHAIN, TEXTS, TEXTS >= 0)
  np.testing.assert_array_equal(rows, COLUMNS)
  expected = log_space_posterior(CHAIN, COLUMNS)
  infer = lambda tokens: hj.forward_backward(CHAIN, hj.token_likelihoods(CHAIN, tokens, tokens >= 0))
  np.testing.assert_allclose(jax.vmap(infer)(TEXTS).marginal_loglik, expected.marginal_loglik, 1e-6)
  masked = tasks.hide(TEXTS, 2)
  labels = log_space_posterior(CHAIN, rows_of(CHAIN, masked)).leave_one_out_probs[:, 0]
  np.testing.assert_allclose(tasks.hidden_state_probs(CHAIN, masked), labels, 1e-9, 1e-20)
  ideal = expected.leave_one_out_probs @ CHAIN.emission_matrix
  np.testing.assert_allclose(hj.token_probs(hj.ExactModel(2), CHAIN, TEXTS), ideal, 1e-6, 1e-12)
  assert hj.most_likely_states(CHAIN, np.eye(2)).tolist() == [0, 1]


@pytest.mark.slow
def test_slopes_beside_float64_are_those_of_float32():
  """Gradients by float32 rows are the same if the chain is float64."""
  wide, rows = processes.mess3(), np.float32(np.random.default_rng(0).random((4, 3)))
  slopes = lambda hmm: jax.grad(lambda rows: (hj.conditional_token_probs(hmm, rows) ** 2).sum())(rows)
  np.testing.assert_allclose(slopes(wide), slopes(jax.tree.map(np.float32, wide)), 1e-4, 1e-6)
