"""Facts about exact inference, checked against enumeration, float64, dynamax and hmmlearn."""

from conftest import dirichlet_hmm
from conftest import enumerated_posterior
from conftest import in_float64
from conftest import path_probs
from conftest import state_paths
from dynamax.hidden_markov_model import hmm_posterior_mode
from dynamax.hidden_markov_model import hmm_smoother
import hmmlearn.hmm
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hmm_jax import hmm as hmm_lib
from hmm_jax import inference
from hmm_jax import number_formats
from hmm_jax.hmm import HMM

forward_backward = jax.jit(inference.forward_backward)
batched_forward_backward = jax.jit(inference.batched_forward_backward)
most_likely_states = jax.jit(inference.most_likely_states)


def assert_posteriors_close(actual, expected, atol, loglik_rtol=None):
  for field, x, y in zip(actual._fields, actual, expected, strict=True):
    rtol = (loglik_rtol or atol) if field == 'marginal_loglik' else 0
    np.testing.assert_allclose(x, y, rtol=rtol, atol=atol, err_msg=field)


def at(tree, index):
  return jax.tree.map(lambda x: x[index], tree)


def paper_draw(num_states, seed=0):
  return hmm_lib.random_hmm(jax.random.key(seed), num_states, 10)


def sampled_tokens(hmm, batch_size, length):
  keys = jax.random.split(jax.random.key(1), batch_size)
  return jax.vmap(lambda key: hmm_lib.sample(key, hmm, length)[1])(keys)


def uniform_tokens(hmm, batch_size, length):
  return jax.random.randint(jax.random.key(2), (batch_size, length), 0, hmm.num_tokens)


def likelihood_rows(hmm, tokens):
  return hmm_lib.token_likelihoods(hmm, tokens, jnp.ones(tokens.shape, bool))


def random_rows(rng, length, num_states):
  """Likelihood rows: one in three all ones, and half the entries of one in three exact zeros."""
  rows = rng.uniform(size=(length, num_states))
  rows[1::3] = 1
  rows[2::3, ::2] = 0
  return rows


def log_uniform_chain(rng, num_states, length):
  """A float32 chain and rows whose entries spread over 36 orders of magnitude, evidence that it all but forbids."""
  spread = lambda *shape: 10.0 ** -rng.uniform(0, 36, shape)
  transition_matrix = spread(num_states, num_states)
  transition_matrix /= transition_matrix.sum(1, keepdims=True)
  chain = HMM(np.eye(num_states)[0], transition_matrix, transition_matrix)
  return jax.tree.map(jnp.float32, (chain, np.maximum(spread(length, num_states), 1e-37)))


# One chain of two states that never leaves its state, and evidence for the state that it is almost never in:
# the only path left has probability 1e-120, and no product of two float32 messages can hold it.
def surviving_path_case(power=-30):
  chain = HMM(jnp.array([1, 10.0**power]), jnp.eye(2), jnp.eye(2))
  alive = [1.0, 10.0**power]
  return chain, jnp.array([alive, alive, alive, [0.0, 1.0], [1.0, 1.0]])


@pytest.mark.parametrize('num_states, length', [(1, 3), (2, 1), (2, 6), (3, 5), (5, 4)])
def test_posterior_equals_enumeration(num_states, length):
  """Every field is its definition, a sum over state paths, with rows of ones and exact zeros among the evidence."""
  rng = np.random.default_rng(num_states)
  hmm, rows = dirichlet_hmm(rng, num_states), random_rows(rng, length, num_states)
  if num_states == 1:
    rows = np.maximum(rows, 0.5)
  actual = in_float64(forward_backward, hmm, rows)
  assert np.isfinite(actual.marginal_loglik)
  assert_posteriors_close(actual, enumerated_posterior(hmm, rows), 1e-12)


