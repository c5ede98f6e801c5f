"""Exact inference on a Markov chain from likelihood rows (the paper's G-bar before the emissions).

Inference takes a likelihood row per position, not a token. The row of position t holds
P[observation at t | state], up to any positive factor: a token is its column of the emission matrix,
[MASK] is a row of ones, a theory prompt is the row u in [0, 1]^H, and a position past the end of a
ragged sequence is a row of ones.

A state may have a part that never moves, such as a memory: with E = C H joint states, number c H + h is the pair
of a still part c and a moving part h. The transition matrix is that of h alone, and a step costs O(C H^2), not
O((C H)^2). A plain chain has C = 1 and E = H.

Messages are [C, H], with any batch axes after: they ride along, and the batch is the minor axis, the fast layout
on a CPU.

Messages are kept in one of the two number formats of `hmm_jax.number_formats`: narrow where that is certified to lose
nothing that matters, else wide.
"""

from collections.abc import Callable
import functools
import math
from typing import Any, NamedTuple, Protocol

import jax
from jax import lax
import jax.numpy as jnp
import numpy as np

from hmm_jax.number_formats import Format
from hmm_jax.number_formats import log_or_minus_inf
from hmm_jax.number_formats import lost_units
from hmm_jax.number_formats import NARROW
from hmm_jax.number_formats import narrow_exponent
from hmm_jax.number_formats import positive_or_one
from hmm_jax.number_formats import STATE_AXES
from hmm_jax.number_formats import WIDE
from hmm_jax.number_formats import without_subnormals

Array = jax.Array

# The largest share of a posterior that paths lost by the narrow format may hold.
_LOST_SHARE = 1e-8


class Chain(Protocol):
  """What inference needs of a distribution: the law of its joint states."""

  @property
  def joint_initial_probs(self) -> Array | np.ndarray:
    """[E], of the first emitting joint state."""
    ...

  @property
  def transition_matrix(self) -> Array | np.ndarray:
    """[H, H], of the part that moves."""
    ...


class _Chain(NamedTuple):
  """Attributes: initial_probs [C, H], transition_matrix [H, H]."""

  initial_probs: Array
  transition_matrix: Array


class Posterior(NamedTuple):
  """What one pass forward and one backward tell. A row is all zeros where its evidence is impossible.

  Attributes:
    filtered_probs: [T, H], P[H_t | x_{1:t}].
    predicted_probs: [T, H], P[H_t | x_{1:t-1}]; row 0 is the initial distribution.
    smoothed_probs: [T, H], P[H_t | x_{1:T}].
    leave_one_out_probs: [T, H], P[H_t | x_{-t}]; row t does not depend on likelihood row t.
    marginal_loglik: [], log P[x_{1:T}] in nats; -inf where the evidence has probability zero.
  """

  filtered_probs: Array
  predicted_probs: Array
  smoothed_probs: Array
  leave_one_out_probs: Array
  marginal_loglik: Array


@jax.custom_jvp
def _normalise(weights: Array) -> Array:
  """Weights over their sum on the state axes; zeros where the sum is zero."""
  return weights * (1 / positive_or_one(weights.sum(STATE_AXES)))


@_normalise.defjvp
def _normalise_jvp(primals, tangents):
  # The derived rule squares the sum, which is far from 1 and would leave the range of floats.
  (weights,), (tangent,) = primals, tangents
  probs = _normalise(weights)
  total = weights.sum(STATE_AXES)
  scaled = jnp.where(total > 0, tangent * (1 / positive_or_one(total)), 0)
  return probs, scaled - probs * scaled.sum(STATE_AXES)


def _states_last(message: Array) -> Array:
  """[C, H, ...] as [..., E]."""
  return jnp.moveaxis(message.reshape((-1,) + message.shape[2:]), 0, -1)


class _Scale(NamedTuple):
  """What the messages of a pass forward were divided by, as log2, for each sequence.

  A scan carries it from step to step: an array over positions, kept to be summed at the end, costs more than the sum.

  Attributes:
    before: of everything before the latest rescaling.
    latest: of the latest rescaling.
    least: the least of all rescalings, or 0 where that is more.
  """

  before: Array
  latest: Array
  least: Array

  def then(self, row_scale: Array, scale: Array) -> '_Scale':
    return _Scale(self.before + self.latest + row_scale, scale, jnp.minimum(self.least, scale))

  def least_total(self, dtype) -> Array:
    """The least sum, over positions and sequences, of a message of sum 1 times a row; up to a small factor."""
    return jnp.exp2(self.least.min().astype(dtype) - 1)


