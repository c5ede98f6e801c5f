"""The most likely path of hidden states (Viterbi 1967), from likelihood rows as in `hmm_jax.inference.posterior`."""

from jax import Array, lax
import jax.numpy as jnp

from hmm_jax._support import float64
from hmm_jax._support.arguments import checked
from hmm_jax.inference.posterior import Chain, check_rows


@checked
@float64.in_float64
def most_likely_states(hmm: Chain, likelihoods: Array) -> Array:
  """The Viterbi path argmax_e P[e_{1:T}, x_{1:T}] over joint states, of one sequence [T, E]; int32 [T].

  Ties go to the lower state; if the evidence has probability zero every path ties.

  >>> import hmm_jax as hj, jax
  >>> hmm = hj.random_hmm(jax.random.key(0), num_states=3, num_tokens=4)
  >>> most_likely_states(hmm, jnp.eye(3)[jnp.array([0, 2, 1, 0, 2])]).shape
  (5,)
  """
  check_rows(hmm, likelihoods)
  num_states = hmm.transition_matrix.shape[-1]
  log_constant = lambda x: float64.log_of_any(float64.as_float64(lax.stop_gradient(float64.as_float(x))))
  log_by_parts = lambda x: log_constant(x).reshape(*x.shape[:-1], -1, num_states)
  log_initial_CxH, log_rows_TxCxH = log_by_parts(hmm.joint_initial_probs), log_by_parts(likelihoods)
  log_transition = log_constant(hmm.transition_matrix)[:, None]
  # XLA lowers an argmax of float64 outside of `in_float64`, where it fails.
  first_best = lambda score, axis: (score == score.max(axis, keepdims=True)).argmax(axis).astype(jnp.int32)

  def forward(score_CxH: Array, log_row: Array) -> tuple[Array, Array]:
    through = score_CxH.T[:, :, None] + log_transition
    return through.max(0) + log_row, first_best(through, 0)

  score, best_previous = lax.scan(forward, log_initial_CxH + log_rows_TxCxH[0], log_rows_TxCxH[1:])
  configuration, last = jnp.divmod(first_best(score.reshape(-1), 0), num_states)
  step_back = lambda state, best: (best[state], best[state])
  _, states = lax.scan(step_back, last, best_previous[:, configuration], reverse=True)
  return configuration * num_states + jnp.append(states, last)