def test_posterior_equals_enumeration_with_zero_probabilities():
  """Zeros in the initial distribution and the transition matrix are exact as well."""
  rng = np.random.default_rng(0)
  hmm, rows = dirichlet_hmm(rng, 3), random_rows(rng, 5, 3)
  transition_matrix = hmm.transition_matrix * (1 - np.eye(3)[[1, 2, 0]])
  transition_matrix /= transition_matrix.sum(1, keepdims=True)
  hmm = HMM(np.array([0.0, 1.0, 0.0]), transition_matrix, hmm.emission_matrix)
  assert_posteriors_close(in_float64(forward_backward, hmm, rows), enumerated_posterior(hmm, rows), 1e-12)


def test_posterior_equals_dynamax():
  """Filtered, predicted and smoothed probabilities and the log-likelihood are those of dynamax."""
  rng = np.random.default_rng(0)
  hmm = dirichlet_hmm(rng, 5)  # dynamax is exact only where predicted probabilities stay above 1e-8.
  rows = rng.uniform(0.01, 1, (40, 5))
  ours = in_float64(forward_backward, hmm, rows)
  theirs = in_float64(jax.jit(hmm_smoother), hmm.initial_probs, hmm.transition_matrix, np.log(rows))
  for field in ('filtered_probs', 'predicted_probs', 'smoothed_probs'):
    np.testing.assert_allclose(getattr(ours, field), getattr(theirs, field), rtol=0, atol=1e-12, err_msg=field)
  np.testing.assert_allclose(ours.marginal_loglik, theirs.marginal_loglik, rtol=1e-12)


def hmmlearn_model(hmm):
  model = hmmlearn.hmm.CategoricalHMM(n_components=hmm.num_states, n_features=hmm.num_tokens)
  model.startprob_, model.transmat_, model.emissionprob_ = hmm
  return model


def test_posterior_equals_hmmlearn():
  """Smoothed probabilities and the log-likelihood of tokens are those of hmmlearn."""
  rng = np.random.default_rng(0)
  hmm, tokens = dirichlet_hmm(rng, 5, num_tokens=7), rng.integers(7, size=40)
  ours = in_float64(forward_backward, hmm, hmm.emission_matrix.T[tokens])
  loglik, smoothed = hmmlearn_model(hmm).score_samples(tokens[:, None])
  np.testing.assert_allclose(ours.smoothed_probs, smoothed, rtol=0, atol=1e-12)
  np.testing.assert_allclose(ours.marginal_loglik, loglik, rtol=1e-12)


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


def impossible_evidence():
  """(chain, rows, position of the row without which the evidence is possible, what is then known there)."""
  rng = np.random.default_rng(0)
  hmm, rows = dirichlet_hmm(rng, 2), rng.uniform(size=(5, 2))
  rows[2] = 0
  others = np.ones_like(rows)
  others[[0, 1, 3, 4]] = rows[[0, 1, 3, 4]]
  yield hmm, rows, 2, enumerated_posterior(hmm, others).smoothed_probs[2]
  silent = HMM(np.array([0.5, 0.5]), np.eye(2), np.eye(2))
  yield silent, np.eye(2)[[0, 0, 1, 0, 0]], 2, np.array([1.0, 0.0])


@pytest.mark.parametrize('case', [0, 1], ids=['zero row', 'contradiction'])
def test_impossible_evidence_has_zero_posterior(case):
  """Rows whose evidence is impossible are 0, its log-likelihood is -inf, and leaving out the culprit restores it."""
  chain, rows, culprit, expected_row = list(impossible_evidence())[case]
  for posterior in (
    in_float64(forward_backward, chain, rows),
    forward_backward(*jax.tree.map(jnp.float32, (chain, rows))),
  ):
    assert posterior.marginal_loglik == -np.inf
    np.testing.assert_array_equal(posterior.smoothed_probs, 0)
    np.testing.assert_array_equal(posterior.filtered_probs[culprit:], 0)
    np.testing.assert_array_equal(posterior.predicted_probs[culprit + 1 :], 0)
    np.testing.assert_array_equal(posterior.leave_one_out_probs[np.arange(5) != culprit], 0)
    np.testing.assert_allclose(posterior.leave_one_out_probs[culprit], expected_row, atol=1e-6)
    np.testing.assert_allclose(posterior.filtered_probs[:culprit].sum(-1), 1, atol=1e-6)
    assert_posteriors_close(posterior, enumerated_posterior(chain, rows), 1e-6)


