"""Precision of inference: float32 results equal logarithms in float64, also if messages underflow."""

from conftest import assert_same_bits, compiling_fast, dirichlet_hmm
from inference_cases import assert_posteriors_close, stacked
import jax
import jax.numpy as jnp
import numpy as np
from oracles import log_space_posterior
import pytest

from hmm_jax._support import float64
from hmm_jax.distributions import sampling
from hmm_jax.distributions.hmm import HMM, random_hmm
from hmm_jax.inference import arithmetic, passes
from hmm_jax.inference.posterior import forward_backward, last_filtered

pytestmark, IS_OPTIMISED = pytest.mark.slow, True

of_each = jax.jit(jax.vmap(forward_backward))
# Below this log-evidence of rows with maximum 1 inference may take logarithms, as its docstring says.
LEAST_LOG_EVIDENCE = -650


def assert_rounded(actual, expected):
  """Probabilities within the rounding of float32, log-likelihoods within one unit in the last place."""
  assert_posteriors_close(actual, expected, 3.1e-8, loglik_rtol=1.2e-7)


@pytest.mark.parametrize('num_states', [4, 30])
def test_text_is_rounded_float64(num_states):
  """On the paper's draws, on text of the chain and on text it all but forbids, of 129 and of 512 tokens.

  Evidence of half of the sequences is below the bound, of text of 512 tokens never.
  """
  with compiling_fast():
    hmm = random_hmm(jax.random.key(0), num_states, 10)
  sampled = sampling.sample_corpus(jax.random.key(1), hmm, 6, 512)
  uniform = np.random.default_rng(2).integers(hmm.num_tokens, size=(6, 512))
  of_texts = np.asarray(hmm.emission_matrix).T[np.concatenate([sampled, uniform])]
  observed = np.arange(512) < np.where(np.arange(12) % 2, 129, 512)[:, None]
  rows = np.where(observed[..., None], of_texts, np.float32(1))
  expected = log_space_posterior(hmm, rows)
  log_evidence = expected.marginal_loglik - np.log(np.float64(rows).max(-1)).sum(-1)
  assert (log_evidence[:6] > LEAST_LOG_EVIDENCE).all() and (log_evidence[6::2] < LEAST_LOG_EVIDENCE).all()
  assert_rounded(forward_backward(hmm, rows), expected)


def test_long_text_takes_no_logarithms():
  """Evidence of 1,000 tokens is below the bound, yet no entry of a message is lost."""
  with compiling_fast():
    hmm = random_hmm(jax.random.key(0), 30, 10)
  tokens = sampling.sample_corpus(jax.random.key(1), hmm, 2, 1000)
  rows = np.asarray(hmm.emission_matrix).T[tokens]
  expected = log_space_posterior(hmm, rows)
  assert (expected.marginal_loglik < LEAST_LOG_EVIDENCE).all()
  arguments = hmm.initial_probs[:, None, None], hmm.transition_matrix, rows.transpose(1, 2, 0)[:, :, None]
  certified = jax.jit(lambda *x: arithmetic.certified(passes.smooth, *x))
  assert float64.in_float64(certified)(*arguments).all()


def log_uniform_chain(seed):
  """A chain and rows whose entries spread over 36 orders of magnitude, evidence that it all but forbids."""
  rng = np.random.default_rng(seed)
  spread = lambda *shape: 10.0 ** -rng.uniform(0, 36, shape)
  transition_matrix = spread(4, 4)
  transition_matrix /= transition_matrix.sum(1, keepdims=True)
  rows = np.maximum(spread(40, 4), 1e-37)
  return HMM(np.eye(4)[0], transition_matrix, transition_matrix), rows


def detour_case(decades, at_once):
  """Two states that are never left: one loses `decades` late, the other `at_once`, past the least normal float64.

  A scaled message loses the second, which is what is left where `decades` are more.
  """
  rows = np.ones((40, 2))
  rows[:8, 1] = 10.0 ** (-at_once / 9)
  rows[8:, 0] = 10.0 ** (-decades / 32)
  return HMM(np.array([1, rows[0, 1]]), np.eye(2), np.eye(2)), rows


STAYS = HMM(np.array([0.5, 0.5]), np.eye(2), np.eye(2))
EXTREMES = {
  'spread over 36 decades': [log_uniform_chain(seed) for seed in range(100)],
  'a detour': [*(detour_case(decades, 315) for decades in range(200, 330, 2)), detour_case(307.6, 307.75)],
  # A forward message loses the state that late rows favour, and there is no backward pass to show it.
  'early rows favour a state by 1e420, late ones the other by 1e600': [(STAYS, [[1, 1e-30]] * 14 + [[1e-30, 1]] * 20)],
  # No entry of a forward message is lost: only the backward pass shows it.
  'the first row rules out what makes the rest 1e470 as likely': [
    (STAYS._replace(transition_matrix=np.array([[0.5, 0.5], [0, 1]])), [[0, 1]] + 100 * [[1, 1e-5]])
  ],
}


@pytest.mark.parametrize('name', EXTREMES)
def test_extreme_evidence_is_rounded_float64(name):
  """Messages span hundreds of orders of magnitude, or all but one path is ruled out."""
  # Float32 holds nothing below 1.2e-38.
  cases = stacked([(chain, np.array(rows)) for chain, rows in EXTREMES[name]])
  chains, rows = jax.tree.map(lambda x: np.where(x < 3e-38, np.float32(0), x), cases)
  expected = log_space_posterior(chains, rows)
  assert np.isfinite(expected.marginal_loglik).all()
  assert_rounded(of_each(chains, rows), expected)
  probs, loglik = jax.vmap(last_filtered)(chains, rows)
  np.testing.assert_allclose(probs, expected.filtered_probs[:, -1], atol=3.1e-8)
  np.testing.assert_allclose(loglik, expected.marginal_loglik, rtol=1.2e-7)


def test_slopes_of_extreme_evidence_are_finite():
  """Also where the future that a scaled pass would make is beyond the largest float."""
  chains, rows = stacked(EXTREMES['a detour'])
  slopes = jax.jit(jax.grad(lambda rows: of_each(chains, rows).smoothed_probs[..., 0].sum()))(np.float32(rows))
  assert np.isfinite(slopes).all()


@pytest.mark.parametrize('dtype', [np.float32, np.float64])
def test_arrays_on_the_host_have_the_bits_of_traced_ones(dtype):
  """Nine texts, which are filled up: ordinary ones, one of improbable evidence, one that is impossible."""
  rng = np.random.default_rng(0)
  chain, rows = dirichlet_hmm(rng, 4), rng.uniform(0.1, 1, (9, 40, 4))
  rows[1, ::2, 1:], rows[2, 3] = 1e-30, 0
  rows[3] = EXTREMES['spread over 36 decades'][0][1]
  with jax.enable_x64(dtype == np.float64):
    arguments = jax.tree.map(lambda x: jnp.asarray(x, dtype), (chain, rows))
    for function in (forward_backward, last_filtered):
      assert_same_bits(function(*arguments), jax.jit(function)(*arguments))


def test_results_are_float32_in_float64_mode_too():
  with jax.enable_x64(True):
    posterior = forward_backward(*jax.tree.map(np.float32, log_uniform_chain(0)))
  assert {x.dtype for x in posterior} == {np.dtype('float32')}
