"""Exact inference on a Markov chain from likelihood rows (the paper's G-bar before the emissions).

The likelihood row of position t holds P[observation at t | state], up to any positive factor: a token is its column
of the emission matrix, [MASK] is a row of ones, a theory prompt is the row u in [0, 1]^H, and a position past the end
of a ragged sequence is a row of ones.

A state may have a part that never moves, such as a memory: with E = C H joint states, number c H + h is the pair
of a configuration c and a hidden state h. The transition matrix is that of h alone, and a step costs O(C H^2).
A plain chain has C = 1 and E = H.

Arithmetic is float64 whatever the arrays are; results have the type of the likelihoods. Messages are [H, C, B], with
the batch as the minor axis, the fast layout on a CPU, and are scaled to sum to 1. A sequence whose evidence is so
improbable that what a scaled message rounds to zero could matter is worked out once more with logarithms. TPUs have
no float64: there all of this runs on the host.
"""

from collections.abc import Callable
import functools
from typing import Any, NamedTuple, Protocol

import jax
from jax import Array, lax
import jax.numpy as jnp
import numpy as np

from hmm_jax import float64, messages
from hmm_jax.blocks import map_blocks
from hmm_jax.messages import Arithmetic

# Rounding to zero takes from a message of sum 1 at most H^2 1e-308 a step, and so from any posterior, where the
# evidence of rows with maximum 1 is at least exp(-650) = 1e-282, at most T H^2 1e-26.
_LEAST_LOG_EVIDENCE = -650
# Entries of the messages that a CPU works on at a time: they stay in its fastest cache.
_CPU_BLOCK_ENTRIES = 1600


class Chain(Protocol):
  """A distribution as inference sees it: `joint_initial_probs` [E], and the `transition_matrix` [H, H] of h."""

  @property
  def joint_initial_probs(self) -> Array | np.ndarray: ...

  @property
  def transition_matrix(self) -> Array | np.ndarray: ...


class Posterior(NamedTuple):
  """The posteriors of one pass forward and one backward. A row is all zeros where its evidence is impossible.

  Attributes:
    filtered_probs: [T, E], P[H_t | x_{1:t}].
    predicted_probs: [T, E], P[H_t | x_{1:t-1}]; row 0 is the initial distribution.
    smoothed_probs: [T, E], P[H_t | x_{1:T}].
    leave_one_out_probs: [T, E], P[H_t | x_{-t}]; row t does not depend on likelihood row t.
    marginal_loglik: [], log P[x_{1:T}] in nats; -inf where the evidence has probability zero.
  """

  filtered_probs: Array
  predicted_probs: Array
  smoothed_probs: Array
  leave_one_out_probs: Array
  marginal_loglik: Array


def _forward(
  arithmetic: Arithmetic, dtype: Any, initial_probs: Array, transition_matrix: Array, rows: Array
) -> tuple[Any, Array, Any, Array]:
  """The last filtered message, the log-evidence [B], and by position the predicted message and filtered probabilities.

  Rows are [T, H, C, B], `initial_probs` [H, C, 1]; probabilities are stored as `dtype`.
  """
  matrix = arithmetic.encode(transition_matrix.T)
  log_constant = lambda message: lax.stop_gradient(arithmetic.log_total(message))

  def step(carry: tuple[Any, ...], row: Array) -> tuple[tuple[Any, ...], tuple[Any, Array]]:
    predicted, log_scale, *_ = carry
    updated = arithmetic.times(predicted, arithmetic.encode(row))
    filtered = arithmetic.rescale(updated)
    moved = arithmetic.contract(matrix, filtered)
    log_scale_of_next = log_scale + log_constant(updated) + log_constant(moved)
    carry = arithmetic.rescale(moved), log_scale_of_next, updated, log_scale
    return carry, (predicted, messages.probs(arithmetic.decode(filtered)).astype(dtype))

  start = arithmetic.encode(jnp.broadcast_to(initial_probs, rows.shape[1:]))
  carry = (arithmetic.rescale(start), log_constant(start)) * 2
  (*_, updated, log_scale), by_position = lax.scan(step, carry, rows)
  return arithmetic.rescale(updated), log_scale + arithmetic.log_total(updated), *by_position


def _smooth(
  arithmetic: Arithmetic, dtype: Any, initial_probs: Array, transition_matrix: Array, rows: Array
) -> tuple[tuple[Array, ...], Array]:
  """The probabilities of a `Posterior`, their axes those of the rows, and the log-evidence; arguments as in `_forward`.

  Up to a factor for every t, predicted_t(h) = P[H_t = h, x_{1:t-1}] and future_t(h) = P[x_{t+1:T} | H_t = h].
  """
  _, log_evidence, predicted, filtered_probs = _forward(arithmetic, dtype, initial_probs, transition_matrix, rows)
  matrix = arithmetic.encode(transition_matrix)
  probs = lambda message: messages.probs(arithmetic.decode(message)).astype(dtype)

  def step(future: Any, predicted_and_row: tuple[Any, Array]) -> tuple[Any, tuple[Array, ...]]:
    predicted, row = predicted_and_row
    observed = arithmetic.times(future, arithmetic.encode(row))
    joint = (arithmetic.rescale(arithmetic.times(predicted, message)) for message in (observed, future))
    return arithmetic.rescale(arithmetic.contract(matrix, observed)), tuple(map(probs, joint))

  no_future = arithmetic.encode(jnp.ones_like(rows[0]))
  _, two_sided_probs = lax.scan(step, no_future, (predicted, rows), reverse=True)
  return (filtered_probs, probs(predicted), *two_sided_probs), log_evidence


