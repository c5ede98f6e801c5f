"""Facts about the precision of inference: float32 results are those of logarithms in float64, whatever underflows."""

import warnings

from conftest import in_float64
from inference_cases import (
  assert_posteriors_close,
  at,
  likelihood_rows,
  paper_draw,
  sampled_tokens,
  stacked,
  surviving_path_case,
  uniform_tokens,
)
import jax
import jax.numpy as jnp
import numpy as np
from oracles import log_space_posterior
import pytest

from hmm_jax import inference
from hmm_jax.float64 import as_float64, in_float64 as allowing_float64
from hmm_jax.hmm import HMM
from hmm_jax.inference import forward_backward

# Half a unit in the last place of a float32 below 1: the arithmetic is float64, and only the result is rounded.
ROUNDING = 3.1e-8
of_each = jax.jit(jax.vmap(forward_backward))


def assert_rounded(actual, expected):
  """Probabilities within the rounding of float32, log-likelihoods within one unit in the last place."""
  assert_posteriors_close(actual, expected, ROUNDING, loglik_rtol=1.2e-7)


def log_evidence(rows, posterior):
  """The log-evidence of rows over their largest entries."""
  return posterior.marginal_loglik - np.log(np.asarray(rows, np.float64).max(-1)).sum(-1)


@pytest.mark.parametrize('num_states', [4, 30])
def test_text_is_rounded_float64(num_states):
  """On the paper's draws, on text of the chain and on text it all but forbids, of 129 and of 512 tokens.

  Half of the sequences are scaled and half take logarithms. Text of 512 tokens never needs logarithms.
  """
  hmm = paper_draw(num_states)
  tokens = np.concatenate([draw(hmm, 6, 512) for draw in (sampled_tokens, uniform_tokens)])
  observed = np.arange(512) < np.where(np.arange(12) % 2, 129, 512)[:, None]
  rows = np.where(observed[..., None], likelihood_rows(hmm, tokens), np.float32(1))
  expected = log_space_posterior(hmm, rows)
  scaled = log_evidence(rows, expected) > inference._LEAST_LOG_EVIDENCE
  assert scaled[:6].all()
  assert not scaled[6::2].any()
  assert_rounded(forward_backward(hmm, rows), expected)


def test_a_whole_document_is_rounded_float64():
  """Errors do not grow with length: a document of 10240 tokens."""
  hmm = paper_draw(10)
  rows = likelihood_rows(hmm, sampled_tokens(hmm, 1, 10240))
  assert_rounded(forward_backward(hmm, rows), log_space_posterior(hmm, rows))


def test_float64_results_are_exact():
  """Float64 evidence has float64 results, on both sides of the bound from which logarithms are taken."""
  hmm = paper_draw(30)  # rows that sum to 1 only up to the rounding of float32
  rows = likelihood_rows(hmm, np.concatenate([sampled_tokens(hmm, 2, 129), uniform_tokens(hmm, 2, 129)]))
  expected = log_space_posterior(hmm, rows)
  assert set(log_evidence(rows, expected) > inference._LEAST_LOG_EVIDENCE) == {True, False}
  assert_posteriors_close(in_float64(forward_backward, hmm, rows), expected, 1e-10)


def log_uniform_chain(rng, num_states, length):
  """A chain and rows whose entries spread over 36 orders of magnitude, evidence that it all but forbids."""
  spread = lambda *shape: 10.0 ** -rng.uniform(0, 36, shape)
  transition_matrix = spread(num_states, num_states)
  transition_matrix /= transition_matrix.sum(1, keepdims=True)
  rows = np.maximum(spread(length, num_states), 1e-37)
  return HMM(np.eye(num_states)[0], transition_matrix, transition_matrix), rows


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
  return HMM(initial / initial.sum(), transition_matrix, transition_matrix), rows


def detour_case(decades, length=40):
  """Two states that are never left: one loses `decades` late, the other 315 at once, past the least float64.

  A scaled message loses the second, which is what is left where `decades` are more.
  """
  rows = np.ones((length, 2))
  rows[:8, 1] = 1e-35
  rows[8:, 0] = 10.0 ** (-decades / (length - 8))
  return HMM(np.array([1, 1e-35]), np.eye(2), np.eye(2)), rows


def improbable_step(power):
  """A step of probability far below the smallest float32, of which the logarithm is finite."""
  return HMM(np.array([1, 10.0**power, 0]), np.eye(3), np.eye(3)), np.array([[0, 1e-15, 1], [1, 1, 1]])


# Float32 holds nothing below 1.2e-38.
EXTREMES = {
  'spread over 36 decades': [log_uniform_chain(np.random.default_rng(seed), 4, 40) for seed in range(100)],
  'contradicted later': [swing_case(np.random.default_rng(seed)) for seed in range(100)],
  'one improbable path': [surviving_path_case(power) for power in (-10, -15, -20, -25, -30, -37)],
  'one improbable step': [improbable_step(power) for power in (-20, -30, -36)],
  'a detour': [detour_case(decades) for decades in range(200, 330, 2)],
}


@pytest.mark.parametrize('name', EXTREMES)
def test_extreme_evidence_is_rounded_float64(name):
  """Where messages span hundreds of orders of magnitude, evidence is reversed, or a detour is nearly lost."""
  chains, rows = stacked(EXTREMES[name])
  tiny = lambda x: np.where(x < 3e-38, np.float32(0), x)
  chains, rows = jax.tree.map(tiny, (chains, rows))
  expected = log_space_posterior(chains, rows)
  assert np.isfinite(expected.marginal_loglik).all()
  assert_rounded(of_each(chains, rows), expected)


