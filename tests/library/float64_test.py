"""Concrete float64 is not cut to float32; and the one private name of JAX that the library imports."""

import hmmlearn.hmm
import jax
from jax._src import config
import numpy as np
from oracles import log_space_posterior, rows_of
import pytest

import hmm_jax as hj
from hmm_jax import float64, inference

pytestmark = pytest.mark.usefixtures('without_optimisation')


def test_the_switch_for_64_bits_is_where_jax_has_it():
  """Where a new JAX has moved it, find `explicit_x64_dtypes` in its sources, and import it from there in float64.py."""
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
    np.array([[[1e-310, 1e-260], [1, 1], [1, 1]]]),
  ),
  'below the least normal number': (CHAIN, np.full((1, 3, 2), 5e-324)),
  'near the largest of float64': (CHAIN._replace(emission_matrix=np.full((2, 2), 0.5)), np.full((1, 3, 2), 1.7e308)),
  'integers': (CHAIN, np.array([[[3_000_000_000, 1], [1, 2**40]]])),
}


@pytest.mark.parametrize('case', CASES.values(), ids=CASES)
def test_numbers_that_float32_lacks_enter_inference(case):
  """The evidence is that of sums of logarithms, from any container, in each pass, also inside `vmap` and `jit`."""
  hmm, rows = case
  expected = log_space_posterior(hmm, rows)
  assert np.isfinite(expected.marginal_loglik).all()
  infer = lambda *_: hj.forward_backward(hmm, rows)
  lists = hj.forward_backward(hj.HMM(*(x.tolist() for x in hmm)), rows.tolist())
  for posterior in (infer(), lists, jax.vmap(infer)(np.arange(1)), jax.jit(infer)()):
    np.testing.assert_allclose(np.ravel(posterior.marginal_loglik), expected.marginal_loglik, 1e-6)
    np.testing.assert_allclose(posterior.smoothed_probs.reshape(rows.shape), expected.smoothed_probs, 1e-6, 1e-30)
  np.testing.assert_allclose(inference.last_filtered(hmm, rows)[1], expected.marginal_loglik, 1e-6)
  np.testing.assert_allclose(inference.probs_between(hmm, rows[:, :1], rows[:, 2:]).sum(-1), 1, 1e-6)


def test_tokens_of_a_wide_chain_keep_their_numbers():
  """Rows, predictions, labels and paths, also of tokens that are mapped over, and slopes by what is traced."""
  rows = hj.token_likelihoods(CHAIN, TEXTS, TEXTS >= 0)
  np.testing.assert_array_equal(rows, COLUMNS)
  expected = log_space_posterior(CHAIN, COLUMNS)
  infer = lambda tokens: hj.forward_backward(CHAIN, hj.token_likelihoods(CHAIN, tokens, tokens >= 0))
  np.testing.assert_allclose(jax.vmap(infer)(TEXTS).marginal_loglik, expected.marginal_loglik, 1e-6)
  masked = hj.tasks.mask_first(TEXTS, 2)
  labels = log_space_posterior(CHAIN, rows_of(CHAIN, masked)).leave_one_out_probs[:, 0]
  np.testing.assert_allclose(hj.tasks.first_state_probs(CHAIN, masked), labels, 1e-9, 1e-20)
  ideal = expected.leave_one_out_probs @ CHAIN.emission_matrix
  np.testing.assert_allclose(hj.token_probs(hj.ExactModel(2), CHAIN, TEXTS), ideal, 1e-6, 1e-12)
  assert hj.most_likely_states(CHAIN, np.eye(2)).tolist() == [0, 1]
  slopes = jax.grad(lambda rows: hj.forward_backward(CHAIN, rows).marginal_loglik)(np.float32([[1, 0], [0, 1]]))
  assert np.isfinite(slopes).all() and slopes[0, 0] == slopes[1, 1] == 1


def test_slopes_beside_float64_are_those_of_float32():
  """Gradients by float32 rows, and by a float32 chain, are the same if the other argument is float64."""
  wide, rows = hj.processes.mess3(), np.random.default_rng(0).random((2, 4, 3))
  narrow, narrow_rows = jax.tree.map(np.float32, (wide, rows))
  total = lambda hmm, rows: (hj.conditional_token_probs(hmm, rows) ** 2).sum()
  by_rows = lambda hmm: jax.vmap(jax.grad(lambda rows: total(hmm, rows)))(narrow_rows)
  by_chain = lambda rows: jax.jit(jax.grad(lambda hmm: total(hmm, rows)))(narrow)
  slopes, expected = ((by_rows(hmm), *by_chain(rows)) for hmm, rows in ((wide, rows), (narrow, narrow_rows)))
  for found, x in zip(slopes, expected):
    np.testing.assert_allclose(found, x, 1e-4, 1e-6)


def test_a_fit_scores_as_in_hmmlearn(tmp_path):
  """Unseen texts, through the object and through files; its EM leaves cells down to 1e-323."""
  rng = np.random.default_rng(0)
  model = hmmlearn.hmm.CategoricalHMM(4, n_features=6, random_state=0, n_iter=200, tol=0)
  model.fit(np.repeat(rng.integers(0, 6, 40), 3)[:, None])
  fit = hj.from_hmmlearn(model)
  assert any(((0 < x) & (x < 1e-38)).any() for x in fit)
  texts = np.repeat(rng.integers(0, 6, (60, 4)), 3, axis=1)
  scores = np.array([model.score(text[:, None]) for text in texts])
  for name in ('', 'fit.json', 'fit.npz'):
    if name:
      hj.distribution_files.save_distribution(tmp_path / name, fit)
      fit = hj.distribution_files.load_distribution(tmp_path / name)
    rows = hj.token_likelihoods(fit, texts, np.ones(texts.shape, bool))
    np.testing.assert_allclose(hj.forward_backward(fit, rows).marginal_loglik, scores, 1e-5)
