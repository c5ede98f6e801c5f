"""Posteriors between every beginning and every end of a text.

Pairs meet only at one position, so that one forward pass for each beginning and one backward pass for each end suffice.
"""

from collections.abc import Callable
import functools
from typing import Any

from jax import Array, lax
import jax.numpy as jnp

from hmm_jax._support import float64
from hmm_jax._support.arguments import check_shape, checked
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
  return _of_pairs(_between, hmm, before, after)


@checked
def probs_before(hmm: Chain, between: Array, after: Array) -> Array:
  """P[H_1 | x_{2:}] of every middle with every end, [K, B, E], as in `leave_one_out_probs`.

  B ends cost B passes, and each pair one of the P rows between. Differentiable as `forward_backward`.

  Args:
    hmm: as in `forward_backward`.
    between: [K, P, E], likelihood rows from position 2 on.
    after: [B, T, E], those that follow.

  >>> import hmm_jax as hj, jax
  >>> hmm = hj.random_hmm(jax.random.key(0), num_states=3, num_tokens=4)
  >>> probs_before(hmm, between=jnp.ones((2, 1, 3)), after=jnp.ones((5, 4, 3))).shape
  (2, 5, 3)
  """
  return _of_pairs(_before, hmm, between, after)


def _of_pairs(run: Callable[..., Any], hmm: Chain, firsts: Array, seconds: Array) -> Array:
  """The probabilities [K, B, E] that `run`, `_between` or `_before`, gives of all pairs of rows."""
  for each in (firsts, seconds):
    check_shape('likelihood rows', each, ..., hmm.joint_initial_probs.shape[-1])
  distribution = map(float64.as_float, (hmm.joint_initial_probs, hmm.transition_matrix))
  rows = float64.as_float(firsts)[None], float64.as_float(seconds)[None]
  return with_batching_rule(functools.partial(_pair_probs, run))(*distribution, *rows)[0]


def _pair_probs(run: Callable[..., Any], initial_probs: Array, matrix: Array, before: Array, after: Array) -> Array:
  """What `run` gives [N, K, B, E] of all pairs of rows before [N, K, P, E] and after [N, B, T, E]; N is a batch.

  The distribution is one for all, [E] and [H, H], or one for each, [N, E] and [N, H, H].
  """
  num_states = matrix.shape[-1]
  split = lambda x: x.reshape(*x.shape[:-1], x.shape[-1] // num_states, num_states)
  rows = (
    jnp.einsum('nkpch->phcnk', split(before))[..., None],
    jnp.einsum('nbtch->thcnb', split(after))[:, :, :, :, None],
  )
  (probs_HxCxP,), _ = scaled_or_logarithmic(run, *batch_last(initial_probs, matrix, 3), *rows)
  return probs_HxCxP.transpose(2, 1, 0).reshape(*before.shape[:2], after.shape[1], after.shape[-1])


def _between(ops: Arithmetic, dtype: Any, pi: Any, A: Any, before: Any, after: Any) -> tuple[Array, Array, Array]:
  """P[H_t | x_{-t}], [1, H, C, N K B], and the log-evidence [N K B] of rows [P, H, C, N, K, 1] before t and
  [T, H, C, N, 1, B] after it.

  The backward pass has no c of a forward pass, and is scaled by sums of its own.
  """
  open_end = jnp.concatenate([before, ops.ones((1, *before.shape[1:]), before.dtype)])
  predicted, log_evidence, *_ = forward(ops, dtype, pi, A, open_end)
  beta, evidence = _end(ops, A, after)
  return _normalised(ops, dtype, ops.times(predicted, beta), log_evidence + ops.log(evidence))


def _before(ops: Arithmetic, dtype: Any, pi: Any, A: Any, between: Any, after: Any) -> tuple[Array, Array, Array]:
  """P[H_1 | x_{2:}] and the log-evidence as in `_between`, of rows [P, H, C, N, K, 1] from 2 on and of those after."""
  shape = jnp.broadcast_shapes(between.shape[1:], after.shape[1:])
  beta, evidence = _end(ops, A, after)
  start = jnp.broadcast_to(beta, shape), jnp.broadcast_to(evidence, shape[2:])
  beta, evidence = _message(ops, A, between, start)
  return _normalised(ops, dtype, ops.times(pi, beta), ops.log(evidence))


def _message(ops: Arithmetic, A: Any, rows: Any, start: tuple[Any, Any]) -> tuple[Array, Array]:
  """beta(i) [H, C, N, K, B], proportional to P[rows | H = i], and its factor [N, K, B], from those of later rows."""

  def step(carry: Any, row: Any) -> Any:
    beta, evidence = carry
    moved = ops.matvec(A, ops.times(beta, row))
    scale = lax.stop_gradient(ops.total(moved))
    return (ops.over(moved, scale), ops.times(evidence, scale)), None

  return scan(step, start, rows, reverse=True)[0]


def _end(ops: Arithmetic, A: Any, after: Any) -> tuple[Array, Array]:
  """The `_message` of rows after which there are none."""
  ones = lambda shape: ops.ones(shape, after.dtype)
  return _message(ops, A, after, (ones(after.shape[1:]), ones(after.shape[3:])))


def _normalised(ops: Arithmetic, dtype: Any, joint: Any, log_evidence: Array) -> tuple[Array, Array, Array]:
  """Probabilities [1, H, C, N K B] of a joint law [H, C, N, K, B], log-evidence with its total, and if it is enough."""
  joint = joint.reshape(*joint.shape[:2], -1)
  log_evidence = log_evidence.reshape(-1) + ops.log(ops.total(joint))
  return ops.probs(joint, dtype)[None], log_evidence, log_evidence >= ops.least_log_evidence
