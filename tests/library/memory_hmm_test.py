"""Facts about the memory-augmented HMM, checked against the chain of the joint states."""

from conftest import at, in_float64, joint_hmm
import jax
from memory_hmm_cases import dense_hmm, memory_without_full_support
import numpy as np
from oracles import cells_of, log_space_posterior, rows_of
import pytest

from hmm_jax.distributions import hmm as hmm_lib, memory_hmm as memory_lib
from hmm_jax.distributions.memory_hmm import MemoryPosterior

MASK = 4


def test_likelihood_rows_and_lifting():
  """A token's row is P[x | m_{J(h)}, h], linear in noisy sight, and its lifted column; the reverse lifting undoes it.

  An unobserved position has a row of ones, its id in range or not.
  """
  rng = np.random.default_rng(0)
  hmm = dense_hmm(rng, 3)
  tokens, observed = np.array([[1, 3], [250, 0]], np.uint8), np.array([[True, False], [False, True]])
  expected = rows_of(joint_hmm(hmm), [[1, MASK], [MASK, 0]])
  np.testing.assert_allclose(in_float64(hmm_lib.token_likelihoods, hmm, tokens, observed), expected, rtol=1e-15)
  evidence, of_tokens = rng.uniform(size=(3, 4)), rows_of(joint_hmm(hmm), range(4))
  np.testing.assert_allclose(in_float64(hmm_lib.evidence_likelihoods, hmm, evidence), evidence @ of_tokens, rtol=1e-14)
  columns = np.moveaxis(hmm.emission_matrix, -1, 0)
  np.testing.assert_allclose(in_float64(memory_lib.lift, hmm, columns), of_tokens, rtol=1e-15)
  np.testing.assert_allclose(in_float64(memory_lib.reverse_lift, hmm, of_tokens), columns, atol=1e-14)


def test_flattened_chain_and_chunk_start_are_the_definitions():
  """Seen from a random chunk the first state has moved on, the memory has not, and its zeros stay zeros."""
  hmm = memory_without_full_support()
  flat = in_float64(memory_lib.to_hmm, hmm)
  for actual, expected in zip(flat, joint_hmm(hmm), strict=True):
    np.testing.assert_allclose(actual, expected, rtol=1e-15)
  by_powers = np.mean([flat.initial_probs @ np.linalg.matrix_power(flat.transition_matrix, 3 * k) for k in range(5)], 0)
  for chain in (hmm, flat):
    start = in_float64(lambda chain: hmm_lib.chunk_start(chain, 3, 5), chain).validate()
    np.testing.assert_allclose(start.joint_initial_probs, by_powers, atol=1e-14)


@pytest.mark.parametrize('joint_prior', [False, True])
def test_random_draw(joint_prior):
  """States are in blocks by cell; what is drawn at once, memory and state or each, is a softmax at a high temperature.

  One permutation is a deterministic walk.
  """
  how = dict(num_cells=2, joint_prior=joint_prior, num_permutations=1)
  hmm = jax.jit(lambda key: memory_lib.random_memory_hmm(key, 3, 4, 10, **how))(jax.random.key(0)).validate()
  assert hmm.cell_index.tolist() == [0, 0, 1, 1]
  # Logits in [0, 1] over a temperature of 10: what is drawn at once spreads over at most 0.1.
  for probs in [hmm.joint_initial_probs] if joint_prior else [hmm.memory_probs, hmm.initial_probs]:
    assert 1e-3 < np.ptp(np.log(probs)) < 0.1 + 1e-5
  np.testing.assert_array_equal(np.sort(hmm.transition_matrix), np.tile(np.eye(4)[-1], (4, 1)))


def inferred(hmm, rows):
  """All that inference tells."""
  told = memory_lib.memory_forward_backward(hmm, rows), memory_lib.cell_posterior(hmm, rows)
  return *told, hmm_lib.conditional_token_probs(hmm, rows)


def expected_of(hmm, rows):
  """The same by definition: sums over the `Posterior` of the joint states."""
  chain, shape = joint_hmm(hmm), hmm.memory_probs.shape
  joint = log_space_posterior(chain, rows)
  by_memory = lambda probs: probs.reshape(len(probs), -1, hmm.num_states)
  cell_probs = cells_of(shape, joint.smoothed_probs[0])
  posterior = MemoryPosterior(
    cell_probs=cell_probs,
    smoothed_probs=by_memory(joint.smoothed_probs).sum(1),
    leave_one_out_probs=by_memory(joint.leave_one_out_probs).sum(1),
    joint=joint,
    marginal_loglik=joint.marginal_loglik,
  )
  return posterior, cell_probs, joint.leave_one_out_probs @ chain.emission_matrix


def test_posteriors_of_many_memories_at_once():
  """The same under `vmap`, of prompts with zeros, of a memory without full support, and of impossible evidence.

  Zero probabilities are exact, and nothing is NaN.
  """
  rng = np.random.default_rng(0)
  hmm = dense_hmm(rng, 2, per_memory=True)
  one_sided = hmm._replace(memory_probs=np.array([[0.5, 0.5], [0, 0]]), cell_index=np.array([1, 0, 0]))
  prompt = rng.uniform(size=(4, 12)) * (rng.uniform(size=(4, 12)) > 0.3)
  first_value_then_the_second = np.repeat(np.eye(2)[[0, 0, 1, 1]], 6, axis=1)
  text = rows_of(joint_hmm(one_sided), [1, MASK, 0, 3])
  cases = [(hmm, prompt), (one_sided, text), (hmm, first_value_then_the_second)]
  hmms, rows = jax.tree.map(lambda *x: np.stack(x), *cases)
  posteriors = in_float64(jax.jit(jax.vmap(inferred)), hmms, rows)
  for i, case in enumerate(cases):
    expected = expected_of(*case)
    assert np.isneginf(expected[0].marginal_loglik) == (i > 1)
    for ours, theirs in zip(*map(jax.tree.leaves, (at(posteriors, i), expected)), strict=True):
      np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
      assert (ours[theirs == 0] == 0).all()
