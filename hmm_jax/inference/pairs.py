"""Posteriors between every beginning and every end of a text.

Pairs meet only at one position, so that one forward pass for each beginning and one backward pass for each end suffice.
"""

from typing import Any

from jax import Array, lax
import jax.numpy as jnp

from hmm_jax._support import float64
from hmm_jax._support.arguments import check_widths, checked
from hmm_jax._support.batching import with_batching_rule
from hmm_jax.inference.arithmetic import Arithmetic, scaled_or_logarithmic
from hmm_jax.inference.passes import forward, scan
from hmm_jax.inference.posterior import batch_last, Chain


@checked
def probs_between(hmm: Chain, before: Array, after: Array) -> Array:
  """P[H_t | x_{1:t-1}, x_{t+1:}] of every beginning with every end, [K, B, E], as in `leave_one_out_probs`.

  K beginnings and B ends cost K + B passes where K B sequences would cost two each. Differentiable as
  `forward_backward`.

  Args:
    hmm: as in `forward_backward`.
    before: [K, P, E], likelihood rows before t.
    after: [B, T, E], likelihood rows after t.

  >>> import hmm_jax as hj, jax
  >>> hmm = hj.random_hmm(jax.random.key(0), num_states=3, num_tokens=4)
  >>> probs_between(hmm, before=jnp.ones((2, 1, 3)), after=jnp.ones((5, 4, 3))).shape
  (2, 5, 3)
  """
  check_widths((before, after), hmm.joint_initial_probs.shape[-1])
  distribution = map(float64.as_float, (hmm.joint_initial_probs, hmm.transition_matrix))
  rows = float64.as_float(before)[None], float64.as_float(after)[None]
  return with_batching_rule(_pair_probs)(*distribution, *rows)[0]


def _pair_probs(initial_probs: Array, matrix: Array, before: Array, after: Array) -> Array:
  """P[H_t | x_{-t}] [N, K, B, E] of all pairs of rows before t [N, K, P, E] and after t [N, B, T, E]; N is a batch.

  The distribution is one for all, [E] and [H, H], or one for each, [N, E] and [N, H, H].
  """
  num_states = matrix.shape[-1]
  split = lambda x: x.reshape(*x.shape[:-1], x.shape[-1] // num_states, num_states)
  rows = (
    jnp.einsum('nkpch->phcnk', split(before))[..., None],
    jnp.einsum('nbtch->thcnb', split(after))[:, :, :, :, None],
  )
  (probs_HxCxP,), _ = scaled_or_logarithmic(_between, *batch_last(initial_probs, matrix, 3), *rows)
  return probs_HxCxP.transpose(2, 1, 0).reshape(*before.shape[:2], after.shape[1], after.shape[-1])


def _between(ops: Arithmetic, dtype: Any, pi: Any, A: Any, before: Any, after: Any) -> tuple[Array, Array]:
  """P[H_t | x_{-t}], [1, H, C, N K B], and the log-evidence [N K B] of rows [P, H, C, N, K, 1] before t and
  [T, H, C, N, 1, B] after it.

  The backward pass has no c of a forward pass, and is scaled by sums of its own.
  """
  open_end = jnp.concatenate([before, ops.ones((1, *before.shape[1:]), before.dtype)])
  predicted, log_evidence, *_ = forward(ops, dtype, pi, A, open_end)

  def step(carry: Any, row: Any) -> Any:
    beta, evidence = carry
    moved = ops.matvec(A, ops.times(beta, row))
    scale = lax.stop_gradient(ops.total(moved))
    return (ops.over(moved, scale), ops.times(evidence, scale)), None

  ones = lambda shape: ops.ones(shape, after.dtype)
  (beta, evidence), _ = scan(step, (ones(after.shape[1:]), ones(after.shape[3:])), after, reverse=True)
  joint = ops.times(predicted, beta)
  joint, log_evidence = joint.reshape(*joint.shape[:2], -1), (log_evidence + ops.log(evidence)).reshape(-1)
  return ops.probs(joint, dtype)[None], log_evidence + ops.log(ops.total(joint))