def _start(fmt: Format, chain: _Chain, rows: Array) -> tuple[Any, _Scale]:
  """The first message forward, for rows [T, C, H, ...], and its scale."""
  start = chain.initial_probs.reshape(chain.initial_probs.shape + (1,) * (rows.ndim - 3))
  message, scale = fmt.rescale(fmt.encode(jnp.broadcast_to(start, rows.shape[1:]).astype(rows.dtype)))
  return message, _Scale(jnp.zeros_like(scale), scale, jnp.zeros_like(scale))


class _Quality(NamedTuple):
  """How far the narrow format can be trusted, over all positions and sequences.

  Attributes:
    agreement: the least of past, present and future, sum_h alpha_t(h) l_t(h) beta_t(h), and of past and present,
      sum_h alpha_t(h) l_t(h), with messages that sum to 1 and rows of maximum 1, up to small factors.
    lost: the most of a message's sum that may have been rounded away, forward and backward added, in `lost_units`.
  """

  agreement: Array
  lost: Array

  def certifies(self, dtype) -> Array:
    # What was lost has its weight in the posterior multiplied by at most the inverse of the agreement.
    return (self.agreement > math.sqrt(float(jnp.finfo(dtype).tiny))) & (
      self.lost < math.ldexp(_LOST_SHARE, lost_units(dtype)) * self.agreement
    )


def _smooth(fmt: Format, chain: _Chain, rows: Array) -> tuple[Posterior, _Quality]:
  """Runs the recursion once in each direction on rows [T, C, H, ...]; results are [T, ..., E].

  Up to a factor for every t, alpha_t(h) = P[H_t = h, x_{1:t-1}] and beta_t(h) = P[x_{t+1:T} | H_t = h].
  """
  forward_matrix = fmt.contract(chain.transition_matrix.T)
  backward_matrix = fmt.contract(chain.transition_matrix)
  probs = lambda entries: _states_last(_normalise(entries))

  def forward(carry, row):
    alpha, scale = carry
    updated, row_scale = fmt.observe(alpha, row)
    scaled, step_scale = fmt.rescale(updated)
    outputs = fmt.kept(alpha), probs(fmt.entries(updated)), probs(fmt.entries(alpha)), fmt.lost(alpha)
    return (forward_matrix(scaled), scale.then(row_scale, step_scale)), outputs

  def backward(carry, alpha_and_row):
    (beta, agreement), (alpha, row) = carry, alpha_and_row
    updated, _ = fmt.observe(beta, row)
    smoothed = fmt.entries(fmt.product(alpha, updated))
    leave_one_out = fmt.entries(fmt.product(alpha, beta))
    before, _ = fmt.rescale(backward_matrix(updated))
    agreement = jnp.minimum(agreement, lax.stop_gradient(smoothed.sum(STATE_AXES)))
    return (before, agreement), (probs(smoothed), probs(leave_one_out), fmt.lost(beta))

  start = _start(fmt, chain, rows)
  (last, scale), (alphas, filtered, predicted, forward_lost) = lax.scan(forward, start, rows)
  end = fmt.rescale(fmt.encode(jnp.ones_like(rows[0])))[0], jnp.full(rows.shape[3:], jnp.inf, rows.dtype)
  (_, agreement), backward_outputs = lax.scan(backward, end, (alphas, rows), reverse=True)
  smoothed, leave_one_out, backward_lost = backward_outputs
  at_end, _ = fmt.observe(jax.tree.map(lambda x: x[-1], alphas), rows[-1])
  loglik = _loglik(scale.before, fmt.log_total(at_end))
  agreement = agreement.min() * 2.0 ** (-2 * narrow_exponent(rows.dtype))
  quality = _Quality(
    jnp.minimum(agreement, scale.least_total(rows.dtype)),
    jnp.maximum(forward_lost.max(), fmt.lost(last)) + backward_lost.max(),
  )
  return Posterior(filtered, predicted, smoothed, leave_one_out, loglik), quality


def _loglik(scale: Array, log_total: Array) -> Array:
  return scale.astype(log_total.dtype) * math.log(2) + log_total


