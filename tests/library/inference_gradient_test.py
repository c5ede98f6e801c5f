"""Facts about the derivatives of inference, checked against enumeration."""

import warnings

from conftest import compiling_fast, dirichlet_hmm, enumerated_posterior, in_float64
from inference_cases import at, likelihood_rows, paper_draw, sampled_tokens, uniform_tokens
import jax
import jax.numpy as jnp
import numpy as np
from oracles import log_space_posterior
import pytest

from hmm_jax import inference
from hmm_jax.hmm import HMM

GRADIENT_WEIGHTS = np.float32(np.random.default_rng(1).normal(size=(4, 4, 3)))


def objective(posterior):
  """A random linear function of all that a posterior tells; without the log-likelihood where that is -inf."""
  loglik = jnp.where(jnp.isfinite(posterior.marginal_loglik), posterior.marginal_loglik, 0)
  return (GRADIENT_WEIGHTS.astype(loglik.dtype) * jnp.stack(posterior[:4])).sum() + loglik


def objective_gradient(posterior_of):
  """(chain, rows) -> the derivatives of `objective`, by name of the argument."""

  def gradient(chain, rows):
    by_chain, by_rows = jax.grad(lambda *arguments: objective(posterior_of(*arguments)), (0, 1))(chain, rows)
    return {**by_chain._asdict(), 'likelihoods': by_rows}

  return gradient


gradient = objective_gradient(inference.forward_backward)


def gradient_cases():
  """(chain, rows) of 4 positions and 3 states, by name."""
  rng = np.random.default_rng(0)
  dense, rows = dirichlet_hmm(rng, 3, 3), rng.uniform(0.1, 1, (4, 3))
  zero_rows = rows.copy()
  zero_rows[1, 0] = zero_rows[2, 1:] = 0
  row = np.arange(4)[:, None]
  sparse_matrix = np.array([[0.3, 0, 0.7], [0.1, 0.5, 0.4], [1, 0, 0]])
  # Evidence that leaves one path, of probability e, and likelihoods of exactly 0 on the others.
  stay = lambda e: HMM(np.eye(3)[0], np.array([[1, e, 0], [0, 1, 1e-3], [0.2, 0.3, 0.5]]), np.eye(3))
  leave = np.array([[1.0, 0, 0], [0, 1, 0], [0, 1, 1], [1, 1, 0]])
  # Two states of probability 1e-60 that exclude each other by a zero; the third is impossible.
  rivals = HMM(np.array([0, 1e-30, 1]), np.eye(3), np.eye(3))
  rival_rows = np.array([[1, 1e-30, 1e-30], [1, 0.5, 1e-30], [1, 1, 0.5], [1, 1, 0.0]])
  return {
    'dense': (dense, rows),
    'zero likelihoods': (dense, zero_rows),
    'zeros everywhere': (HMM(np.eye(3)[0], sparse_matrix, np.eye(3)), zero_rows),
    'path of 1e-10': (stay(1e-10), leave),
    'path of 1e-20': (stay(1e-20), leave),
    'path of 1e-28': (stay(1e-28), leave),
    'paths of 1e-60': (rivals, rival_rows),
    'zero row': (dense, np.where(row == 2, 0, rows)),
    'last row zero': (dense, np.where(row == 3, 0, rows)),
    'contradiction': (HMM(np.array([0.5, 0.5, 0]), np.eye(3), np.eye(3)), np.eye(3)[[0, 0, 1, 0]]),
  }


def scale_case(k):
  """Evidence of probability 10^-k whose alternative, of probability about 1, a likelihood of exactly 0 rules out."""
  first, second, third = np.clip(k - 36 * np.arange(3), 0, 36)
  transition_matrix = np.array([[1, 1e-3, 0], [0, 1, 0], [0, 0, 1]])
  rows = np.array([[0, 1, 0], [1, 0.1**second, 1], [1, 0.1**third, 1], [1, 1, 1]])
  return HMM(np.array([1, 0.1**first, 0]), transition_matrix, np.eye(3)), rows


GRADIENT_CASES = gradient_cases()
SCALES = range(0, 112, 4)


# The largest slope that float32 results hold.
HELD = float(jnp.finfo(jnp.float32).max) * 1e-6


@pytest.fixture(scope='module')
def gradients():
  """Of every case, the derivatives in float32, in float64, and in float64 by enumeration."""
  cases = [*GRADIENT_CASES.values(), *map(scale_case, SCALES)]
  cases = jax.tree.map(lambda *leaves: np.float32(np.stack(leaves)), *cases)
  enumerated = objective_gradient(lambda chain, rows: enumerated_posterior(chain, rows, xp=jnp))
  of_each = jax.jit(jax.vmap(gradient))
  with warnings.catch_warnings():
    warnings.filterwarnings('error', 'Explicitly requested dtype')
    results = of_each(*cases), in_float64(of_each, *cases), in_float64(jax.jit(jax.vmap(enumerated)), *cases)
  names = [*GRADIENT_CASES, *SCALES]
  return {name: [at(result, i) for result in results] for i, name in enumerate(names)}


