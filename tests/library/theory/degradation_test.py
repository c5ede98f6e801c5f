"""Facts about ideal conditions made worse by a known amount."""

from conftest import dirichlet_hmm
import jax.numpy as jnp
import numpy as np
from oracles import log_space_conditional, rows_of
import pytest

from hmm_jax.theory.degradation import (
  mean_kl,
  Noisy,
  NoisyModel,
  weighted_head,
  with_kl,
  with_smallest_singular_value,
)
from hmm_jax.tuning.heads import LinearHead

RNG = np.random.default_rng(1)
DRAWN = dirichlet_hmm(RNG, 4, 6)
TOKENS = np.unique(RNG.integers(7, size=(400, 5), dtype=np.int32), axis=0)
MODEL = NoisyModel(6)


def _noisy(scale, salt=1, tokens=TOKENS):
  params = Noisy(DRAWN, jnp.float32(scale), jnp.uint32(salt))
  return np.asarray(MODEL.predict(params, MODEL.embed(params, tokens)), np.float64)


def _exact():
  return log_space_conditional(DRAWN, rows_of(DRAWN, TOKENS))


@pytest.mark.slow
def test_noise_is_a_fixed_function_of_the_input_and_the_salt():
  """The same input meets the same noise in any batch; another salt gives other noise everywhere."""
  noise = np.log(_noisy(0.3) / _exact()) / 0.3
  # Less its mean over six tokens, a standard normal number has variance 5/6.
  np.testing.assert_allclose((noise - noise.mean(-1, keepdims=True)).var(), 5 / 6, rtol=0.05)
  np.testing.assert_array_equal(_noisy(0.3, 1, TOKENS[::-1])[::-1], _noisy(0.3))
  assert (np.abs(_noisy(0.3, 2) / _noisy(0.3) - 1).max((1, 2)) > 0.03).all()


@pytest.mark.slow
def test_noise_has_the_given_kl_or_is_the_largest():
  """The KL(G || model) is of the first token; no noise up to the largest has 100 nats."""
  ideal = _exact()[:, 0]
  whole = Noisy(DRAWN, np.float32(1), np.uint32(1))
  for kl in (0.0, 1e-4, 1e-3):
    scale = with_kl(MODEL, whole, TOKENS, ideal, kl).scale
    assert mean_kl(ideal, _noisy(scale)[:, 0]) == pytest.approx(kl, rel=0.01, abs=1e-6)
  assert with_kl(MODEL, whole, TOKENS, ideal, 100.0).scale == 30


@pytest.mark.parametrize('target', [0.05, 1e-6])
def test_the_smallest_singular_value_is_the_given_one(target):
  """W keeps distributions in its columns, all but state 1 as they were."""
  worse = with_smallest_singular_value(DRAWN, target).emission_matrix
  np.testing.assert_allclose(np.linalg.svd(worse, compute_uv=False)[-1], target, rtol=1e-6)
  np.testing.assert_allclose(worse.sum(-1), 1, atol=1e-6)
  np.testing.assert_array_equal(np.delete(worse, 1, 0), np.delete(DRAWN.emission_matrix, 1, 0))


def test_the_weighted_inverse_is_that_of_generalised_least_squares():
  """For W = (1/2, 1/2) and errors of variance 1 and 4 it is (8/5, 2/5); errors of rounding leave W^+ = (1, 1)."""
  head, W = LinearHead(np.ones((2, 1)), np.zeros(1)), np.full((2, 1), 0.5)
  for scale, expected in ((1, [1.6, 0.4]), (1e-9, [1, 1])):
    errors = scale * np.diag([2**0.5, 8**0.5])
    np.testing.assert_allclose(weighted_head(head, W, errors, 1e-9).weights[:, 0], expected, rtol=1e-3)
