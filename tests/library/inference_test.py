"""Facts about exact inference and its derivatives, checked against enumeration, dynamax and hmmlearn."""

from conftest import at, dirichlet_hmm, enumerated_posterior, in_float64
from inference_cases import assert_posteriors_close, CASES, IMPOSSIBLE, stacked
import jax
import jax.numpy as jnp
from memory_hmm_cases import dense_hmm
import numpy as np
from oracles import log_space_posterior
import pytest

from hmm_jax.distributions import hmm as hmm_lib, interop, memory_hmm as memory_lib
from hmm_jax.inference.posterior import forward_backward

# Half a unit in the last place of a float32 below 1: the arithmetic is float64, and only the result is rounded.
ROUNDING = 3.1e-8
# The largest slope that float32 results hold.
HELD = float(jnp.finfo(jnp.float32).max) * 1e-6
WEIGHTS = np.float32(np.random.default_rng(1).normal(size=(4, 4, 3)))


def objective(posterior):
  """A random linear function of all that a posterior tells; without the log-likelihood where that is -inf."""
  loglik = jnp.where(jnp.isfinite(posterior.marginal_loglik), posterior.marginal_loglik, 0)
  return (WEIGHTS.astype(loglik.dtype) * jnp.stack(posterior[:4])).sum() + loglik


def slopes_by(posterior_of):
  """(chains, rows) -> the derivatives of `objective` by both and the posteriors, of each case."""

  def objective_and_posterior(chain, rows):
    posterior = posterior_of(chain, rows)
    return objective(posterior), posterior

  return jax.jit(jax.vmap(jax.grad(objective_and_posterior, (0, 1), has_aux=True)))


@pytest.fixture(scope='module')
def posteriors():
  """By name of the case: the posterior in float32 and in float64."""
  cases, of_each = stacked(CASES.values()), jax.vmap(forward_backward)
  both = jax.tree.map(np.asarray, (of_each(*cases), in_float64(of_each, *cases)))
  return {name: at(both, i) for i, name in enumerate(CASES)}


@pytest.mark.parametrize('name', CASES)
def test_posterior_equals_enumeration(posteriors, name):
  """Every field is its definition, a sum over state paths; float32 results are float64's, rounded.

  Zeros are exact. Impossible evidence gives zeros except in rows that leave out the impossible token.
  """
  case, (single, double) = at(stacked([CASES[name]]), 0), posteriors[name]
  expected = enumerated_posterior(*jax.tree.map(np.float64, case))
  assert np.isneginf(expected.marginal_loglik) == (name in IMPOSSIBLE)
  assert_posteriors_close(log_space_posterior(*case), expected, 1e-12)
  assert {x.dtype for x in single} == {np.dtype('float32')}
  assert_posteriors_close(double, expected, 1e-12)
  assert_posteriors_close(single, expected, ROUNDING, loglik_rtol=6e-8)
  for posterior in (single, double):
    assert all((x[y == 0] == 0).all() for x, y in zip(posterior[:4], expected[:4], strict=True))


@pytest.mark.slow
def test_gradient_equals_enumeration():
  """Derivatives by rows, transitions and start are those of the sum over paths, at exact zeros as well.

  Float32 holds them to a millionth of its largest number, and rounds them from float64; none is NaN.
  """
  cases, ours = stacked(CASES.values()), slopes_by(forward_backward)
  by_paths = slopes_by(lambda chain, rows: enumerated_posterior(chain, rows, xp=jnp))
  slopes = ours(*cases)[0], in_float64(ours, *cases)[0], in_float64(by_paths, *cases)[0]
  is_possible = np.array([name != 'contradiction' for name in CASES])
  for leaves in zip(*map(jax.tree.leaves, slopes), strict=True):
    assert np.isfinite(leaves[0]).all()
    # If the evidence is impossible the slope at an exact zero is 0.
    single, double, enumerated = (np.asarray(leaf)[is_possible] for leaf in leaves)
    scale = 1 + np.abs(enumerated)
    np.testing.assert_array_less(np.abs(double - enumerated) / scale, 1e-12)
    np.testing.assert_array_less(np.abs(single - np.clip(enumerated, -HELD, HELD)) / scale, 2e-7)


@pytest.mark.slow
def test_inference_equals_dynamax_and_hmmlearn():
  """Posteriors of 40 tokens are those of two other libraries in float64; their parameters are ours again."""
  from dynamax.hidden_markov_model import CategoricalHMM
  import hmmlearn.hmm

  rng = np.random.default_rng(0)
  hmm, tokens = dirichlet_hmm(rng, 5, num_tokens=7), rng.integers(7, size=40)
  ours = in_float64(forward_backward, hmm, hmm.emission_matrix.T[tokens]).smoothed_probs

  def of_dynamax(hmm):
    model = CategoricalHMM(5, emission_dim=1, num_classes=7)
    parameters, _ = model.initialize(**interop.to_dynamax(hmm))
    return model.smoother(parameters, tokens[:, None]).smoothed_probs, interop.from_dynamax(parameters)

  theirs, hmm_again = in_float64(of_dynamax, hmm)
  model = hmmlearn.hmm.CategoricalHMM(n_components=5, n_features=7)
  vars(model).update(interop.to_hmmlearn(hmm))
  np.testing.assert_allclose([theirs, model.predict_proba(tokens[:, None])], [ours, ours], atol=1e-12)
  for mine, *others in zip(hmm, hmm_again, interop.from_hmmlearn(model)):
    np.testing.assert_allclose(others, [mine, mine], atol=1e-6)


def test_exact_code_is_compiled_and_its_products_ask_for_full_precision():
  """A public function is one program, and no product has the default precision, TF32 or bfloat16 on accelerators."""
  hmm, memory = jax.tree.map(np.float32, CASES['zero row'][0]), dense_hmm(np.random.default_rng(0), 2)
  for function, *arguments in (
    (memory_lib.memory_forward_backward, memory, np.ones((4, 12), np.float32)),
    (jax.jit(lambda hmm: hmm_lib.chunk_start(hmm, 4, 3)), hmm),
  ):
    jaxpr = jax.make_jaxpr(function)(*arguments)
    assert len(jaxpr.eqns) == 1
    assert str(jaxpr).count(' dot_general[') == str(jaxpr).count('(Precision.HIGHEST, Precision.HIGHEST)') > 0
