"""Facts about ideal conditions made worse by a known amount."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from oracles import log_space_conditional
import pytest

from hmm_jax.heads import LinearHead
from hmm_jax.hmm import HMM
from hmm_jax.theory.problems.degradation import (
  leaking,
  level_for_kl,
  Noisy,
  NoisyModel,
  weighted_head,
  with_smallest_singular_value,
)
from hmm_jax.theory.theorems import assumptions
from hmm_jax.theory.theorems.assumptions import Thresholds

pytestmark = pytest.mark.usefixtures('without_optimisation')

RNG = np.random.default_rng(1)
DRAWN = HMM(*(RNG.dirichlet(np.full(size, 0.5), shape).astype(np.float32) for size, shape in ((4, ()), (4, 4), (6, 4))))
TOKENS = RNG.integers(7, size=(400, 5), dtype=np.int32)
SIX_BY_SIX = Thresholds(support=0.0, rank=1e-12)


@functools.partial(jax.jit, static_argnames='model')
def _predict(model, params, tokens):
  return model.predict(params, model.embed(params, tokens))


def _predicted(scale, salt=1, tokens=TOKENS, forgetting=0.0):
  params = Noisy(DRAWN, jnp.float32(scale), jnp.uint32(salt), jnp.float32(forgetting))
  return np.asarray(_predict(NoisyModel(6, reach=1), params, tokens))


def _exact(tokens=TOKENS):
  return log_space_conditional(DRAWN, np.vstack([DRAWN.emission_matrix.T, np.ones((1, 4))])[tokens])


def test_no_noise_is_the_exact_model():
  """Scale 0 leaves G as it is, to rounding."""
  np.testing.assert_allclose(_predicted(0.0), _exact(), atol=1e-6)


def test_noise_is_a_fixed_function_of_the_input_and_the_salt():
  """The same input meets the same noise in any batch; another token, or another salt, other noise everywhere."""
  noisy = _predicted(0.3)
  np.testing.assert_allclose(_predicted(0.3, tokens=TOKENS[::-1])[::-1], noisy, rtol=1e-5)
  changed = np.where(np.arange(5) == 4, (TOKENS + 1) % 6, TOKENS)
  shift = lambda probs, exact: np.log(probs / exact)
  here = shift(noisy, _exact())
  for other, exact in ((_predicted(0.3, tokens=changed), _exact(changed)), (_predicted(0.3, salt=2), _exact())):
    moved = np.abs(shift(other, exact) - here).max((1, 2))
    assert (moved > 0.1).all()


def test_noise_is_standard_normal_on_log_probabilities():
  """log(noisy / G) less its mean over tokens has mean 0 and variance scale^2 (1 - 1/V), uncorrelated over inputs."""
  scale = 0.01
  shifts = np.log(_predicted(scale).astype(np.float64) / _exact())
  residuals = (shifts - shifts.mean(-1, keepdims=True)) / scale
  unique = np.unique(TOKENS, axis=0, return_index=True)[1]
  residuals = residuals[unique]
  np.testing.assert_allclose(residuals.var(), 5 / 6, rtol=0.05)
  pairs = np.corrcoef(residuals.reshape(len(residuals), -1))
  assert np.abs(pairs - np.eye(len(pairs))).mean() < 0.2


def test_impossible_evidence_stays_zero():
  """Where G is defined as 0 the noisy model predicts 0, not NaN."""
  hmm = HMM(*map(np.float32, ([1, 0], np.eye(2), np.eye(2))))
  model = NoisyModel(2, reach=1)
  params = Noisy(hmm, jnp.float32(0.3), jnp.uint32(0), jnp.float32(0))
  impossible = np.int32([[0, 1, 1]])
  np.testing.assert_array_equal(log_space_conditional(hmm, np.eye(2)[impossible])[0, 0], 0)
  np.testing.assert_array_equal(_predict(model, params, impossible)[0, 0], 0)


def test_gradients_see_g_alone():
  """The slope by a prompt is that of G weighed by the noise factor, and finite."""
  model, prompt = NoisyModel(6, reach=1), jnp.full((1, 4), 0.7)

  @jax.jit
  @jax.grad
  def slope(prompt, scale):
    params = Noisy(DRAWN, scale, jnp.uint32(0), jnp.float32(0))
    rows = jnp.concatenate([prompt, model.embed(params, TOKENS[0])])
    return model.predict(params, rows[None])[0, 1, 0]

  exact, noisy = (slope(prompt, jnp.float32(scale)) for scale in (0.0, 1e-3))
  assert np.isfinite(noisy).all()
  np.testing.assert_allclose(noisy, exact, rtol=0.02, atol=1e-4)


def test_the_smallest_singular_value_is_what_was_asked_for():
  """W keeps distributions in its columns, all but state 1 as they were."""
  W = np.asarray(DRAWN.emission_matrix, np.float64)
  for target in (0.05, 1e-3, 1e-6):
    worse = with_smallest_singular_value(DRAWN, target)
    np.testing.assert_allclose(np.linalg.svd(worse.emission_matrix, compute_uv=False)[-1], target, rtol=1e-6)
    np.testing.assert_allclose(worse.emission_matrix.sum(-1), 1, atol=1e-6)
    np.testing.assert_array_equal(np.delete(worse.emission_matrix, 1, 0), np.delete(W, 1, 0))


@pytest.mark.parametrize('target', [0.0, -1.0, 2.0])
def test_a_singular_value_out_of_reach_is_refused(target):
  """Zero, a negative one, and one above what W has."""
  with pytest.raises(ValueError, match='target is'):
    with_smallest_singular_value(DRAWN, target)


def test_dependent_columns_cannot_be_made_worse():
  """More states than tokens have no smallest singular value above 0."""
  with pytest.raises(ValueError, match='target is'):
    with_smallest_singular_value(HMM(np.full(6, 1 / 6), np.eye(6), RNG.dirichlet(np.ones(4), 6)), 1e-3)


def test_a_leak_breaks_assumption_3_5_but_for_its_threshold():
  """B moves out of H* with the given probability; the assumption fails exactly, and holds over a threshold above it."""
  transition_matrix = np.array([[0.5, 0, 0.5], [0, 0.5, 0.5], [0.5, 0.5, 0]])
  hmm = HMM(np.ones(3) / 3, transition_matrix, np.array([[2, 1], [0, 3], [3, 0]]) / 3)
  task_weights = np.array([[1, -1, 0], [0, 0, 0]])
  leaked = leaking(hmm, np.array([2]), np.array([0, 1]), 0.1)
  np.testing.assert_allclose(leaked.transition_matrix[2], [0.45, 0.45, 0.1])
  np.testing.assert_array_equal(leaked.transition_matrix[:2], transition_matrix[:2])
  holds = lambda hmm, support: (
    assumptions.relaxed_non_degeneracy(hmm, task_weights, SIX_BY_SIX._replace(support=support), 1000).holds
  )
  assert holds(hmm, 0.0) and not holds(leaked, 0.0) and holds(leaked, 0.11)


def test_a_short_context_is_the_exact_model_of_fewer_tokens():
  """Forgetting all is G of the input with [MASK] wherever a token is further off than `reach`; less is the mixture."""
  nearby = np.empty((len(TOKENS), 5, 6))
  for position in range(5):
    is_near = np.abs(np.arange(5) - position) <= 1
    nearby[:, position] = _exact(np.where(is_near, TOKENS, 6))[:, position]
  np.testing.assert_allclose(_predicted(0.0, forgetting=1.0), nearby, atol=1e-6)
  np.testing.assert_allclose(_predicted(0.0, forgetting=0.3), 0.7 * _exact() + 0.3 * nearby, atol=1e-6)


@pytest.mark.parametrize(('kl', 'expected'), [(0.0, 0.0), (0.09, 0.3), (4.0, 1.0)])
def test_a_level_is_that_of_the_kl(kl, expected):
  """None for no KL, and all there is where the KL is out of reach."""
  assert level_for_kl(lambda level: level**2, kl, 1.0) == pytest.approx(expected, abs=1e-8)


def _weighted(rng, errors, ridge=1e-9):
  """A head M W^+ over three columns of W [6, 3], the same weighted by the errors, M and W."""
  W, M = rng.dirichlet(np.ones(6), 3).T, rng.normal(size=(2, 3))
  head = LinearHead((M @ np.linalg.pinv(W)).T, np.zeros(2))
  return head, weighted_head(head, W, errors, ridge), M, W


def test_the_weighted_inverse_is_that_of_generalised_least_squares():
  """M (W^T S^-1 W)^-1 W^T S^-1, which on W p is M p as before, and has the least variance under the errors."""
  rng = np.random.default_rng(3)
  errors = rng.normal(size=(500, 6)) * [1, 0.1, 2, 0.3, 1, 0.01] @ np.linalg.qr(rng.normal(size=(6, 6)))[0]
  head, weighted, M, W = _weighted(rng, errors)
  S = errors.T @ errors / 500
  expected = M @ np.linalg.solve(W.T @ np.linalg.inv(S) @ W, W.T @ np.linalg.inv(S))
  np.testing.assert_allclose(weighted.weights.T, expected, rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(weighted.weights.T @ W, M, atol=1e-9)
  spread = lambda one: ((errors @ one.weights) ** 2).mean(0)
  assert (spread(weighted) < 0.9 * spread(head)).all()


@pytest.mark.parametrize('scale', [0.0, 1e-9])
def test_no_error_leaves_the_pseudo_inverse(scale):
  """Neither exact predictions nor what float32 rounds weigh anything."""
  rng = np.random.default_rng(4)
  head, weighted, _, _ = _weighted(rng, scale * rng.normal(size=(50, 6)))
  np.testing.assert_allclose(weighted.weights, head.weights, rtol=1e-3, atol=1e-3)
