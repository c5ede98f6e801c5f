"""Facts about inference in float32: it is that of float64, whatever underflows."""

from conftest import in_float64
from inference_cases import assert_posteriors_close
from inference_cases import at
from inference_cases import batched_forward_backward
from inference_cases import forward_backward
from inference_cases import likelihood_rows
from inference_cases import paper_draw
from inference_cases import sampled_tokens
from inference_cases import surviving_path_case
from inference_cases import uniform_tokens
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hmm_jax import hmm as hmm_lib
from hmm_jax import inference

from hmm_jax.hmm import HMM


def log_uniform_chain(rng, num_states, length):
  """A float32 chain and rows whose entries spread over 36 orders of magnitude, evidence that it all but forbids."""
  spread = lambda *shape: 10.0 ** -rng.uniform(0, 36, shape)
  transition_matrix = spread(num_states, num_states)
  transition_matrix /= transition_matrix.sum(1, keepdims=True)
  chain = HMM(np.eye(num_states)[0], transition_matrix, transition_matrix)
  return jax.tree.map(jnp.float32, (chain, np.maximum(spread(length, num_states), 1e-37)))


@pytest.mark.parametrize('num_states', [4, 10, 30])
def test_float32_equals_float64(num_states):
  """On the paper's draws float32 is within 5e-7 of float64 on text of the chain, and 2e-6 on text it all but forbids.

  Each sequence has its own certificate under `jax.vmap`, so none is saved by a companion that fails it.
  """
  hmm = paper_draw(num_states)
  for draw_tokens, tolerance in ((sampled_tokens, 5e-7), (uniform_tokens, 2e-6)):
    observed = jnp.arange(512) < jnp.where(jnp.arange(12) % 2, 129, 512)[:, None]
    rows = hmm_lib.token_likelihoods(hmm, draw_tokens(hmm, 12, 512), observed)
    expected = in_float64(batched_forward_backward, hmm, rows)
    actual = jax.jit(jax.vmap(inference.forward_backward, (None, 0)))(hmm, rows)
    assert_posteriors_close(actual, expected, tolerance, loglik_rtol=1e-5)


def test_float32_equals_float64_on_a_whole_document():
  """Errors do not grow with length: a document of 10240 tokens is within the same 5e-7."""
  hmm = paper_draw(10)
  rows = likelihood_rows(hmm, sampled_tokens(hmm, 1, 10240))
  expected = in_float64(batched_forward_backward, hmm, rows)
  assert_posteriors_close(batched_forward_backward(hmm, rows), expected, 5e-7, loglik_rtol=2e-6)


def test_float32_survives_underflow():
  """Where products of messages span hundreds of orders of magnitude float32 is still within 1e-6 of float64."""
  chains, rows = jax.tree.map(
    lambda *x: jnp.stack(x), *(log_uniform_chain(np.random.default_rng(seed), 4, 129) for seed in range(16))
  )
  of_each = jax.jit(jax.vmap(inference.forward_backward))
  expected = in_float64(of_each, chains, rows)
  assert np.isfinite(expected.marginal_loglik).all()
  assert_posteriors_close(of_each(chains, rows), expected, 1e-6)


@pytest.mark.parametrize('power', [-10, -15, -20, -25, -30, -37])
def test_only_an_improbable_path_survives(power):
  """The posterior is certain of the one path that the evidence leaves, however improbable the path."""
  chain, rows = surviving_path_case(power)
  posterior = forward_backward(chain, rows)
  np.testing.assert_allclose(posterior.smoothed_probs, np.tile([0.0, 1.0], (5, 1)), atol=1e-6)
  np.testing.assert_allclose(posterior.filtered_probs[3:], [[0, 1], [0, 1]], atol=1e-6)
  np.testing.assert_allclose(posterior.marginal_loglik, 4 * power * np.log(10), rtol=1e-6)
  expected = in_float64(forward_backward, chain, rows)
  assert_posteriors_close(posterior, expected, 1e-6)


@pytest.mark.parametrize('power', [-20, -30, -36])
def test_loglik_of_one_improbable_step(power):
  """A step of probability far below the smallest float32 has its finite logarithm."""
  chain = HMM(jnp.array([1, 10.0**power, 0]), jnp.eye(3), jnp.eye(3))
  rows = jnp.array([[0, 1e-15, 1.0], [1, 1, 1]])
  np.testing.assert_allclose(forward_backward(chain, rows).marginal_loglik, (power - 15) * np.log(10), rtol=1e-6)


@pytest.mark.parametrize('num_states', [10, 30])
def test_long_text_of_the_paper_draw_is_certified_narrow(num_states):
  """Text of 512 tokens under its own chain never needs the wide format, and narrow it is float64's in every field."""
  hmms = jax.vmap(lambda key: hmm_lib.random_hmm(key, num_states, 10))(jax.random.split(jax.random.key(0), 5))
  rows = jax.vmap(lambda hmm: likelihood_rows(hmm, sampled_tokens(hmm, 2, 512)))(hmms)

  def narrow(hmm, rows):
    chain, rows = inference._by_parts(hmm, jnp.moveaxis(rows, 0, -1))
    posterior, quality = inference._smooth(number_formats.NARROW, chain, rows)
    return inference._time_before_states(posterior), quality.certifies(rows.dtype)

  posterior, certified = jax.jit(jax.vmap(narrow))(hmms, rows)
  assert np.asarray(certified).all()
  expected = in_float64(jax.jit(jax.vmap(inference.batched_forward_backward)), hmms, rows)
  assert_posteriors_close(posterior, expected, 1e-6, loglik_rtol=1e-5)


