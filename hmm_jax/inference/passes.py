"""The forward and the backward recursion of a Markov chain, scaled as in Bishop (2006), 13.2.4.

Rabiner (1989), V.A, writes c_t for 1 / c_t, and his scaled beta_t is beta_t / c_t here.

pi is P[H_1], A[i, j] = P[H_{t+1} = j | H_t = i], and l_t the likelihood row of position t. Messages are [H, C, B]:
hidden states, configurations that never move, and the batch, last since a CPU is fastest so. Products, sums and
quotients are those of an `Arithmetic`, whose encoding all arguments have: for plain weights `*`, `@`, and a `/` that
divides by 1 in place of 0.
"""

from collections.abc import Callable
from typing import Any

import jax
from jax import Array, lax
import jax.numpy as jnp
import numpy as np

from hmm_jax.inference.arithmetic import Arithmetic, by_evidence, Certify, SCALED

# Products of positive numbers that stay above the first lose no entry; messages below the second overflow no gradient.
_LEAST, _MOST = 1e-290, 1e150


def smooth(
  certify: Certify, ops: Arithmetic, dtype: Any, pi: Any, A: Any, rows: Any
) -> tuple[tuple[Array, ...], Array, Array]:
  """The probabilities of a `Posterior`, [T, H, C, B] each, log-evidence [B], and where underflow does not matter."""
  _, log_evidence, predicted, c, filtered_probs = forward(ops, dtype, pi, A, rows)
  certified = _certified(certify, ops, log_evidence, A, rows, predicted, c)
  if certify is not by_evidence:
    # Elsewhere beta, at most 1 / evidence, could overflow: there the future counts as impossible, so that the result,
    # which logarithms replace, and its gradient stay finite.
    c = lax.stop_gradient(jnp.where(certified, c, jnp.inf))
  smoothed_probs, leave_one_out_probs = backward(ops, dtype, A, rows, predicted, c)
  predicted_probs = jax.vmap(lambda message: ops.probs(message, dtype))(predicted)
  return (filtered_probs, predicted_probs, smoothed_probs, leave_one_out_probs), log_evidence, certified


def filter_to_end(
  certify: Certify, ops: Arithmetic, dtype: Any, pi: Any, A: Any, rows: Any
) -> tuple[Array, Array, Array]:
  """P[H_T | x_{1:T}] [H, C, B], the log-evidence [B], and where underflow does not matter."""
  alpha, log_evidence, predicted, *_ = forward(ops, dtype, pi, A, rows)
  certified = _certified(certify, ops, log_evidence, A, rows, predicted, None)
  return ops.decoded(alpha, dtype), log_evidence, certified


def forward(ops: Arithmetic, dtype: Any, pi: Any, A: Any, rows: Any) -> tuple[Any, Array, Any, Any, Array]:
  """alpha_t(j) = predicted_t(j) l_t(j) / c_t and predicted_{t+1}(j) = sum_i alpha_t(i) A[i, j], from predicted_1 = pi.

  Returns alpha_T, log P[x_{1:T}] [B], and by position predicted_t = P[H_t | x_{1:t-1}], c_t = P[x_t | x_{1:t-1}] and
  the probabilities alpha_t = P[H_t | x_{1:t}] as `dtype`, for rows [T, H, C, B].
  """
  A_transposed = A.swapaxes(0, 1)

  def step(carry: Any, row: Any) -> Any:
    # The last alpha is carried to be returned with its gradient.
    predicted, _, evidence = carry
    joint = ops.times(predicted, row)
    # A constant: the gradient of all c is that of the total at the end.
    c = lax.stop_gradient(ops.total(joint))
    alpha = ops.over(joint, c)
    return (ops.matvec(A_transposed, alpha), alpha, ops.times(evidence, c)), (predicted, c, ops.decoded(alpha, dtype))

  start = jnp.broadcast_to(pi, rows.shape[1:])
  (_, alpha, evidence), by_position = scan(step, (start, start, ops.ones(rows.shape[3:], np.float64)), rows)
  log_evidence = ops.log(evidence)
  if ops is SCALED:
    # A product of many c underflows.
    is_log = log_evidence >= ops.least_log_evidence
    logs = lambda: jnp.where(is_log, log_evidence, ops.log(by_position[1]).sum(0))
    log_evidence = lax.cond(is_log.all(), lambda: log_evidence, logs)
  # The total is 1; its gradient is that of the log-evidence.
  return alpha, log_evidence + ops.log(ops.total(alpha)), *by_position


