"""Printing of distributions and posteriors."""

from hmm_cases import float32_hmm
import jax
import numpy as np

import hmm_jax as hj


def test_a_line_has_the_shapes_of_arrays_known_or_not():
  """Tracers and shapes too; of what is no array its value, cut off."""
  hmm, seen = float32_hmm(0, 3, 4), []
  jax.eval_shape(lambda hmm: seen.append(repr(hmm)), hmm)
  shapes = 'HMM(initial_probs [3], transition_matrix [3, 3], emission_matrix [3, 4])'
  assert [*seen, repr(hmm), repr(jax.eval_shape(lambda: hmm))] == [shapes] * 3
  assert repr(hj.HMM(0, None, [0.5] * 9)).endswith('matrix None, emission_matrix [0.5, 0.5, 0.5, 0.5, 0.5, 0.5, ...])')
  posterior = hj.forward_backward(hmm, np.ones((5, 3)))
  assert repr(posterior).endswith('leave_one_out_probs [5, 3], marginal_loglik [])')
