"""Forward and backward passes over messages in an `Arithmetic`: the recursions of `hmm_jax.inference.posterior`.

Messages are [H, C, B], with the batch as the minor axis, the fast layout on a CPU. `smooth` scales both
passes by P[x_t | x_{1:t-1}] (Rabiner 1989, V.A). Arguments are encoded.
"""

from collections.abc import Callable
from typing import Any

import jax
from jax import Array, lax
import jax.numpy as jnp
import numpy as np

from hmm_jax.inference import messages
from hmm_jax.inference.messages import Arithmetic


def _scan(step: Callable[..., Any], start: Any, rows: Any, reverse: bool = False) -> Any:
  """`lax.scan` that saves only carries for the gradient: recomputing a step is cheaper than storing it."""
  return lax.scan(jax.checkpoint(step, prevent_cse=False), start, rows, reverse=reverse)


def forward(
  arithmetic: Arithmetic, dtype: Any, initial_probs: Array, transition_matrix: Array, rows: Array
) -> tuple[Any, Array, Any, Any, Array]:
  """The last filtered message, the log-evidence [B], and three arrays by position.

  They are predicted_t(h) = P[H_t = h | x_{1:t-1}], the scale P[x_t | x_{1:t-1}] [B], and the filtered probabilities.
  Rows are [T, H, C, B], `initial_probs` [H, C, 1 or B]; probabilities are stored as `dtype`.
  """
  matrix = transition_matrix.swapaxes(0, 1)

  def step(carry: tuple[Any, ...], row: Array) -> tuple[tuple[Any, ...], tuple[Any, Any, Array]]:
    predicted, _, evidence = carry
    updated = arithmetic.times(predicted, row)
    scale = lax.stop_gradient(arithmetic.total(updated))
    filtered = arithmetic.over(updated, scale)
    carry = arithmetic.contract(matrix, filtered), filtered, arithmetic.times(evidence, scale)
    return carry, (predicted, scale, messages.probs(arithmetic.decode(filtered)).astype(dtype))

  start = jnp.broadcast_to(initial_probs, rows.shape[1:])
  certain = arithmetic.one(rows.shape[3:], np.float64)  # A product of many scales.
  (_, filtered, evidence), by_position = _scan(step, (start, start, certain), rows)
  # The total is 1; its gradient is that of the log-evidence, since the scales are constants.
  return filtered, arithmetic.log(evidence) + arithmetic.log(arithmetic.total(filtered)), *by_position


def smooth(
  arithmetic: Arithmetic, dtype: Any, initial_probs: Array, transition_matrix: Array, rows: Array
) -> tuple[tuple[Array, ...], Array]:
  """The probabilities of a `Posterior`, with the axes of the rows, and the log-evidence; arguments as in `forward`.

  future_t(h) = P[x_{t+1:T} | H_t = h] / P[x_{t+1:T} | x_{1:t}] is scaled like the forward pass.
  """
  _, log_evidence, predicted, scale, filtered_probs = forward(arithmetic, dtype, initial_probs, transition_matrix, rows)
  # The largest entry of the future is at most 1 / evidence. Where that could overflow, the future counts as impossible:
  # the result, which logarithms replace, and its gradient stay finite.
  scale = lax.stop_gradient(jnp.where(log_evidence >= arithmetic.least_log_evidence, scale, jnp.inf))
  probs = lambda message: _probs(arithmetic, dtype, message)

  def step(future: Any, at: tuple[Any, Any, Array]) -> tuple[Any, tuple[Array, Array]]:
    predicted, scale, row = at
    observed = arithmetic.over(arithmetic.times(future, row), scale)
    joint = arithmetic.times(predicted, observed)
    by_position = probs(joint), probs(arithmetic.times(predicted, future))
    return arithmetic.contract(transition_matrix, observed), by_position

  no_future = arithmetic.one(rows.shape[1:], rows.dtype)
  _, (smoothed, leave_one_out) = _scan(step, no_future, (predicted, scale, rows), reverse=True)
  return (filtered_probs, jax.vmap(probs)(predicted), smoothed, leave_one_out), log_evidence


def _probs(arithmetic: Arithmetic, dtype: Any, message: Any) -> Array:
  """The probabilities of a message, scaled to sum 1 by a constant under differentiation."""
  scaled = arithmetic.over(message, lax.stop_gradient(arithmetic.total(message)))
  return messages.probs(arithmetic.decode(scaled)).astype(dtype)


def between(
  arithmetic: Arithmetic, dtype: Any, initial_probs: Array, transition_matrix: Array, *rows: Array
) -> tuple[Array, Array]:
  """P[H_t | x_{-t}], [1, H, C, N K B], and the log-evidence [N K B] of rows [P, H, C, N, K, 1] before t and
  [T, H, C, N, 1, B] after it.

  Pairs meet only at t: one forward pass for each beginning and one backward pass for each end suffice.
  """
  before, after = rows
  open_end = jnp.concatenate([before, arithmetic.one((1, *before.shape[1:]), before.dtype)])
  predicted, log_evidence, *_ = forward(arithmetic, dtype, initial_probs, transition_matrix, open_end)

  def step(carry: tuple[Any, Any], row: Array) -> tuple[tuple[Any, Any], None]:
    future, evidence = carry
    moved = arithmetic.contract(transition_matrix, arithmetic.times(future, row))
    scale = lax.stop_gradient(arithmetic.total(moved))
    return (arithmetic.over(moved, scale), arithmetic.times(evidence, scale)), None

  one = lambda shape: arithmetic.one(shape, after.dtype)
  (future, evidence), _ = _scan(step, (one(after.shape[1:]), one(after.shape[3:])), after, reverse=True)
  joint = arithmetic.times(predicted, future)
  joint, log_evidence = joint.reshape(*joint.shape[:2], -1), (log_evidence + arithmetic.log(evidence)).reshape(-1)
  probs = _probs(arithmetic, dtype, joint)
  return probs[None], log_evidence + arithmetic.log(arithmetic.total(joint))


def filter_to_end(arithmetic: Arithmetic, dtype: Any, *arguments: Array) -> tuple[Array, Array]:
  """The last filtered probabilities, [H, C, B], and the log-evidence; arguments as in `forward`."""
  filtered, log_evidence, *_ = forward(arithmetic, dtype, *arguments)
  return messages.probs(arithmetic.decode(filtered)).astype(dtype), log_evidence
