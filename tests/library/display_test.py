"""Printing of distributions and posteriors."""

from hmm_cases import float32_hmm
import jax
from memory_hmm_cases import dense_hmm, float32
import numpy as np
import scipy.stats

import hmm_jax as hj

HIDDEN = float32_hmm(0, 3, 4)
MEMORY = float32(dense_hmm(np.random.default_rng(1), 2))


def _entropy(probs):
  """The mean entropy of distributions on the last axis."""
  return f'{scipy.stats.entropy(np.float64(probs), axis=-1).mean():.3g} nats'


def test_a_line_has_shapes_and_mean_entropies():
  """In nats; of a memory that of all cells together, and of one number the number."""
  initial, transition, emission = map(_entropy, HIDDEN)
  fields = f'initial_probs [3] {initial}, transition_matrix [3, 3] {transition}, emission_matrix [3, 4] {emission}'
  assert repr(HIDDEN) == f'HMM({fields})'
  assert f'memory_probs [2, 2] {_entropy(np.ravel(MEMORY.memory_probs))}, ' in repr(MEMORY)
  shapes = jax.eval_shape(hj.memory_forward_backward, MEMORY, np.ones((40, 12), np.float32))
  pairs = np.random.default_rng(2).dirichlet(np.ones(6), 40)
  posterior = jax.tree.map(lambda shape: np.zeros(shape.shape), shapes)
  posterior = posterior._replace(leave_one_out_read_probs=pairs.reshape(40, 2, 3), marginal_loglik=np.array(-1.25))
  line = repr(posterior)
  assert f'leave_one_out_read_probs [40, 2, 3] {_entropy(pairs)}, joint Posterior(' in line
  assert line.endswith('marginal_loglik -1.25)')
  assert '\n' not in line and len(line) < 400


def test_leaves_without_numbers_print_their_shape():
  """Tracers, shapes and other stand-ins for an array in a tree."""
  seen = []
  jax.eval_shape(lambda hmm: seen.append(repr(hmm)), HIDDEN)
  shapes = 'HMM(initial_probs [3], transition_matrix [3, 3], emission_matrix [3, 4])'
  assert [*seen, repr(jax.eval_shape(lambda: HIDDEN))] == [shapes] * 2
  assert repr(hj.HMM(0, None, [0.5] * 9)).endswith('matrix None, emission_matrix [0.5, 0.5, 0.5, 0.5, 0.5, 0.5, ...])')