def _between(
  arithmetic: Arithmetic, dtype: Any, initial_probs: Array, transition_matrix: Array, *rows: Array
) -> tuple[Array, Array]:
  """P[H_t | x_{-t}], [1, H, C, K B], and the log-evidence [K B] of rows [P, H, C, K, 1] before t and
  [T, H, C, 1, B] after it.

  Pairs meet at t alone: the pass forward is made once for each beginning, the one backward once for each end.
  """
  before, after = rows
  open_end = jnp.concatenate([before, jnp.ones((1, *before.shape[1:]), before.dtype)])
  _, log_evidence, predicted, _ = _forward(arithmetic, dtype, initial_probs, transition_matrix, open_end)
  matrix = arithmetic.encode(transition_matrix)

  def step(carry: tuple[Any, Array], row: Array) -> tuple[tuple[Any, Array], None]:
    future, log_scale = carry
    moved = arithmetic.contract(matrix, arithmetic.times(future, arithmetic.encode(row)))
    return (arithmetic.rescale(moved), log_scale + lax.stop_gradient(arithmetic.log_total(moved))), None

  no_future = arithmetic.encode(jnp.ones(after.shape[1:], after.dtype))
  (future, log_scale), _ = lax.scan(step, (no_future, jnp.zeros(after.shape[3:], after.dtype)), after, reverse=True)
  joint = arithmetic.times(predicted[-1], future)
  joint, log_evidence = joint.reshape(*joint.shape[:2], -1), (log_evidence + log_scale).reshape(-1)
  probs = messages.probs(arithmetic.decode(arithmetic.rescale(joint))).astype(dtype)
  return probs[None], log_evidence + arithmetic.log_total(joint)


def _filter_to_end(arithmetic: Arithmetic, dtype: Any, *arguments: Array) -> tuple[Array, Array]:
  filtered, log_evidence, *_ = _forward(arithmetic, dtype, *arguments)
  return messages.probs(arithmetic.decode(filtered)).astype(dtype), log_evidence


def _at_most_once(done: Array, otherwise: Any, function: Callable[[Any], Any]) -> Any:
  """`otherwise` where all is `done`, or `function` of it; under `vmap` a `cond` would always compute both."""
  run = lambda state: (jnp.bool_(True), function(state[1]))
  return lax.while_loop(lambda state: ~state[0], run, (done, otherwise))[1]


def _once_with_reverse_mode(done: Array, otherwise: Any, function: Callable[[Any], Any]) -> Any:
  return lax.cond(done, lambda: otherwise, lambda: jax.checkpoint(function)(otherwise))


def _complete(unless: Callable[..., Any], run: Callable[..., Any], *arguments: Array) -> tuple[Any, Array]:
  """The probabilities of `run` and the log-likelihood [B]; by logarithms if evidence is too improbable for scaling."""
  constant = lambda x: float64.positive_or_one(lax.stop_gradient(x))
  initial_probs, matrix, *rows = map(float64.as_float64, arguments)
  # Distributions and rows of maximum 1 have evidence of at most 1, which the bound speaks of.
  total, row_sum, largest = (
    constant(initial_probs.sum()),
    constant(matrix.sum(1).max()),
    [constant(x.max((1, 2))) for x in rows],
  )
  scaled_arguments = (
    initial_probs / total,
    matrix / row_sum,
    *(x * (1 / y[:, None, None]) for x, y in zip(rows, largest)),
  )
  tell = lambda arithmetic: run(arithmetic, arguments[-1].dtype, *scaled_arguments)
  scaled = tell(messages.SCALED)
  certified = scaled[1] > _LEAST_LOG_EVIDENCE
  replace = lambda scaled: jax.tree.map(lambda *x: jnp.where(certified, *x), scaled, tell(messages.LOGARITHMIC))
  probs, log_evidence = unless(certified.all(), scaled, replace)
  moves = sum(map(len, rows)) - (len(rows) == 1)  # Between beginnings and ends lies one position more.
  log_constants = jnp.log(total) + moves * jnp.log(row_sum) + sum(jnp.log(x).sum(0) for x in largest)
  return probs, (log_evidence + log_constants.reshape(-1)).astype(arguments[-1].dtype)


# The rule holds the transpose inside of `in_float64` too.
_exact = jax.custom_vjp(float64.in_float64(functools.partial(_complete, _at_most_once)), nondiff_argnums=(0,))
_exact.defvjp(
  float64.in_float64(lambda run, *args: jax.vjp(functools.partial(_complete, _once_with_reverse_mode, run), *args)),
  float64.in_float64(lambda run, pull_back, cotangents: pull_back(cotangents)),
)