def backward(ops: Arithmetic, dtype: Any, A: Any, rows: Any, predicted: Any, c: Any) -> tuple[Array, Array]:
  """beta_t(i) = sum_j A[i, j] l_{t+1}(j) beta_{t+1}(j) / c_{t+1}, from beta_T = 1.

  Returns by position P[H_t | x_{1:T}] = predicted_t l_t beta_t / c_t, and P[H_t | x_{-t}], predicted_t beta_t
  normalised. c_t = inf makes the future impossible.
  """

  def step(beta: Any, position: Any) -> Any:
    predicted_t, c_t, row = position
    observed = ops.over(ops.times(beta, row), c_t)
    smoothed, leave_one_out = ops.times(predicted_t, observed), ops.times(predicted_t, beta)
    # The first is beta_{t-1}.
    return ops.matvec(A, observed), (ops.probs(smoothed, dtype), ops.probs(leave_one_out, dtype))

  return scan(step, ops.ones(rows.shape[1:], rows.dtype), (predicted, c, rows), reverse=True)[1]


def scan(step: Callable[..., Any], start: Any, positions: Any, reverse: bool = False) -> Any:
  """`lax.scan` that saves only carries for the gradient: recomputing a step is cheaper than storing it."""
  return lax.scan(jax.checkpoint(step, prevent_cse=False), start, positions, reverse=reverse)


def _certified(
  certify: Certify, ops: Arithmetic, log_evidence: Array, A: Any, rows: Array, predicted: Array, c: Array | None
) -> Array:
  """True where underflow does not matter in the forward pass and in the backward pass, which has c if it runs, [B].

  Either the evidence is large, or no entry of a message is lost, so that each has the relative precision of a float.
  `certify` says when the second is computed, by the messages alone.
  """
  log_evidence, A, rows, predicted, c = lax.stop_gradient((log_evidence, A, rows, predicted, c))
  is_large = log_evidence >= ops.least_log_evidence
  if ops is not SCALED:
    return is_large

  def either() -> Array:
    low, high = _least(predicted), predicted.max((0, 1, 2))
    if c is not None:
      backward_low, backward_high = _backward_range(ops, A, rows, c)
      low, high = jnp.minimum(low, backward_low), jnp.maximum(high, backward_high)
    keeps_all = (low * _least(A[:, :, None]) * _least(rows) > _LEAST) & (high < _MOST)
    return is_large | jnp.isfinite(log_evidence) & keeps_all

  return certify(is_large, either)


def _backward_range(ops: Arithmetic, A: Array, rows: Array, c: Array) -> tuple[Array, Array]:
  """The least entry but 0 and the largest of all beta_t, [B] each."""

  def step(carry: Any, position: Any) -> Any:
    beta, low, high = carry
    row, c_t = position
    beta = ops.matvec(A, ops.over(ops.times(beta, row), c_t))
    return (beta, jnp.minimum(low, _least(beta[None])), jnp.maximum(high, beta.max((0, 1)))), None

  ones = ops.ones(rows.shape[1:], rows.dtype)
  _, low, high = lax.scan(step, (ones, ones[0, 0], ones[0, 0]), (rows, c), reverse=True)[0]
  return low, high


def _least(weights: Array) -> Array:
  """The least entry but 0 over the first three axes."""
  return jnp.where(weights > 0, weights, jnp.inf).min((0, 1, 2))
