"""Facts about exact inference, checked against enumeration, dynamax and hmmlearn."""

import re

from conftest import dirichlet_hmm, enumerated_posterior, in_float64
from dynamax.hidden_markov_model import hmm_posterior_mode, hmm_smoother
import hmmlearn.hmm
from inference_cases import assert_posteriors_close, at, random_rows, stacked
import jax
import jax.numpy as jnp
from memory_hmm_cases import dense_hmm, rows_of
import numpy as np
import pytest

from hmm_jax import hmm as hmm_lib, inference, memory_hmm as memory_lib
from hmm_jax.hmm import HMM
from hmm_jax.inference import forward_backward
from hmm_jax.viterbi import most_likely_states

pytestmark = pytest.mark.usefixtures('without_optimisation')
# Half a unit in the last place of a float32 below 1: the arithmetic is float64, and only the result is rounded.
ROUNDING = 3.1e-8
H, T = 3, 5


def evidence_cases():
  """(chain, rows) of 5 positions and 3 states, exact in float32, by name."""
  rng = np.random.default_rng(0)
  hmm, rows = dirichlet_hmm(rng, H), random_rows(rng, T, H)
  sparse = hmm.transition_matrix * (1 - np.eye(H)[[1, 2, 0]])
  sparse = HMM(np.eye(H)[1], sparse / sparse.sum(1, keepdims=True), hmm.emission_matrix)
  dense_rows = rng.uniform(0.1, 1, (T, H))
  position = np.arange(T)[:, None]
  # All but forbidden: two states take turns and the chain rarely changes its own.
  stubborn = HMM(np.full(H, 1 / H), np.eye(H) * (1 - 3e-30) + 1e-30, hmm.emission_matrix)
  turns = np.where(np.arange(H) == position % 2, 1, 1e-37)
  cases = {
    'dense': (hmm, dense_rows),
    'zero likelihoods': (hmm, rows),
    'zeros everywhere': (sparse, rows),
    'all but forbidden': (stubborn, turns),
    'zero row': (hmm, np.where(position == 2, 0, dense_rows)),
    'contradiction': (HMM(np.array([0.5, 0.5, 0]), np.eye(H), hmm.emission_matrix), np.eye(H)[[0, 0, 1, 0, 0]]),
    'two zero rows': (hmm, np.where(np.isin(position, [1, 4]), 0, dense_rows)),
  }
  exact_in_float32 = lambda case: jax.tree.map(lambda x: np.float64(np.float32(x)), case)
  return {name: exact_in_float32(case) for name, case in cases.items()}


CASES = evidence_cases()
POSSIBLE = ('dense', 'zero likelihoods', 'zeros everywhere', 'all but forbidden')
of_each = jax.jit(jax.vmap(forward_backward))


@pytest.fixture(scope='module')
def posteriors():
  """Of every case, what inference tells in float32 and in float64."""
  single = of_each(*stacked(CASES.values()))
  double = in_float64(of_each, *jax.tree.map(lambda *leaves: np.stack(leaves), *CASES.values()))
  return {name: (at(jax.tree.map(np.asarray, single), i), at(double, i)) for i, name in enumerate(CASES)}


@pytest.mark.parametrize('name', CASES)
def test_posterior_equals_enumeration(posteriors, name):
  """Every field is its definition, a sum over state paths; float32 results are float64's, rounded.

  What is 0 by definition is exactly 0, as all is of impossible evidence but rows that leave the culprit out.
  """
  single, double = posteriors[name]
  expected = enumerated_posterior(*CASES[name])
  assert np.isfinite(expected.marginal_loglik) == (name in POSSIBLE)
  assert {x.dtype for x in single} == {np.dtype('float32')}
  assert_posteriors_close(double, expected, 1e-12)
  assert_posteriors_close(single, expected, ROUNDING, loglik_rtol=6e-8)
  for posterior in (single, double):
    assert all((x[y == 0] == 0).all() for x, y in zip(posterior[:4], expected[:4], strict=True))


@pytest.mark.parametrize('num_states, length', [(1, 3), (2, 1)])
def test_smallest_chains_equal_enumeration(num_states, length):
  """One state, and one position, are no special case."""
  rng = np.random.default_rng(num_states)
  hmm, rows = dirichlet_hmm(rng, num_states), rng.uniform(0.5, 1, (length, num_states))
  actual = forward_backward(*jax.tree.map(np.float32, (hmm, rows)))
  assert_posteriors_close(actual, enumerated_posterior(hmm, rows), 1e-6)


@pytest.fixture(scope='module')
def of_tokens():
  """An HMM of 5 states, 40 of its tokens, and what inference tells, all in float64."""
  rng = np.random.default_rng(0)
  hmm, tokens = dirichlet_hmm(rng, 5, num_tokens=7), rng.integers(7, size=40)
  rows = hmm.emission_matrix.T[tokens]
  return hmm, tokens, in_float64(forward_backward, hmm, rows), in_float64(most_likely_states, hmm, rows)


