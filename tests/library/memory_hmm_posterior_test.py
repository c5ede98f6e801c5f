"""Facts about the posterior over a memory, checked against a sum over memories and paths, and the flattened chain."""

import itertools

from conftest import in_float64
import jax
import jax.numpy as jnp
from memory_hmm_cases import (
  assert_trees_close,
  configurations,
  dense_hmm,
  emissions,
  float32,
  inferred,
  MASK,
  rows_of,
)
import numpy as np
import pytest

from hmm_jax import hmm as hmm_lib, inference, memory_hmm as memory_lib
from hmm_jax.memory_hmm import MemoryHMM, MemoryPosterior

pytestmark = pytest.mark.usefixtures('without_optimisation')


def enumerated_posterior(hmm, rows, xp=np):
  """The `MemoryPosterior` by definition: sums over all memories and state paths; `xp=jnp` can be differentiated."""
  memory_size, num_states, _ = hmm.emission_matrix.shape
  num_cells, length = hmm.memory_probs.ndim, len(rows)
  memories = configurations(num_cells, memory_size)
  paths = np.array(list(itertools.product(range(num_states), repeat=length)))
  initial = xp.broadcast_to(hmm.initial_probs, hmm.memory_probs.shape + (num_states,)).reshape(-1, num_states)
  prior = hmm.memory_probs.reshape(-1, 1) * initial[:, paths[:, 0]]
  for t in range(1, length):
    prior = prior * hmm.transition_matrix[paths[:, t - 1], paths[:, t]]
  rows = rows.reshape(length, -1, num_states)

  def normalise(weights):
    possible = weights.sum() > 0
    return xp.where(possible, weights / xp.where(possible, weights.sum(), 1), 0)

  def weights(kept):
    """P[memory c, path p, the evidence at the positions `kept`], [C, P]."""
    total = prior
    for s in kept:
      total = total * rows[s][:, paths[:, s]]
    return total

  def joint(t, kept):
    """P[memory c, H_t = h | the evidence at `kept`], [C, H]."""
    return normalise(weights(kept) @ np.eye(num_states)[paths[:, t]])

  def cells(probs):
    """P[M_j = m] of probabilities [C]."""
    return xp.stack(
      [xp.stack([(probs * (memories[:, j] == m)).sum() for m in range(memory_size)]) for j in range(num_cells)]
    )

  def reads(probs):
    """P[M_{J(h)} = m, H = h] of probabilities [C, H]."""
    held = memories[:, np.asarray(hmm.cell_index)]
    return xp.stack([(probs * (held == m)).sum(0) for m in range(memory_size)])

  times = range(length)
  stack = lambda kept_at: xp.stack([joint(t, kept_at(t)) for t in times])
  without = lambda t: [s for s in times if s != t]
  smoothed, leave_one_out = stack(lambda t: times), stack(without)
  evidence = weights(times).sum()
  loglik = xp.where(evidence > 0, xp.log(xp.where(evidence > 0, evidence, 1)), -xp.inf)
  flat = lambda probs: probs.reshape(length, -1)
  filtered, predicted = stack(lambda t: range(t + 1)), stack(range)
  return MemoryPosterior(
    cell_probs=cells(normalise(weights(times)).sum(1)),
    leave_one_out_cell_probs=xp.stack([cells(normalise(weights(without(t))).sum(1)) for t in times]),
    smoothed_probs=smoothed.sum(1),
    leave_one_out_probs=leave_one_out.sum(1),
    leave_one_out_read_probs=xp.stack([reads(probs) for probs in leave_one_out]),
    joint=inference.Posterior(flat(filtered), flat(predicted), flat(smoothed), flat(leave_one_out), loglik),
    marginal_loglik=loglik,
  )


def assert_all_by_enumeration(hmm, rows, atol=1e-12):
  """Every quantity that inference gives equals its sum over memories and paths, in float64."""
  expected = enumerated_posterior(hmm, rows)
  token_probs = np.einsum('tmh,mhv->tv', expected.leave_one_out_read_probs, hmm.emission_matrix)
  everything = expected, expected.cell_probs, expected.marginal_loglik, token_probs
  actual = in_float64(inferred, hmm, rows)
  assert_trees_close(actual, everything, atol)
  return actual