def assert_gradients_close(actual, expected, tolerance):
  for by in ('initial_probs', 'transition_matrix', 'likelihoods'):
    error = np.abs(actual[by] - expected[by]) / (1 + np.abs(expected[by]))
    np.testing.assert_array_less(error, tolerance, err_msg=by)


@pytest.mark.parametrize('name', [*GRADIENT_CASES, *SCALES])
def test_gradient_equals_enumeration(gradients, name):
  """Derivatives by rows, transitions and start are those of the sum over paths, at exact zeros as well.

  Float32 holds them to a millionth of its largest number, and rounds them from float64; none is NaN.
  """
  single, double, enumerated = gradients[name]
  assert all(np.isfinite(slopes).all() for slopes in single.values())
  # Where the evidence is impossible the slope at an exact zero is 0.
  if name != 'contradiction':
    assert_gradients_close(double, enumerated, 1e-12)
    held = {by: np.clip(slopes, -HELD, HELD) for by, slopes in enumerated.items()}
    assert_gradients_close(single, held, 2e-7)


def test_scales_reach_the_slopes_that_are_held(gradients):
  """The cases above have slopes on both sides of what float32 holds."""
  largest = [max(np.abs(slopes).max() for slopes in gradients[k][2].values()) for k in SCALES]
  assert min(largest) < HELD < max(largest)


def test_gradient_does_not_depend_on_how_it_is_taken(gradients):
  """Alone, in a batch, by vmap before or after, jitted inside or out: each sequence has the derivative it has alone.

  A companion is impossible, so that the batch takes logarithms too, whose slopes at exact zeros are 0.

  Every transpose stays in float64: none truncates, which would warn.
  """
  names = ('dense', 'zero likelihoods')
  chain = jax.tree.map(jnp.float32, GRADIENT_CASES['dense'][0])
  impossible = np.zeros((4, 3))
  rows = jnp.float32(np.stack([*(GRADIENT_CASES[name][1] for name in names), impossible]))
  value = lambda rows: objective(inference.forward_backward(chain, rows))
  total = lambda rows: jax.vmap(objective)(inference.forward_backward(chain, rows)).sum()
  ways = {
    'batch': lambda: jax.jit(jax.grad(total))(rows),
    'vmap of grad of jit': lambda: jax.vmap(jax.grad(jax.jit(value)))(rows),
    'grad of vmap of jit': lambda: jax.grad(lambda rows: jax.vmap(jax.jit(value))(rows).sum())(rows),
    'map of grad': lambda: jax.jit(lambda rows: jax.lax.map(jax.grad(value), rows))(rows),
  }
  with compiling_fast(), warnings.catch_warnings():
    warnings.filterwarnings('error', 'Explicitly requested dtype')
    for name, way in ways.items():
      slopes = np.asarray(way())
      for i, case in enumerate(names):
        np.testing.assert_allclose(slopes[i], gradients[case][0]['likelihoods'], rtol=2e-6, atol=2e-6, err_msg=name)


def test_nan_cotangents_stay_nan():
  """What is not a number upstream is not turned into one: a NaN cotangent has NaN slopes."""
  chain, rows = jax.tree.map(jnp.float32, GRADIENT_CASES['dense'])
  with compiling_fast():
    slopes = jax.jit(jax.grad(lambda rows: jnp.nan * inference.forward_backward(chain, rows).marginal_loglik))(rows)
  assert np.isnan(slopes).all()


@pytest.mark.parametrize('draw_tokens', [sampled_tokens, uniform_tokens])
def test_gradient_on_long_text(draw_tokens):
  """The slope of the log-likelihood by a likelihood is the smoothed probability over it, on 129 tokens, any text."""
  hmm = paper_draw(30)
  rows = likelihood_rows(hmm, draw_tokens(hmm, 2, 129))
  loglik = lambda rows: inference.forward_backward(hmm, rows).marginal_loglik.sum()
  positive = rows > 1.2e-38  # below, a likelihood counts as 0
  posterior = log_space_posterior(hmm, np.where(positive, rows, 0))
  expected = (posterior.smoothed_probs / np.where(positive, np.float64(rows), 1))[positive]
  slopes = np.asarray(jax.jit(jax.grad(loglik))(rows))[positive]
  np.testing.assert_array_less(np.abs(slopes - expected) / (1 + np.abs(expected)), 2e-7)


def test_gradient_is_finite_on_impossible_and_improbable_text():
  """With four near-deterministic states uniform tokens have derivatives far beyond float32; none becomes NaN."""
  hmm = paper_draw(4)
  rows = likelihood_rows(hmm, uniform_tokens(hmm, 8, 129))

  def value(rows):
    posterior = inference.forward_backward(hmm, rows)
    loglik = jnp.where(jnp.isfinite(posterior.marginal_loglik), posterior.marginal_loglik, 0)
    return loglik.sum() + jnp.stack(posterior[:4])[..., 0].sum()

  with compiling_fast():
    assert np.isfinite(jax.jit(jax.grad(value))(rows)).all()
