"""Facts about the precision of a memory's posterior: float32 results are float64 rounded, and late evidence counts."""

from conftest import compiling_fast
import jax
import jax.numpy as jnp
from memory_hmm_cases import assert_trees_close, DRAWN, float32, inferred
import numpy as np
from oracles import cells_of, log_space_posterior
import pytest

from hmm_jax import hmm as hmm_lib, memory_hmm as memory_lib, sampling
from hmm_jax.memory_hmm import MemoryHMM


def sampled_rows(hmm):
  """Rows [4, 512, E] of text of `hmm`, its first token masked; every second text ends after 129 tokens."""
  keys = jax.random.split(jax.random.key(1), 4)
  tokens = jax.vmap(lambda key: sampling.sample(key, hmm, 512)[1])(keys)
  position = jnp.arange(512)
  return hmm_lib.token_likelihoods(hmm, tokens, (position > 0) & (position < jnp.array([[512], [129]] * 2)))


@pytest.mark.parametrize('num_cells, memory_size, num_states', DRAWN)
def test_text_is_the_flattened_chain_in_float64(num_cells, memory_size, num_states):
  """On text of the paper's draw every quantity is that of the flattened chain by logarithms in float64, rounded."""
  with compiling_fast():
    hmm = memory_lib.random_memory_hmm(jax.random.key(0), memory_size, num_states, 10, num_cells=num_cells)
    flat, rows = memory_lib.to_hmm(hmm), sampled_rows(hmm)
  posterior, cells, loglik, tokens = inferred(hmm, rows)
  expected = log_space_posterior(flat, rows)
  assert_trees_close(posterior.joint[:4], expected[:4], 3.1e-8)
  np.testing.assert_allclose(posterior.marginal_loglik, expected.marginal_loglik, rtol=1.2e-7)
  np.testing.assert_allclose(loglik, expected.marginal_loglik, rtol=1.2e-7)
  np.testing.assert_allclose(tokens, expected.leave_one_out_probs @ np.float64(flat.emission_matrix), atol=5e-7)
  by_cell = cells_of(hmm.memory_probs.shape, expected.smoothed_probs[:, 60])
  np.testing.assert_allclose(posterior.cell_probs, by_cell, atol=2e-7)
  np.testing.assert_allclose(cells, by_cell, atol=2e-7)


def test_late_evidence_revives_a_memory_that_was_all_but_ruled_out():
  """A memory that one row put below 1e-54 is what the document holds once later rows favour it by 1e60."""
  hmm = float32(MemoryHMM(np.array([1, 1e-30]), np.ones(1), np.ones((1, 1)), np.zeros(1, int), np.full((2, 1, 2), 0.5)))
  rows = np.ones((31, 2), np.float32)
  rows[0, 1], rows[1:, 0] = 1e-25, 0.01
  odds = 1e-55 * 10.0 ** (2 * np.arange(31))
  posterior, cells, loglik, _ = jax.tree.map(np.asarray, inferred(hmm, rows))
  np.testing.assert_allclose(cells, [[1 / (1 + odds[-1]), odds[-1] / (1 + odds[-1])]], atol=1e-6)
  np.testing.assert_allclose(loglik, np.log1p(odds[-1]) - 60 * np.log(10), rtol=1e-6)
  np.testing.assert_allclose(posterior.joint.filtered_probs[:, 1], odds / (1 + odds), atol=1e-6)


def test_a_memory_that_was_lost_and_favoured_is_taken_back_by_the_last_row():
  """A memory ruled out by 1e60, favoured by 1e95, then set back by 1e34 holds 10/11: its loss passed every bound."""
  hmm = MemoryHMM(jnp.full(2, 0.5), jnp.ones(1), jnp.ones((1, 1)), jnp.zeros(1, int), jnp.full((2, 1, 2), 0.5))
  rows = jnp.array([[1, 1e-30]] * 2 + [[0.1, 1]] * 95 + [[1, 1e-34]])
  np.testing.assert_allclose(memory_lib.cell_posterior(hmm, rows), [[1 / 11, 10 / 11]], atol=1e-6)