@pytest.mark.parametrize('num_cells, per_memory', [(1, True), (2, True), (3, True), (3, False)])
def test_posterior_equals_enumeration(num_cells, per_memory):
  """All posteriors, G and the evidence of tokens with a masked position are sums over memories and state paths.

  Chains whose start does not hang on the memory, with one and two cells, are those of `memory_hmm_precision_test`.
  """
  hmm = dense_hmm(np.random.default_rng(num_cells), num_cells, per_memory=per_memory)
  assert_all_by_enumeration(hmm, rows_of(hmm, [1, MASK, 0, 3]))


@pytest.mark.parametrize('num_cells', [1, 2, 3])
def test_posterior_of_a_prompt_equals_enumeration(num_cells):
  """Arbitrary rows over the joint states, with exact zeros, are evidence like any other."""
  rng = np.random.default_rng(num_cells)
  hmm = dense_hmm(rng, num_cells, per_memory=True)
  prompt = rng.uniform(size=(2, 2**num_cells * 3)) * (rng.uniform(size=(2, 2**num_cells * 3)) > 0.3)
  assert_all_by_enumeration(hmm, np.concatenate([prompt, rows_of(hmm, [2, MASK])]))


def test_three_memory_values_equal_enumeration():
  """Nothing rests on two values: two cells of three values and two states."""
  hmm = dense_hmm(np.random.default_rng(0), 2, memory_size=3, num_states=2, per_memory=True)
  assert_all_by_enumeration(hmm, rows_of(hmm, [3, 0, MASK, 1, 2]))


@pytest.mark.parametrize('num_cells', [1, 2, 3])
def test_prior_without_full_support(num_cells):
  """Memories of prior probability 0 have posterior probability exactly 0, in every quantity, and nothing is NaN."""
  hmm = dense_hmm(np.random.default_rng(0), num_cells, per_memory=True)
  memory_probs = hmm.memory_probs.copy()
  memory_probs[1] = 0
  hmm = hmm._replace(memory_probs=memory_probs / memory_probs.sum())
  rows = rows_of(hmm, [1, MASK, 0, 3])
  single = jax.tree.map(np.asarray, inferred(*float32((hmm, rows))))
  for posterior in (assert_all_by_enumeration(hmm, rows)[0], single[0]):
    np.testing.assert_array_equal(posterior.cell_probs[0, 1], 0)
    np.testing.assert_array_equal(posterior.leave_one_out_cell_probs[:, 0, 1], 0)
    np.testing.assert_array_equal(posterior.joint.smoothed_probs.reshape(4, 2, -1)[:, 1], 0)


def impossible_cases():
  """(hmm, rows): a row of zeros, cells that contradict each other, and evidence for a memory of prior 0 alone."""
  hmm = dense_hmm(np.random.default_rng(0), 2, per_memory=True)
  rows = rows_of(hmm, [1, MASK, 0, 3])
  yield hmm, np.where(np.arange(4)[:, None] == 1, 0, rows)
  held = np.repeat(configurations(2, 2), 3, axis=0)
  yield hmm, np.stack([held[:, 0] == 0, held[:, 1] == 0, held[:, 0] == 1, held[:, 1] == 1]).astype(float)
  one_sided = hmm._replace(memory_probs=np.array([[0.5, 0.5], [0, 0]]))
  yield one_sided, np.where(np.arange(4)[:, None] == 2, held[:, 0] == 1, rows)


@jax.jit
def gradient_of_everything(parameters, cell_index, rows):
  """Derivatives of a weighted sum of all that inference tells, by the parameters and the rows."""

  def total(parameters, rows):
    weighted = lambda x: (jnp.cos(jnp.arange(x.size, dtype=x.dtype)) * jnp.where(jnp.isfinite(x), x, 0).ravel()).sum()
    return sum(map(weighted, jax.tree.leaves(inferred(MemoryHMM(**parameters, cell_index=cell_index), rows))))

  return jax.grad(total, (0, 1))(parameters, rows)