def log_space_posterior(chain, rows):
  """The `Posterior` of one sequence by sums of logarithms in float64, in plain numpy."""
  with np.errstate(divide='ignore'):
    initial, transition, rows = (np.log(np.asarray(x, np.float64)) for x in (*chain[:2], rows))
  alphas, betas = [initial], [np.zeros_like(initial)]
  for row in rows[:-1]:
    alphas.append(np.logaddexp.reduce((alphas[-1] + row)[:, None] + transition, axis=0))
  for row in rows[:0:-1]:
    betas.insert(0, np.logaddexp.reduce(transition + row + betas[0], axis=1))
  alphas, betas = np.array(alphas), np.array(betas)

  def normalise(x):
    largest = x.max(1, keepdims=True)
    weights = np.where(np.isfinite(largest), np.exp(x - np.where(np.isfinite(largest), largest, 0)), 0)
    return weights / np.maximum(weights.sum(1, keepdims=True), 1)

  loglik = np.logaddexp.reduce(alphas[-1] + rows[-1])
  return inference.Posterior(*map(normalise, (alphas + rows, alphas, alphas + rows + betas, alphas + betas)), loglik)


def swing_case(rng, num_states=4, length=40):
  """States that are hardly left; evidence all but rules out those but one, later favours them, then takes it back."""
  decades = lambda *shape: 10.0 ** -rng.uniform(8, 37, shape)
  transition_matrix = np.eye(num_states) + decades(num_states, num_states) * (rng.random() < 0.5)
  first, turn = rng.integers(1, 4), rng.integers(15, 30)
  against, favour, back = rng.uniform(5, 37), rng.uniform(20, 75), rng.uniform(0, 75) * rng.integers(2)
  t = np.arange(length)
  others = np.select([t < first, t < turn], [10.0**-against, 1], 10.0 ** (-back / (length - turn)))
  rows = np.repeat(others[:, None], num_states, 1) * rng.uniform(0.97, 1, num_states)
  rows[:, 0] = np.where((t >= first) & (t < turn), 10.0 ** (-favour / (turn - first)), 1)
  initial = np.append(1, decades(num_states - 1) if rng.random() < 0.5 else rng.random(num_states - 1))
  # Float32 holds nothing below 1.2e-38.
  initial, transition_matrix, rows = (np.float32(np.where(x < 3e-38, 0, x)) for x in (initial, transition_matrix, rows))
  return HMM(initial / initial.sum(), transition_matrix, transition_matrix), rows


def test_evidence_that_is_contradicted_later():
  """Where late evidence reverses early evidence by up to 75 orders of magnitude every field is right, filtered too."""
  rng = np.random.default_rng(0)
  cases = [swing_case(rng) for _ in range(100)]
  chains, rows = jax.tree.map(lambda *x: jnp.stack(x), *cases)
  actual = jax.jit(jax.vmap(inference.forward_backward))(chains, rows)
  for i, case in enumerate(cases):
    assert_posteriors_close(at(actual, i), log_space_posterior(*case), 3e-6)


def swing_back_case(length):
  """Two states that never change, and rows that say 0, then 1 by 1e55, then 0 by 1e54; row 0 alone says 0 by 1e37."""
  rows = np.ones((length, 2), np.float32)
  rows[0, 1], rows[-2:, 1] = 1e-37, 1e-27
  rows[1:-2, 0] = 10 ** (-55 / (length - 3))
  return HMM(jnp.array([0.5, 0.5]), jnp.eye(2), jnp.eye(2)), rows


@pytest.mark.parametrize('batch_size', [1, 128])
def test_certificate_does_not_depend_on_the_batch(batch_size):
  """Losses past the largest float fail the certificate in batches of every size under `jax.vmap`.

  XLA's maximum of several thousand NaNs is -inf on a CPU, so that a bound must not become NaN.
  """
  chain, rows = swing_back_case(129)
  expected = log_space_posterior(chain, rows)
  np.testing.assert_allclose(expected.leave_one_out_probs[0], [1 / 11, 10 / 11], atol=1e-4)
  batch = jnp.tile(rows, (batch_size, 1, 1))
  actual = jax.jit(jax.vmap(inference.forward_backward, (None, 0)))(chain, batch)
  assert_posteriors_close(at(actual, 0), expected, 1e-5)


def test_subnormal_probabilities_count_as_zero():
  """A probability below the smallest normal float32 acts like 0, not like NaN."""
  tiny = np.float32(1e-40)
  rows = jnp.array([[1.0, 1.0], [0.5, 1.0], [0.5, 1.0]])
  chain = lambda x: HMM(np.float32([1, x]), np.float32([[1, x], [x, 1]]), np.eye(2, dtype=np.float32))
  for evidence in (rows, rows.at[1, 0].set(0)):
    with_subnormals = forward_backward(chain(tiny), evidence)
    np.testing.assert_array_equal(jnp.stack(with_subnormals[:4]), jnp.stack(forward_backward(chain(0), evidence)[:4]))


def test_float32_arrays_are_accepted_in_float64_mode():
  """Enabling float64 changes neither the results' type nor their values for float32 arrays."""
  chain, rows = surviving_path_case()
  expected = forward_backward(chain, rows)
  with jax.enable_x64(True):
    posterior = forward_backward(chain, rows)
    assert {x.dtype for x in posterior} == {np.dtype('float32')}
  assert_posteriors_close(posterior, expected, 1e-6)