def _wide_posterior(chain: _Chain, rows: Array) -> Posterior:
  return _time_before_states(_smooth(WIDE, chain, rows)[0])


def _time_before_states(posterior: Posterior) -> Posterior:
  return Posterior(*(jnp.moveaxis(x, 0, -2) for x in posterior[:-1]), posterior.marginal_loglik)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _repaired(wide: Callable[[_Chain, Array], Any], certified: Array, narrow: Any, chain: _Chain, rows: Array) -> Any:
  """`narrow` where it is certified, else `wide(chain, rows)`.

  A loop of at most one round rather than a `cond`: it works in place, and under `jax.vmap` it runs only if some
  sequence needs it. Loops have no reverse mode, hence the rule.
  """
  run = lambda _: (jnp.bool_(True), wide(chain, rows))
  return lax.while_loop(lambda carry: ~carry[0], run, (certified, narrow))[1]


def _repaired_forward(wide, certified, narrow, chain, rows):
  return _repaired(wide, certified, narrow, chain, rows), (certified, chain, rows)


def _repaired_backward(wide, residuals, cotangents):
  certified, *arguments = residuals
  run = lambda _: (jnp.bool_(True), jax.vjp(wide, *arguments)[1](cotangents))
  start = certified, jax.tree.map(jnp.zeros_like, tuple(arguments))
  _, wide_cotangents = lax.while_loop(lambda carry: ~carry[0], run, start)
  # Evidence of probability 1e-76, say, has slopes past the largest float; they are held to it.
  wide_cotangents = jax.tree.map(jnp.nan_to_num, wide_cotangents)
  narrow_cotangents = jax.tree.map(lambda x: jnp.where(certified, x, 0), cotangents)
  return None, narrow_cotangents, *wide_cotangents


_repaired.defvjp(_repaired_forward, _repaired_backward)


def _by_parts(hmm: Chain, likelihoods: Array) -> tuple[_Chain, Array]:
  """The chain, without subnormal numbers, and the likelihoods [T, E, ...] as rows [T, C, H, ...]."""
  parts = (-1, hmm.transition_matrix.shape[-1])
  chain = _Chain(hmm.joint_initial_probs.reshape(parts), hmm.transition_matrix)
  rows = likelihoods.reshape(likelihoods.shape[:1] + parts + likelihoods.shape[2:])
  return jax.tree.map(without_subnormals, chain), rows


def _forward_backward(hmm: Chain, likelihoods: Array) -> Posterior:
  """`forward_backward` on [T, E, ...], where trailing axes hold further sequences; results are [..., T, E]."""
  chain, rows = _by_parts(hmm, likelihoods)
  narrow, quality = _smooth(NARROW, chain, rows)
  return _repaired(_wide_posterior, quality.certifies(rows.dtype), _time_before_states(narrow), chain, rows)


def forward_backward(hmm: Chain, likelihoods: Array) -> Posterior:
  """Exact posteriors of one sequence by message passing (Rabiner 1989; the paper's G-bar, section 3.1).

  With A the row-stochastic `transition_matrix` and c the part of the state that never moves, if it has one,
  alpha_{t+1}(c, j) = sum_i alpha_t(c, i) l_t(c, i) A[i, j] and
  beta_t(c, i) = sum_j A[i, j] l_{t+1}(c, j) beta_{t+1}(c, j). Time O(T C H^2).

  Differentiable in every argument (reverse mode, once), at rows that contain exact zeros too. Gradients are always
  finite; where the wide format runs, the slope at an exact zero is held to that of the largest entry of its row.

  Args:
    hmm: an `HMM` (E = H), a `MemoryHMM` (E = M^N H), or anything with their `joint_initial_probs` [E] and
      `transition_matrix` [H, H].
    likelihoods: [T, E], nonnegative; `token_likelihoods` makes them from tokens.

  Returns:
    A `Posterior` over the E joint states. `jax.vmap` of this function and `batched_forward_backward` agree; the
    latter is faster. Numbers below the smallest normal one count as 0.
  """
  return _forward_backward(hmm, likelihoods)


def batched_forward_backward(hmm: Chain, likelihoods: Array) -> Posterior:
  """`forward_backward` of every sequence in [..., T, E], with the batch as the minor axis inside the scans."""
  batch_shape, likelihoods_TxExB = _batch_last(likelihoods)
  posterior = _forward_backward(hmm, likelihoods_TxExB)
  return jax.tree.map(lambda x: x.reshape(batch_shape + x.shape[1:]), posterior)