def without_cells(hmm):
  return {name: x for name, x in hmm._asdict().items() if name != 'cell_index'}


@pytest.mark.parametrize('case', [0, 1, 2], ids=['zero row', 'contradiction', 'outside the support'])
def test_impossible_evidence_is_zero_with_finite_gradients(case):
  """Evidence of probability 0 has zeros for a posterior, -inf for its logarithm, and no derivative that is NaN."""
  hmm, rows = list(impossible_cases())[case]
  expected = assert_all_by_enumeration(hmm, rows)
  posterior, cells, loglik, _ = single = jax.tree.map(np.asarray, inferred(*float32((hmm, rows))))
  assert_trees_close(single, expected, 1e-6)
  for probs in (posterior.cell_probs, posterior.smoothed_probs, posterior.joint.smoothed_probs, cells):
    np.testing.assert_array_equal(probs, 0)
  assert posterior.marginal_loglik == loglik == -np.inf
  gradients = gradient_of_everything(float32(without_cells(hmm)), hmm.cell_index, float32(rows))
  for gradient in jax.tree.leaves(gradients):
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize('num_cells, quantity', [(1, 'cells'), (3, 'cells'), (2, 'leave one out')])
def test_gradient_of_cell_probs_equals_enumeration(num_cells, quantity):
  """Derivatives by every parameter and by the rows are those of the sum over memories and paths."""
  rng = np.random.default_rng(num_cells)
  hmm = dense_hmm(rng, num_cells, per_memory=True)
  tokens, prompt = np.array([1, 0, 3]), rng.uniform(size=(3, 2**num_cells * 3)) + 0.1
  weights = rng.normal(size=(num_cells, 2))

  def ours(parameters, prompt):
    hmm_of = hmm._replace(**parameters, cell_index=jnp.asarray(hmm.cell_index))
    rows = hmm_lib.token_likelihoods(hmm_of, tokens, np.array([True, False, True])) * prompt
    if quantity == 'cells':
      return (weights * memory_lib.cell_posterior(hmm_of, rows)).sum()
    posterior = memory_lib.memory_forward_backward(hmm_of, rows)
    return (weights * posterior.leave_one_out_cell_probs[1]).sum() + posterior.marginal_loglik

  def enumerated(parameters, prompt):
    hmm_of = hmm._replace(**parameters)
    by_memory = emissions(hmm_of).reshape(-1, 4)
    rows = jnp.stack([by_memory[:, 1], jnp.ones(len(by_memory)), by_memory[:, 3]]) * prompt
    posterior = enumerated_posterior(hmm_of, rows, xp=jnp)
    if quantity == 'cells':
      return (weights * posterior.cell_probs).sum()
    return (weights * posterior.leave_one_out_cell_probs[1]).sum() + posterior.marginal_loglik

  actual, expected = (in_float64(jax.jit(jax.grad(f, (0, 1))), without_cells(hmm), prompt) for f in (ours, enumerated))
  assert_trees_close(actual, expected, 1e-11)


def test_vmap_over_memory_hmms():
  """A batch of memory HMMs, each with its own batch of evidence, is what each gives alone."""
  hmms = [float32(dense_hmm(np.random.default_rng(seed), 2, per_memory=True)) for seed in range(3)]
  hmms[1] = hmms[1]._replace(cell_index=np.array([1, 0, 0], np.int32))
  rows = np.random.default_rng(1).uniform(size=(3, 2, 4, 12)).astype(np.float32)
  rows[1, 0, 2] = 0
  together = jax.jit(jax.vmap(inferred))(jax.tree.map(lambda *x: np.stack(x), *hmms), rows)
  together = jax.tree.map(np.asarray, together)
  for i, j in np.ndindex(3, 2):
    alone = inferred(hmms[i], rows[i, j])
    assert_trees_close(jax.tree.map(lambda x: x[i, j], together), alone, 2e-6)  # noqa: B023