def test_everything_impossible_is_zero_everywhere():
  """Where two rows are impossible no position can be left out to save the evidence; nothing is NaN."""
  posterior = forward_backward(paper_draw(4), jnp.ones((6, 4)).at[jnp.array([1, 4])].set(0))
  np.testing.assert_array_equal(posterior.leave_one_out_probs, 0)
  np.testing.assert_array_equal(posterior.smoothed_probs, 0)
  assert posterior.marginal_loglik == -np.inf


def mixed_batch(chain):
  """Ordinary evidence, evidence that the chain all but forbids, and impossible evidence, [3, 6, H]."""
  ordinary = np.random.default_rng(0).uniform(size=(6, chain.num_states))
  forbidden = np.where(np.arange(chain.num_states) == np.arange(6)[:, None] % 2, 1e-37, 0)
  forbidden[:, -1] = [0, 0, 0, 1, 0, 0]
  impossible = np.where(np.arange(6)[:, None] == 3, 0, ordinary)
  return jnp.float32(np.stack([ordinary, forbidden, impossible]))


@pytest.mark.parametrize('companion', [1, 2], ids=['all but forbidden', 'impossible'])
def test_batch_companions_do_not_interfere(companion):
  """A sequence that needs the wide format changes nothing for the other sequences of its batch."""
  hmm = hmm_lib.random_hmm(jax.random.key(0), 4, 10, transition_temperature=0.1)
  rows = mixed_batch(hmm)
  alone = forward_backward(hmm, rows[0])
  for together in (
    batched_forward_backward(hmm, rows[jnp.array([0, companion])]),
    jax.jit(jax.vmap(inference.forward_backward, (None, 0)))(hmm, rows[jnp.array([0, companion])]),
  ):
    assert_posteriors_close(at(together, 0), alone, 1e-6)
    companion_alone = forward_backward(hmm, rows[companion])
    assert_posteriors_close(at(together, 1), companion_alone, 1e-6)


def test_batched_equals_vmap_and_loop():
  """Leading axes are a batch: [2, 3, T, H] at once, by nested vmap, and one sequence at a time are the same."""
  hmm = paper_draw(4)
  tokens = jnp.concatenate([sampled_tokens(hmm, 3, 20), uniform_tokens(hmm, 3, 20)])
  rows = likelihood_rows(hmm, tokens).reshape(2, 3, 20, 4)
  batched = batched_forward_backward(hmm, rows)
  assert [x.shape for x in batched] == 4 * [(2, 3, 20, 4)] + [(2, 3)]
  mapped = jax.jit(jax.vmap(jax.vmap(inference.forward_backward, (None, 0)), (None, 0)))(hmm, rows)
  assert_posteriors_close(batched, mapped, 1e-6, loglik_rtol=1e-5)
  for i, j in np.ndindex(2, 3):
    assert_posteriors_close(at(batched, (i, j)), forward_backward(hmm, rows[i, j]), 1e-6, loglik_rtol=1e-5)


def test_batched_accepts_one_sequence():
  """Without a leading axis there is none in the results either."""
  hmm = paper_draw(4)
  rows = likelihood_rows(hmm, sampled_tokens(hmm, 1, 20)[0])
  batched = batched_forward_backward(hmm, rows)
  assert [x.shape for x in batched] == 4 * [(20, 4)] + [()]
  assert_posteriors_close(batched, forward_backward(hmm, rows), 1e-6)


def test_vmap_over_chains():
  """A batch of HMMs, each with its own batch of evidence, is what each gives alone."""
  hmms = jax.vmap(lambda key: hmm_lib.random_hmm(key, 4, 10))(jax.random.split(jax.random.key(0), 3))
  rows = jax.random.uniform(jax.random.key(1), (3, 2, 20, 4))
  rows = rows.at[1, 0, 7].set(0)
  for function in (inference.batched_forward_backward, jax.vmap(inference.forward_backward, (None, 0))):
    together = jax.jit(jax.vmap(function))(hmms, rows)
    for i in range(3):
      alone = batched_forward_backward(at(hmms, i), rows[i])
      assert_posteriors_close(at(together, i), alone, 1e-6)