def _batch_last(likelihoods: Array) -> tuple[tuple[int, ...], Array]:
  """The batch shape of [..., T, E], and the array as [T, E, B]."""
  batch_shape, rows_shape = likelihoods.shape[:-2], likelihoods.shape[-2:]
  return batch_shape, jnp.moveaxis(likelihoods.reshape((-1, *rows_shape)), 0, -1)


class StillPosterior(NamedTuple):
  """What one pass forward tells of the part of the state that never moves. Zeros where the evidence is impossible.

  Attributes:
    probs: [..., C], P[c | x_{1:T}].
    marginal_loglik: [...], log P[x_{1:T}] in nats; -inf where the evidence has probability zero.
  """

  probs: Array
  marginal_loglik: Array


def _filter_still(fmt: Format, chain: _Chain, rows: Array) -> tuple[StillPosterior, _Quality]:
  """The recursion of `_smooth` forward, keeping nothing but its end; rows are [T, C, H, ...]."""
  stay, move = jnp.eye(chain.transition_matrix.shape[0], dtype=rows.dtype), chain.transition_matrix.T

  def step(carry, row_and_first):
    message, scale = carry
    # The state moves before every row but the first; a scan over the other rows alone would copy them.
    row, is_first = row_and_first
    observed, row_scale = fmt.observe(fmt.contract(jnp.where(is_first, stay, move))(message), row)
    message, step_scale = fmt.rescale(observed)
    return (message, scale.then(row_scale, step_scale)), fmt.lost(message)

  start = _start(fmt, chain, rows)
  # A bound that was held to the largest may fall again and be no bound, so every one counts, not only the last.
  (last, scale), lost = lax.scan(step, start, (rows, jnp.arange(rows.shape[0]) == 0))
  probs = jnp.moveaxis(_normalise(fmt.entries(last)).sum(1), 0, -1)
  loglik = _loglik(scale.before + scale.latest, fmt.log_total(last))
  return StillPosterior(probs, loglik), _Quality(scale.least_total(rows.dtype), lost.max())


def _wide_filter_still(chain: _Chain, rows: Array) -> StillPosterior:
  return _filter_still(WIDE, chain, rows)[0]


def still_posterior(hmm: Chain, likelihoods: Array) -> StillPosterior:
  """The posterior of the part of the state that never moves: a memory.

  It is the same at every position, P[c | x_{1:T}] proportional to P[c] P[x_{1:T} | c], so that the pass backward
  of `forward_backward` is not needed. Time O(T C H^2). Differentiable like `forward_backward`.

  Args:
    hmm: as in `forward_backward`; a chain without a still part has C = 1.
    likelihoods: [..., T, E], nonnegative; leading axes are batches.
  """
  batch_shape, likelihoods_TxExB = _batch_last(likelihoods)
  chain, rows = _by_parts(hmm, likelihoods_TxExB)
  narrow, quality = _filter_still(NARROW, chain, rows)
  posterior = _repaired(_wide_filter_still, quality.certifies(rows.dtype), narrow, chain, rows)
  return jax.tree.map(lambda x: x.reshape(batch_shape + x.shape[1:]), posterior)


def most_likely_states(hmm: Chain, likelihoods: Array) -> Array:
  """The Viterbi path argmax_h P[h_{1:T}, x_{1:T}] of one sequence, int32 [T]; ties go to the lower state.

  Works on logarithms, so nothing underflows. Where the evidence has probability zero every path ties and the
  answer carries no information; `forward_backward(...).marginal_loglik` is -inf there.
  """
  log_transition = log_or_minus_inf(hmm.transition_matrix)
  log_likelihoods = log_or_minus_inf(likelihoods)

  def forward(score, log_row):
    through = score[:, None] + log_transition
    return through.max(0) + log_row, through.argmax(0)

  def backward(state, best_previous):
    return best_previous[state], best_previous[state]

  start = log_or_minus_inf(hmm.initial_probs) + log_likelihoods[0]
  score, best_previous = lax.scan(forward, start, log_likelihoods[1:])
  last = score.argmax()
  _, states = lax.scan(backward, last, best_previous, reverse=True)
  return jnp.append(states, last).astype(jnp.int32)