def test_inference_equals_dynamax(of_tokens):
  """Filtered, predicted and smoothed probabilities, the log-likelihood and the Viterbi path are those of dynamax."""
  hmm, tokens, ours, states = of_tokens  # dynamax is exact only where predicted probabilities stay above 1e-8.
  arguments = hmm.initial_probs, hmm.transition_matrix, np.log(hmm.emission_matrix.T[tokens])
  theirs, mode = in_float64(jax.jit(lambda *a: (hmm_smoother(*a), hmm_posterior_mode(*a))), *arguments)
  for field in ('filtered_probs', 'predicted_probs', 'smoothed_probs'):
    np.testing.assert_allclose(getattr(ours, field), getattr(theirs, field), rtol=0, atol=1e-12, err_msg=field)
  np.testing.assert_allclose(ours.marginal_loglik, theirs.marginal_loglik, rtol=1e-12)
  np.testing.assert_array_equal(states, mode)


def test_inference_equals_hmmlearn(of_tokens):
  """Smoothed probabilities, the log-likelihood and the Viterbi path of tokens are those of hmmlearn."""
  hmm, tokens, ours, states = of_tokens
  model = hmmlearn.hmm.CategoricalHMM(n_components=hmm.num_states, n_features=hmm.num_tokens)
  model.startprob_, model.transmat_, model.emissionprob_ = hmm
  loglik, smoothed = model.score_samples(tokens[:, None])
  np.testing.assert_allclose(ours.smoothed_probs, smoothed, rtol=0, atol=1e-12)
  np.testing.assert_allclose(ours.marginal_loglik, loglik, rtol=1e-12)
  np.testing.assert_array_equal(states, model.decode(tokens[:, None])[1])


@pytest.mark.parametrize('block_entries', [1, 2400])
def test_batches_blocks_and_companions(monkeypatch, block_entries):
  """A sequence is worked out alike alone, by vmap, and in a batch that is cut into blocks, the last overlapping.

  Companions of the batch are impossible or all but forbidden: no result depends on them.
  """
  monkeypatch.setattr(inference, '_CPU_BLOCK_ENTRIES', block_entries)
  chain = at(stacked([CASES['all but forbidden'][0]]), 0)
  rng = np.random.default_rng(0)
  rows = rng.uniform(0.1, 1, (40, T, H)).astype(np.float32)
  rows[5::7] = CASES['all but forbidden'][1]
  rows[3::11, 2] = 0
  anew = lambda chain, rows: forward_backward.__wrapped__(chain, rows)
  alone = jax.jit(lambda chain, rows: jax.lax.map(lambda row: anew(chain, row), rows))
  together = jax.jit(anew)(chain, rows.reshape(2, 20, T, H))
  assert [x.shape for x in together] == 4 * [(2, 20, T, H)] + [(2, 20)]
  expected = alone(chain, rows)
  assert_posteriors_close(jax.tree.map(lambda x: x.reshape(40, *x.shape[2:]), together), expected, 1e-7)
  mapped = jax.jit(jax.vmap(anew, (None, 0)))(chain, rows)
  assert_posteriors_close(mapped, expected, 1e-7)
  assert np.isneginf(np.asarray(expected.marginal_loglik)).sum() == 4


def test_vmap_over_chains(posteriors):
  """A batch of HMMs, each with its own batch of evidence, is what each gives alone."""
  chains, rows = stacked([CASES[name] for name in POSSIBLE])
  batches = np.stack([rows, rows[:, ::-1]], 1)
  for together in (jax.jit(jax.vmap(forward_backward)), jax.vmap(jax.jit(jax.vmap(forward_backward, (None, 0))))):
    result = together(chains, batches)
    for i, name in enumerate(POSSIBLE):
      assert_posteriors_close(at(result, (i, 0)), posteriors[name][0], 1e-7)


def test_row_scale_changes_only_the_loglik():
  """A likelihood row matters up to a positive factor, whose logarithm is added to the log-likelihood."""
  chain, rows = CASES['dense']
  factors = [1.0, 1e-30, 0.125, 7.0, 1e30]
  scaled = [(chain, np.where(np.arange(T)[:, None] == 3, factor, 1) * rows) for factor in factors]
  plain, *others = [at(of_each(*stacked(scaled + scaled[:2])), i) for i in range(len(factors))]
  for factor, other in zip(factors[1:], others, strict=True):
    expected = plain._replace(marginal_loglik=plain.marginal_loglik + np.log(factor))
    assert_posteriors_close(other, expected, 1e-6)