@pytest.mark.parametrize('factor', [1e-30, 0.125, 7.0, 1e30])
def test_row_scale_changes_only_the_loglik(factor):
  """A likelihood row matters up to a positive factor, whose logarithm is added to the log-likelihood."""
  hmm = paper_draw(4)
  rows = likelihood_rows(hmm, sampled_tokens(hmm, 1, 20)[0])
  plain, scaled = forward_backward(hmm, rows), forward_backward(hmm, rows.at[5].multiply(factor))
  expected = plain._replace(marginal_loglik=plain.marginal_loglik + np.log(factor))
  assert_posteriors_close(scaled, expected, 1e-6)


def test_leave_one_out_ignores_its_own_row():
  """Whatever row t becomes, a zero row included, row t of `leave_one_out_probs` stays; other rows move."""
  hmm = hmm_lib.random_hmm(jax.random.key(0), 4, 10, transition_temperature=0.1)
  rows = jax.random.uniform(jax.random.key(1), (6, 4))
  plain = forward_backward(hmm, rows).leave_one_out_probs
  for t in range(6):
    for row in (jnp.array([0.1, 0.9, 0, 1e-30]), jnp.zeros(4)):
      changed = forward_backward(hmm, rows.at[t].set(row)).leave_one_out_probs
      np.testing.assert_allclose(changed[t], plain[t], rtol=0, atol=1e-6)
      assert np.abs(np.delete(changed - plain, t, 0)).max() > 1e-3


def test_leave_one_out_has_no_derivative_by_its_own_row():
  """The derivative of row t by likelihood row t is exactly 0, in both number formats; by other rows it is not."""
  hmm = hmm_lib.random_hmm(jax.random.key(0), 3, 10, transition_temperature=0.1)
  rows = jax.random.uniform(jax.random.key(1), (4, 3))
  jacobian_of = jax.jit(jax.jacrev(lambda rows: inference.forward_backward(hmm, rows).leave_one_out_probs))
  own = np.arange(4)
  for jacobian in (jacobian_of(rows), jacobian_of(rows.at[2].set(0))):
    np.testing.assert_array_equal(jacobian[own, :, own], 0)
    assert np.abs(jacobian[2, :, 1]).max() > 1e-3


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


@pytest.mark.parametrize('num_states, length', [(2, 1), (2, 6), (3, 5), (5, 4)])
def test_most_likely_states_equal_enumeration(num_states, length):
  """The Viterbi path is the state path of largest probability, exact zeros among the evidence."""
  rng = np.random.default_rng(length)
  hmm, rows = dirichlet_hmm(rng, num_states), random_rows(rng, length, num_states)
  best = state_paths(num_states, length)[path_probs(hmm, rows).argmax()]
  states = in_float64(most_likely_states, hmm, rows)
  assert states.dtype == np.int32
  np.testing.assert_array_equal(states, best)
  np.testing.assert_array_equal(most_likely_states(*jax.tree.map(jnp.float32, (hmm, rows))), best)


def test_most_likely_states_equal_dynamax_and_hmmlearn():
  """The Viterbi path of tokens is that of both libraries."""
  rng = np.random.default_rng(0)
  hmm, tokens = dirichlet_hmm(rng, 5, num_tokens=7), rng.integers(7, size=60)
  rows = hmm.emission_matrix.T[tokens]
  states = in_float64(most_likely_states, hmm, rows)
  mode = in_float64(jax.jit(hmm_posterior_mode), hmm.initial_probs, hmm.transition_matrix, np.log(rows))
  np.testing.assert_array_equal(states, mode)
  np.testing.assert_array_equal(states, hmmlearn_model(hmm).decode(tokens[:, None])[1])


def test_most_likely_states_of_an_improbable_path():
  """Logarithms do not underflow: the one path left is found, however improbable."""
  chain, rows = surviving_path_case()
  np.testing.assert_array_equal(most_likely_states(chain, rows), 1)