def test_extremes_reach_both_sides_of_the_bound():
  """The evidence above is both above and below the bound of logarithms, and near it on both sides."""
  chains, rows = stacked(EXTREMES['a detour'])
  distance = log_evidence(rows, log_space_posterior(chains, rows)) - inference._LEAST_LOG_EVIDENCE
  assert distance.min() < 0 < distance.max()
  assert 0 < distance[distance > 0].min() < 10
  assert -10 < distance[distance < 0].max() < 0


def lost_in_rows():
  """Evidence of 1e-37 nine times over for the state that all is in; a scaled message forgets it."""
  alive = [1.0, 1e-37]
  return HMM(np.array(alive), np.eye(2), np.eye(2)), np.array([alive] * 9 + [[0.0, 1.0], [1.0, 1.0]])


def lost_in_moves(length=11):
  """As many moves of 1e-37 as lead to the state that all is in, and evidence that says nothing before."""
  transition_matrix = np.eye(length) + 1e-37 * np.eye(length, k=1)
  rows = np.ones((length, length))
  rows[-1, :-1] = 0
  return HMM(np.eye(length)[0], transition_matrix, np.eye(length)), rows


@pytest.mark.parametrize('lost', [lost_in_rows, lost_in_moves])
def test_what_rounds_to_nothing_is_not_taken_for_impossible(lost):
  """Scaled messages are all zeros before the end: logarithms find what is left, beside evidence that is impossible."""
  chain, rows = stacked([lost()])
  impossible = rows.copy()
  impossible[:, 2] = 0
  chain, rows = at(chain, 0), np.concatenate([rows, impossible])
  expected = log_space_posterior(chain, rows)
  assert np.isfinite(expected.marginal_loglik[0]) and expected.marginal_loglik[0] < np.log(1e-308)
  assert expected.marginal_loglik[1] == -np.inf
  for evidence in (rows[:1], rows):
    assert_rounded(forward_backward(chain, evidence), at(expected, slice(len(evidence))))


def test_subnormal_probabilities_count_as_zero():
  """A probability below the smallest normal float32 acts like 0, not like NaN."""
  tiny = np.float32(1e-40)
  rows = np.ones((2, 3, 2), np.float32)
  rows[:, 1:, 0], rows[1, 1, 0] = 0.5, 0
  chain = lambda x: HMM(np.float32([1, x]), np.float32([[1, x], [x, 1]]), np.eye(2, dtype=np.float32))
  with_subnormals, with_zeros = (forward_backward(chain(x), rows) for x in (tiny, 0))
  np.testing.assert_array_equal(jnp.stack(with_subnormals[:4]), jnp.stack(with_zeros[:4]))


def test_types_of_results():
  """Results have the type of the likelihoods, in float64 mode too; half-precision ones are float32."""
  chain, rows = surviving_path_case()
  expected = forward_backward(chain, rows)
  assert {x.dtype for x in forward_backward(chain, rows.astype(jnp.bfloat16))} == {np.dtype('float32')}
  with jax.enable_x64(True):
    posterior = forward_backward(chain, rows)
    assert {x.dtype for x in posterior} == {np.dtype('float32')}
  assert_posteriors_close(posterior, expected, 1e-7)


def test_float64_stays_inside():
  """Arrays of the user's program are what they were: neither importing nor calling allows float64 outside."""
  forward_backward(*surviving_path_case())
  assert allowing_float64(as_float64)(jnp.ones(2)).dtype == np.float64
  with warnings.catch_warnings():
    warnings.simplefilter('ignore')
    assert jnp.ones(2, 'float64').dtype == np.float32
    assert jnp.asarray(np.ones(2)).dtype == np.float32
  assert not jax.config.jax_enable_x64


def test_what_is_not_a_number_is_told():
  """A NaN among a sequence's rows, or in the chain, is NaN in every result of it, and in no companion's."""
  chain, rows = surviving_path_case(-1)
  batch = np.stack([rows] * 3)
  batch[1, 2, 0] = np.nan
  posterior = forward_backward(chain, batch)
  assert np.isnan(posterior.smoothed_probs[1]).all()
  assert np.isnan(posterior.marginal_loglik[1])
  for companion in (0, 2):
    assert_posteriors_close(at(posterior, companion), log_space_posterior(chain, rows), 1e-7)
  broken = chain._replace(transition_matrix=chain.transition_matrix.at[0, 1].set(jnp.nan))
  assert np.isnan(forward_backward(broken, batch).marginal_loglik).all()


def test_potentials_that_are_no_probabilities():
  """The bound speaks of evidence, not of the scale of a matrix whose rows do not sum to 1, or of the start."""
  initial = np.float32([1, 1e-12, 1])
  rows = np.float32([[1, 1e-30, 1e-30]] * 10 + [[0, 1, 1e-7], [1, 1, 1e-30]])
  chains = [
    HMM(initial * np.float32(start), np.eye(3) * 10.0**power, np.eye(3)) for start, power in [(1, 10), (1e30, 0)]
  ]
  chains, rows = stacked([(chain, rows) for chain in chains])
  assert_rounded(of_each(chains, rows), log_space_posterior(chains, rows))
