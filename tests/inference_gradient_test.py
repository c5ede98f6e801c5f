"""Facts about the derivatives of inference, checked against enumeration, float64 and finite differences."""

from conftest import dirichlet_hmm
from conftest import enumerated_posterior
from conftest import in_float64
from inference_cases import at
from inference_cases import likelihood_rows
from inference_cases import paper_draw
from inference_cases import uniform_tokens
import jax
import jax.numpy as jnp
import numpy as np
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


@pytest.fixture(scope='module')
def gradients():
  """Of every case, the derivatives in float32, in float64, and in float64 by enumeration."""
  cases = [*GRADIENT_CASES.values(), *map(scale_case, SCALES)]
  cases = jax.tree.map(lambda *leaves: np.float32(np.stack(leaves)), *cases)
  enumerated = objective_gradient(lambda chain, rows: enumerated_posterior(chain, rows, xp=jnp))
  of_each = jax.jit(jax.vmap(gradient))
  results = of_each(*cases), in_float64(of_each, *cases), in_float64(jax.jit(jax.vmap(enumerated)), *cases)
  names = [*GRADIENT_CASES, *SCALES]
  return {name: [at(result, i) for result in results] for i, name in enumerate(names)}


def assert_gradients_close(actual, expected, tolerance):
  for by in ('initial_probs', 'transition_matrix', 'likelihoods'):
    error = np.abs(actual[by] - expected[by]) / (1 + np.abs(expected[by]))
    np.testing.assert_array_less(error, tolerance, err_msg=by)


# Evidence that the narrow format serves; in the wide one slopes at exact zeros are held back.
NARROW_CASES = ('dense', 'zero likelihoods', 'zeros everywhere', 'path of 1e-10', 'zero row', 'last row zero')


@pytest.mark.parametrize('name', [*NARROW_CASES, *(k for k in SCALES if k <= 16)])
def test_gradient_equals_enumeration(gradients, name):
  """Derivatives by rows, transitions and start are those of the sum over paths, at exact zeros as well."""
  single, double, enumerated = gradients[name]
  assert_gradients_close(double, enumerated, 1e-11)
  assert_gradients_close(single, enumerated, 5e-6)


@pytest.mark.parametrize('k', SCALES)
def test_gradient_is_finite_at_every_scale(gradients, k):
  """No derivative overflows or is NaN, also where its true value passes the largest float32."""
  for by, x in gradients[k][0].items():
    assert np.isfinite(x).all(), by


def test_gradient_equals_finite_differences(gradients):
  """The derivative predicts what a small change of one likelihood does, upwards from an exact zero too."""
  chain, rows = jax.tree.map(np.float32, GRADIENT_CASES['zero likelihoods'])
  steps = np.concatenate([np.zeros((1, 4, 3)), 1e-6 * np.eye(12).reshape(12, 4, 3)])
  value = jax.jit(jax.vmap(lambda *arguments: objective(inference.forward_backward(*arguments)), (None, 0)))
  values = in_float64(value, chain, rows + steps)
  slopes = (values[1:] - values[0]).reshape(4, 3) / 1e-6
  np.testing.assert_allclose(gradients['zero likelihoods'][0]['likelihoods'], slopes, rtol=1e-4, atol=1e-4)


def test_gradient_in_a_batch_is_the_gradient_alone():
  """In a batch, by vmap or by the batched function, each sequence has the derivative that it has alone."""
  chain = jax.tree.map(jnp.float32, GRADIENT_CASES['dense'][0])
  rows = jnp.float32(np.stack([GRADIENT_CASES[name][1] for name in ('dense', 'zero likelihoods')]))
  by_rows = lambda rows: gradient(chain, rows)['likelihoods']
  total = lambda rows: jax.vmap(objective)(inference.batched_forward_backward(chain, rows)).sum()
  alone = jax.lax.map(by_rows, rows)
  for together in (jax.jit(jax.vmap(by_rows))(rows), jax.jit(jax.grad(total))(rows)):
    np.testing.assert_array_less(np.abs(together - alone) / (1 + np.abs(alone)), 5e-6)


def test_gradient_on_long_improbable_text():
  """On 129 tokens that the paper's draw all but forbids the derivative of the log-likelihood is that of float64.

  At exact zeros the wide format holds slopes back, so those are left out.
  """
  hmm = paper_draw(30)
  rows = likelihood_rows(hmm, uniform_tokens(hmm, 2, 129))
  slope = jax.jit(jax.grad(lambda hmm, rows: inference.batched_forward_backward(hmm, rows).marginal_loglik.sum(), 1))
  single, double = slope(hmm, rows), in_float64(slope, hmm, rows)
  assert np.abs(double).max() > 1e9
  error = np.abs(single - double) / (1 + np.abs(double))
  # The derivative by a likelihood is a posterior over that likelihood, and a posterior below 1e-38 is 0.
  nonzero = np.asarray(rows) > 1e-30
  np.testing.assert_array_less(error[nonzero], 5e-6)


def test_gradient_is_finite_on_impossible_and_improbable_text():
  """With four near-deterministic states uniform tokens have derivatives far beyond float32; none becomes NaN."""
  hmm = paper_draw(4)
  rows = likelihood_rows(hmm, uniform_tokens(hmm, 8, 129))

  def value(rows):
    posterior = inference.batched_forward_backward(hmm, rows)
    loglik = jnp.where(jnp.isfinite(posterior.marginal_loglik), posterior.marginal_loglik, 0)
    return loglik.sum() + jnp.stack(posterior[:4])[..., 0].sum()

  assert np.isfinite(jax.jit(jax.grad(value))(rows)).all()