def _batched(run: Callable[..., Any], hmm: Chain, likelihoods: Array) -> Any:
  """The result of `run` on likelihoods [..., T, E], block by block; its arrays [..., H, C, B] become [B, ..., E]."""
  num_joint, num_states = hmm.joint_initial_probs.shape[-1], hmm.transition_matrix.shape[-1]
  if likelihoods.shape[-1] != num_joint or 0 in likelihoods.shape:
    raise ValueError(f'likelihoods have shape {likelihoods.shape}; valid is [..., T, {num_joint}], none of them 0')
  initial_probs = float64.as_float(hmm.joint_initial_probs).reshape(-1, num_states, 1).swapaxes(0, 1)
  transition_matrix = float64.as_float(hmm.transition_matrix)
  rows = float64.as_float(likelihoods).reshape(-1, *likelihoods.shape[-2:])
  count = size = len(rows)
  if jax.default_backend() == 'cpu':
    num_blocks = -(-count // max(_CPU_BLOCK_ENTRIES // rows.shape[-1], 16))
    # Whole vector registers, and no stride of a power of two, which caches are slow at.
    size = min((-(-count // num_blocks // 16) | 1) * 16, count)

  def block_posterior(rows_BxTxE: Array) -> Any:
    rows_TxHxCxB = rows_BxTxE.reshape(*rows_BxTxE.shape[:2], -1, num_states).transpose(1, 3, 2, 0)
    rows_TxHxCxB = lax.optimization_barrier(rows_TxHxCxB)  # XLA would transpose once for each use.
    batch_first = lambda x: jnp.moveaxis(x, -1, 0).swapaxes(-1, -2).reshape(x.shape[-1], *x.shape[:-3], -1)
    result = _exact(run, initial_probs, transition_matrix, rows_TxHxCxB)
    return jax.tree.map(lambda x: batch_first(x) if x.ndim > 1 else x, result)

  result = map_blocks(block_posterior, rows, size)
  return jax.tree.map(lambda x: x.reshape(likelihoods.shape[:-2] + x.shape[1:]), result)


@jax.jit
def forward_backward(hmm: Chain, likelihoods: Array) -> Posterior:
  """Exact posteriors by message passing (Rabiner 1989; the paper's G-bar, section 3.1), of one sequence or of many.

  With A the row-stochastic `transition_matrix` and c the part of the state that never moves, if it has one,
  alpha_{t+1}(c, j) = sum_i alpha_t(c, i) l_t(c, i) A[i, j] and
  beta_t(c, i) = sum_j A[i, j] l_{t+1}(c, j) beta_{t+1}(c, j). Time O(T C H^2).

  Differentiable in every argument (reverse mode, once), at rows that contain exact zeros too. Slopes are held to a
  millionth of the largest float; where the evidence of rows with maximum 1 is below exp(-650), the slope at an exact
  zero is 0.

  Args:
    hmm: an `HMM` (E = H), a `MemoryHMM` (E = M^N H), or anything with their `joint_initial_probs` [E] and
      `transition_matrix` [H, H].
    likelihoods: [..., T, E], nonnegative; `token_likelihoods` makes them from tokens. Leading axes are batches, faster
      so than by `jax.vmap`, and no sequence's result depends on its companions.

  Returns:
    A `Posterior` over the E joint states. Numbers below the smallest normal one count as 0.
  """
  probs, loglik = _batched(_smooth, hmm, likelihoods)
  return Posterior._make((*probs, loglik))


@jax.jit
def probs_between(hmm: Chain, before: Array, after: Array) -> Array:
  """P[H_t | x_{1:t-1}, x_{t+1:}] of every beginning with every end, [K, B, E], as in `leave_one_out_probs`.

  K beginnings and B ends cost K + B passes where K B sequences would cost two each. Differentiable as
  `forward_backward`.

  Args:
    hmm: as there.
    before: [K, P, E], likelihood rows of what comes before t.
    after: [B, T, E], of what comes after it.
  """
  num_states = hmm.transition_matrix.shape[-1]
  split = lambda x: float64.as_float(x).reshape(*x.shape[:-1], x.shape[-1] // num_states, num_states)
  initial_probs = jnp.moveaxis(split(hmm.joint_initial_probs), -1, 0)[..., None, None]
  rows = jnp.einsum('kpch->phck', split(before))[..., None], jnp.einsum('btch->thcb', split(after))[:, :, :, None]
  (probs_HxCxN,), _ = _exact(_between, initial_probs, float64.as_float(hmm.transition_matrix), *rows)
  return probs_HxCxN.transpose(2, 1, 0).reshape(len(before), len(after), after.shape[-1])


@jax.jit
def last_filtered_probs(hmm: Chain, likelihoods: Array) -> Array:
  """P[H_T | x_{1:T}] [..., E] for likelihoods [..., T, E], by a pass forward alone; zeros for impossible evidence.

  Summed over hidden states it is the posterior of the part that never moves, a memory.
  """
  return _batched(_filter_to_end, hmm, likelihoods)[0]