def test_leave_one_out_ignores_its_own_row():
  """Whatever row t becomes, a zero row included, row t of `leave_one_out_probs` stays; other rows move."""
  chain, rows = CASES['dense']
  changed = np.stack([rows] * 7)
  for t in range(T):
    changed[t + 1, t] = [0.1, 0.9, 1e-30]
  changed[6, 2] = 0
  plain, *others = np.asarray(of_each(*stacked([(chain, rows) for rows in changed])).leave_one_out_probs)
  for t, other in [*enumerate(others[:T]), (2, others[T])]:
    np.testing.assert_allclose(other[t], plain[t], rtol=0, atol=1e-7)
    assert np.abs(np.delete(other - plain, t, 0)).max() > 1e-3


def test_leave_one_out_has_no_derivative_by_its_own_row():
  """The derivative of row t by likelihood row t is exactly 0, scaled and with logarithms; by other rows it is not."""
  chain, rows = CASES['dense']
  chain, rows = jax.tree.map(np.float32, (chain, np.stack([rows, np.where(np.arange(T)[:, None] == 2, 0, rows)])))
  jacobian_of = jax.jit(jax.vmap(jax.jacrev(lambda rows: forward_backward(chain, rows).leave_one_out_probs)))
  own = np.arange(T)
  for jacobian in jacobian_of(rows):
    np.testing.assert_array_equal(jacobian[own, :, own], 0)
    assert np.abs(jacobian[2, :, 1]).max() > 1e-3


def compiled_programs(capture, function):
  """How many programs the call compiles."""
  with jax.log_compiles(), capture.at_level('WARNING'):
    capture.clear()
    jax.block_until_ready(function())
    return sum('Finished XLA compilation' in record.getMessage() for record in capture.records)


def test_a_second_eager_call_compiles_nothing(caplog):
  """What users call without `jax.jit` is compiled once per shape."""
  hmm, memory = jax.tree.map(np.asarray, (CASES['dense'][0], dense_hmm(np.random.default_rng(0), 1)))
  rows, memory_rows = np.float32(CASES['dense'][1]), np.float32(rows_of(memory, [1, 0, 3]))
  calls = (
    lambda: forward_backward(hmm, rows),
    lambda: hmm_lib.conditional_token_probs(hmm, rows),
    lambda: most_likely_states(hmm, rows),
    lambda: memory_lib.memory_forward_backward(memory, memory_rows),
    lambda: memory_lib.cell_posterior(memory, memory_rows),
    lambda: hmm_lib.token_likelihoods(hmm, np.array([1, 0]), np.array([True, False])),
  )
  first = sum(compiled_programs(caplog, call) for call in calls)
  second = sum(compiled_programs(caplog, call) for call in calls)
  assert 0 < first <= len(calls)
  assert second == 0


def dots(jaxpr):
  """Every product in a jaxpr and in the jaxprs inside of it."""
  for equation in jaxpr.eqns:
    if equation.primitive.name == 'dot_general':
      yield equation
    for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, 'eqns')):
      if hasattr(inner, 'eqns') or hasattr(inner, 'jaxpr'):
        yield from dots(getattr(inner, 'jaxpr', inner))


def test_every_product_of_exact_code_asks_for_full_precision():
  """No product is left to the default, which is TF32 or bfloat16 on accelerators; those of messages are float64."""
  hmm, memory = jax.tree.map(np.float32, CASES['dense'][0]), dense_hmm(np.random.default_rng(0), 2)
  rows, memory_rows = np.float32(CASES['dense'][1]), np.float32(rows_of(memory, [1, 0, 3]))
  loss = lambda hmm, rows: jnp.nansum(hmm_lib.conditional_token_probs(hmm, rows) ** 2)
  for function, *arguments in (
    (forward_backward, hmm, rows),
    (jax.grad(loss, (0, 1)), hmm, rows),
    (memory_lib.memory_forward_backward, memory, memory_rows),
    (hmm_lib.evidence_likelihoods, hmm, np.ones((T, hmm.num_tokens), np.float32)),
    (hmm_lib.chunk_start, hmm, 4, 3),
    (lambda key: hmm_lib.random_hmm(key, H, 4), jax.random.key(0)),
  ):
    static = tuple(i for i, x in enumerate(arguments) if isinstance(x, int))
    found = list(dots(jax.make_jaxpr(function, static_argnums=static)(*arguments).jaxpr))
    assert found
    for equation in found:
      assert set(equation.params['precision']) == {jax.lax.Precision.HIGHEST}
    if function is forward_backward:
      assert {x.aval.dtype for equation in found for x in equation.invars} == {np.dtype('float64')}


@pytest.mark.parametrize('shape', [(3, 6), (0, 5, 3), (2, 0, 3)], ids=['states', 'sequences', 'positions'])
def test_rows_of_another_shape_are_refused(shape):
  """Rows not over the joint states are named with their shape, though a multiple would fit a memory; so is nothing."""
  with pytest.raises(ValueError, match=rf'{re.escape(str(shape))}.*\[\.\.\., T, 3\], none of them 0'):
    forward_backward(jax.tree.map(np.float32, CASES['dense'][0]), np.ones(shape, np.float32))
