"""Facts about exact inference, checked against enumeration, dynamax and hmmlearn."""

from conftest import dirichlet_hmm
from conftest import enumerated_posterior
from conftest import in_float64
from conftest import path_probs
from conftest import state_paths
from dynamax.hidden_markov_model import hmm_posterior_mode
from dynamax.hidden_markov_model import hmm_smoother
import hmmlearn.hmm
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

most_likely_states = jax.jit(inference.most_likely_states)


def random_rows(rng, length, num_states):
  """Likelihood rows: one in three all ones, and half the entries of one in three exact zeros."""
  rows = rng.uniform(size=(length, num_states))
  rows[1::3] = 1
  rows[2::3, ::2] = 0
  return rows


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
