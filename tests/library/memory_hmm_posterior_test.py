"""Facts about the posterior over a memory, checked against the chain of the joint states, and its paths."""

from conftest import enumerated_posterior, in_float64, joint_hmm
import jax
import jax.numpy as jnp
from memory_hmm_cases import (
  assert_trees_close,
  configurations,
  dense_hmm,
  float32,
  inferred,
  MASK,
  rows_of,
)
import numpy as np
from oracles import cells_of, log_space_posterior
import pytest

from hmm_jax import hmm as hmm_lib, memory_hmm as memory_lib
from hmm_jax.memory_hmm import MemoryHMM, MemoryPosterior

pytestmark = pytest.mark.usefixtures('without_optimisation')


def of_joint_states(hmm, joint, xp=np):
  """The `MemoryPosterior` by definition, sums over the `Posterior` of the joint states; `xp=jnp` for derivatives."""
  memory_size, num_states, _ = hmm.emission_matrix.shape
  held_CxN, memory_shape = configurations(hmm.memory_probs.ndim, memory_size), hmm.memory_probs.shape
  is_read_MxCxH = held_CxN[:, np.asarray(hmm.cell_index)] == np.arange(memory_size)[:, None, None]
  smoothed, leave_one_out = (
    probs.reshape(len(probs), -1, num_states) for probs in (joint.smoothed_probs, joint.leave_one_out_probs)
  )
  return MemoryPosterior(
    cell_probs=cells_of(memory_shape, joint.smoothed_probs[0], xp),
    leave_one_out_cell_probs=cells_of(memory_shape, joint.leave_one_out_probs, xp),
    smoothed_probs=smoothed.sum(1),
    leave_one_out_probs=leave_one_out.sum(1),
    leave_one_out_read_probs=xp.einsum('mch,tch->tmh', is_read_MxCxH, leave_one_out),
    joint=joint,
    marginal_loglik=joint.marginal_loglik,
  )


def assert_all_by_joint_states(hmm, rows, atol=1e-12):
  """Every quantity that inference gives, in float64, is that of the chain of the joint states by logarithms."""
  expected = of_joint_states(hmm, log_space_posterior(joint_hmm(hmm), rows))
  token_probs = np.einsum('tmh,mhv->tv', expected.leave_one_out_read_probs, hmm.emission_matrix)
  everything = expected, expected.cell_probs, expected.marginal_loglik, token_probs
  actual = in_float64(inferred, hmm, rows)
  assert_trees_close(actual, everything, atol)
  return actual


@pytest.mark.parametrize('num_cells, per_memory', [(1, True), (2, True), (3, True), (3, False)])
def test_posterior_is_that_of_the_joint_states(num_cells, per_memory):
  """All posteriors, G and the evidence of tokens with a masked position are sums over joint states.

  Chains whose start does not hang on the memory, with one and two cells, are those of `memory_hmm_precision_test`.
  """
  hmm = dense_hmm(np.random.default_rng(num_cells), num_cells, per_memory=per_memory)
  assert_all_by_joint_states(hmm, rows_of(hmm, [1, MASK, 0, 3]))


@pytest.mark.parametrize('num_cells', [1, 2, 3])
def test_posterior_of_a_prompt_is_that_of_the_joint_states(num_cells):
  """Arbitrary rows over the joint states, with exact zeros, are evidence like any other."""
  rng = np.random.default_rng(num_cells)
  hmm = dense_hmm(rng, num_cells, per_memory=True)
  prompt = rng.uniform(size=(2, 2**num_cells * 3)) * (rng.uniform(size=(2, 2**num_cells * 3)) > 0.3)
  assert_all_by_joint_states(hmm, np.concatenate([prompt, rows_of(hmm, [2, MASK])]))


def test_three_memory_values_are_no_other_case():
  """Nothing rests on two values: two cells of three values and two states."""
  hmm = dense_hmm(np.random.default_rng(0), 2, memory_size=3, num_states=2, per_memory=True)
  assert_all_by_joint_states(hmm, rows_of(hmm, [3, 0, MASK, 1, 2]))


@pytest.mark.parametrize('num_cells', [1, 2, 3])
def test_prior_without_full_support(num_cells):
  """Memories of prior probability 0 have posterior probability exactly 0, in every quantity, and nothing is NaN."""
  hmm = dense_hmm(np.random.default_rng(0), num_cells, per_memory=True)
  memory_probs = hmm.memory_probs.copy()
  memory_probs[1] = 0
  hmm = hmm._replace(memory_probs=memory_probs / memory_probs.sum())
  rows = rows_of(hmm, [1, MASK, 0, 3])
  single = jax.tree.map(np.asarray, inferred(*float32((hmm, rows))))
  for posterior in (assert_all_by_joint_states(hmm, rows)[0], single[0]):
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
  expected = assert_all_by_joint_states(hmm, rows)
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
    flat = memory_lib.to_hmm(hmm_of)
    rows = jnp.stack([flat.emission_matrix[:, 1], jnp.ones(flat.num_states), flat.emission_matrix[:, 3]]) * prompt
    posterior = of_joint_states(hmm_of, enumerated_posterior(flat, rows, xp=jnp), xp=jnp)
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
