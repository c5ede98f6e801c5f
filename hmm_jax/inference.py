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

Messages are kept in one of two number formats. The narrow one is an ordinary array, rescaled at every step, so that
products below 1e-50 of the largest (in float32) round to zero. Beside each entry runs a bound on the mass that was
lost to it that way, by the recursion of the entries themselves. Where that bound could hold more than 1e-8 of any
posterior, or where past, present and future evidence agree at some position to less than the square root of the
smallest normal number (1e-19 in float32), the recursion is run once more in the wide format, a significand and an
exponent of its own for every state, which no product underflows. Text of a model under that model stays narrow.
"""

from collections.abc import Callable
import functools
import math
from typing import Any, NamedTuple, Protocol

import jax
from jax import lax
import jax.numpy as jnp

Array = jax.Array

# The state axes of a message: still part, moving part.
_STATE = (0, 1)
# The largest share of a posterior that paths lost by the narrow format may hold.
_LOST_SHARE = 1e-8
# The exponent of a zero in the wide format; far below any sum of exponents met in a step.
_ZERO_EXPONENT = -(2**28)


class Chain(Protocol):
  """What inference needs of a distribution: the law of its joint states."""

  @property
  def joint_initial_probs(self) -> Array:
    """[E], of the first emitting joint state."""
    ...

  @property
  def transition_matrix(self) -> Array:
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


class _Narrow(NamedTuple):
  """A message, and a bound for each entry on what rounding to zero has cost it, in smallest normal numbers.

  Where a message is only kept to be multiplied, the bound is a single 0.
  """

  entries: Array
  lost: Array


class _Wide(NamedTuple):
  """A message whose entries are `significand * 2**exponent`, an exponent for each state."""

  significand: Array
  exponent: Array


class _Format(NamedTuple):
  """The operations on messages that the recursion uses, in one number format."""

  encode: Any  # array -> message
  observe: Any  # (message, likelihood row) -> (their product, log2 of what the row was divided by)
  product: Any  # (message, message) -> message
  contract: Any  # matrix -> (message -> message with out[c, i] = sum_j matrix[i, j] in[c, j])
  rescale: Any  # message -> (message of the format's own scale, log2 of what it was divided by)
  entries: Any  # message -> array proportional to it
  log_total: Any  # message -> log of its sum over states
  kept: Any  # message -> what `product` needs of it later
  lost: Any  # message -> the bound on its loss, summed over states, in `_lost_units` of the largest sum it can have


def _positive_or_one(x: Array) -> Array:
  return jnp.where(x > 0, x, 1)


@jax.custom_jvp
def _normalise(weights: Array) -> Array:
  """Weights over their sum on the state axes; zeros where the sum is zero."""
  return weights * (1 / _positive_or_one(weights.sum(_STATE)))


@_normalise.defjvp
def _normalise_jvp(primals, tangents):
  # The derived rule squares the sum, which is far from 1 and would leave the range of floats.
  (weights,), (tangent,) = primals, tangents
  probs = _normalise(weights)
  total = weights.sum(_STATE)
  scaled = jnp.where(total > 0, tangent * (1 / _positive_or_one(total)), 0)
  return probs, scaled - probs * scaled.sum(_STATE)


def _log_or_minus_inf(x: Array) -> Array:
  return jnp.where(x > 0, jnp.log(_positive_or_one(x)), -jnp.inf)


def _without_subnormals(x: Array) -> Array:
  # Devices differ in whether a subnormal number equals zero; here it does. Zeros keep their gradients.
  return jnp.where((x > 0) & (x < jnp.finfo(x.dtype).tiny), 0, x)


def _narrow_exponent(dtype) -> int:
  """Messages sum to just below 2 to this power: the product of two, and the inverse of that, stay inside the range."""
  return jnp.finfo(dtype).maxexp // 3 + 1


def _lost_units(dtype) -> int:
  """Losses are counted in 2 to minus this power, which holds the largest that matters and the smallest there is."""
  return jnp.finfo(dtype).maxexp + 5


def _rounding_loss(dtype) -> float:
  """What is lost where a product of messages' entries is rounded to zero, in units of loss."""
  return math.ldexp(1, jnp.finfo(dtype).minexp - _narrow_exponent(dtype) + _lost_units(dtype))


def _power_of_two(exponent: Array, dtype) -> Array:
  lowest = jnp.finfo(dtype).minexp
  return jnp.where(exponent < lowest, 0, jnp.ldexp(jnp.ones((), dtype), jnp.maximum(exponent, lowest)))


def _exponent(x: Array) -> Array:
  """The least power of two above x > 0, constant to differentiation; scaling by it rounds nothing."""
  return jnp.frexp(lax.stop_gradient(x))[1]


def _narrow_observe(message: _Narrow, row: Array) -> tuple[_Narrow, Array]:
  row, info = _without_subnormals(row), jnp.finfo(row.dtype)
  largest = row.max(_STATE)
  # The row is brought to a maximum between 1 and 2.
  exponent = jnp.where(largest > 0, jnp.clip(_exponent(largest) - 1, info.minexp, info.maxexp - 2), 0)
  row = row * _power_of_two(-exponent, row.dtype)
  # Scaling a row down may round its smallest entries to zero, and with each as much of the message there.
  loss = _rounding_loss(row.dtype) * jnp.where(exponent > 0, 2.0 ** _narrow_exponent(row.dtype), 1)
  return _Narrow(message.entries * row, message.lost * lax.stop_gradient(row) + loss), exponent


def _narrow_rescale(message: _Narrow) -> tuple[_Narrow, Array]:
  dtype = message.entries.dtype
  unit = _narrow_exponent(dtype)
  # Below this the certificate fails whatever follows, and the quotient must not overflow.
  least = unit + jnp.finfo(dtype).minexp // 2 - 10
  exponent = jnp.maximum(_exponent(message.entries.sum(_STATE)), least) - unit
  scale = _power_of_two(-exponent, dtype)
  # A loss past any that can be certified is held there, so that no bound becomes infinite.
  lost = jnp.minimum(message.lost * scale + _rounding_loss(dtype), math.ldexp(1, jnp.finfo(dtype).maxexp - 16))
  return _Narrow(message.entries * scale, lost), exponent


def _narrow_contract(matrix: Array):
  def times(matrix, entries):
    # A product per still part, which leaves the batch where it is.
    matrices = jnp.broadcast_to(matrix, entries.shape[:1] + matrix.shape)
    return lax.dot_general(matrices, entries, (((2,), (1,)), ((0,), (0,))), precision=lax.Precision.HIGHEST)

  def contract(message: _Narrow) -> _Narrow:
    lost = times(lax.stop_gradient(matrix), message.lost) + matrix.shape[-1] * _rounding_loss(matrix.dtype)
    return _Narrow(times(matrix, message.entries), lost)

  return contract


_NARROW = _Format(
  encode=lambda x: _Narrow(x * 2.0 ** _narrow_exponent(x.dtype), jnp.zeros_like(x)),
  observe=_narrow_observe,
  product=lambda a, b: _Narrow(a.entries * b.entries, jnp.zeros(())),
  contract=_narrow_contract,
  rescale=_narrow_rescale,
  entries=lambda message: message.entries,
  log_total=lambda message: _log_or_minus_inf(
    message.entries.sum(_STATE) / 2.0 ** _narrow_exponent(message.entries.dtype)
  ),
  kept=lambda message: message._replace(lost=jnp.zeros(())),
  lost=lambda message: message.lost.sum(_STATE).max(),
)


def _widen(significand: Array, exponent: Array) -> _Wide:
  """Moves the size of each entry into its exponent. Exponents are constants to differentiation."""
  shift = jnp.frexp(lax.stop_gradient(significand))[1]
  # A zero keeps the exponent of its factors: that is the size of its slope.
  exponent = jnp.maximum(exponent + jnp.where(significand > 0, shift, 0), _ZERO_EXPONENT)
  return _Wide(significand * _power_of_two(-shift, significand.dtype), exponent)


def _top_exponent(message: _Wide, axis: int | tuple[int, ...]) -> Array:
  return jnp.where(message.significand > 0, message.exponent, _ZERO_EXPONENT).max(axis, keepdims=True)


def _aligned(message: _Wide, axis: int | tuple[int, ...]) -> tuple[Array, Array]:
  """The entries over a common power of two, and that power; entries too small to count become 0.

  The slope of a zero is held to that of the largest entry, which keeps every gradient finite.
  """
  top = _top_exponent(message, axis)
  scale = _power_of_two(jnp.minimum(message.exponent - top, 0), message.significand.dtype)
  return message.significand * scale, top


def _wide_contract(matrix: Array):
  wide_matrix = _wide_encode(matrix)

  def contract(message: _Wide) -> _Wide:
    lift = lambda x: x.reshape(x.shape + (1,) * (message.exponent.ndim - 2))
    terms = _Wide(
      lift(wide_matrix.significand) * message.significand[:, None],
      jnp.maximum(lift(wide_matrix.exponent) + message.exponent[:, None], _ZERO_EXPONENT),
    )
    entries, top = _aligned(terms, axis=2)
    return _widen(entries.sum(2), top[:, :, 0])

  return contract


def _wide_product(a: _Wide, b: _Wide) -> _Wide:
  return _widen(a.significand * b.significand, jnp.maximum(a.exponent + b.exponent, _ZERO_EXPONENT))


def _wide_rescale(message: _Wide) -> tuple[_Wide, Array]:
  top = _top_exponent(message, _STATE)
  exponent = jnp.clip(message.exponent - top, _ZERO_EXPONENT, 0)
  return _Wide(message.significand, exponent), top[0, 0]


def _wide_log_total(message: _Wide) -> Array:
  entries, top = _aligned(message, axis=_STATE)
  return _log_or_minus_inf(entries.sum(_STATE)) + top[0, 0].astype(entries.dtype) * math.log(2)


def _wide_encode(x: Array) -> _Wide:
  return _widen(x, jnp.zeros((), jnp.int32))


def _wide_observe(message: _Wide, row: Array) -> tuple[_Wide, Array]:
  return _wide_product(message, _wide_encode(_without_subnormals(row))), jnp.zeros(row.shape[2:], jnp.int32)


_WIDE = _Format(
  encode=_wide_encode,
  observe=_wide_observe,
  product=_wide_product,
  contract=_wide_contract,
  rescale=_wide_rescale,
  entries=lambda message: _aligned(message, _STATE)[0],
  log_total=_wide_log_total,
  kept=lambda message: message,
  lost=lambda message: jnp.zeros(()),
)


def _states_last(message: Array) -> Array:
  """[C, H, ...] as [..., E]."""
  return jnp.moveaxis(message.reshape((-1,) + message.shape[2:]), 0, -1)


def _start(fmt: _Format, chain: _Chain, rows: Array) -> tuple[Any, Array]:
  """The first message forward, for rows [T, C, H, ...], and the log2 of its scale."""
  start = chain.initial_probs.reshape(chain.initial_probs.shape + (1,) * (rows.ndim - 3))
  return fmt.rescale(fmt.encode(jnp.broadcast_to(start, rows.shape[1:]).astype(rows.dtype)))


def _smooth(fmt: _Format, chain: _Chain, rows: Array) -> tuple[Posterior, '_Quality']:
  """Runs the recursion once in each direction on rows [T, C, H, ...]; results are [T, ..., E].

  Up to a factor for every t, alpha_t(h) = P[H_t = h, x_{1:t-1}] and beta_t(h) = P[x_{t+1:T} | H_t = h].
  """
  forward_matrix = fmt.contract(chain.transition_matrix.T)
  backward_matrix = fmt.contract(chain.transition_matrix)
  probs = lambda entries: _states_last(_normalise(entries))

  def forward(alpha, row):
    updated, row_scale = fmt.observe(alpha, row)
    scaled, scale = fmt.rescale(updated)
    outputs = probs(fmt.entries(updated)), probs(fmt.entries(alpha)), scale, row_scale, fmt.lost(alpha)
    return forward_matrix(scaled), (fmt.kept(alpha), *outputs)

  def backward(beta, alpha_and_row):
    alpha, row = alpha_and_row
    updated, _ = fmt.observe(beta, row)
    smoothed = fmt.entries(fmt.product(alpha, updated))
    leave_one_out = fmt.entries(fmt.product(alpha, beta))
    before, _ = fmt.rescale(backward_matrix(updated))
    return before, (probs(smoothed), probs(leave_one_out), smoothed.sum(_STATE).min(), fmt.lost(beta))

  alpha, start_scale = _start(fmt, chain, rows)
  beta, _ = fmt.rescale(fmt.encode(jnp.ones_like(rows[0])))
  last, (alphas, filtered, predicted, scales, row_scales, forward_lost) = lax.scan(forward, alpha, rows)
  _, (smoothed, leave_one_out, totals, backward_lost) = lax.scan(backward, beta, (alphas, rows), reverse=True)
  at_end, _ = fmt.observe(jax.tree.map(lambda x: x[-1], alphas), rows[-1])
  loglik = _loglik(start_scale + scales[:-1].sum(0) + row_scales.sum(0), fmt.log_total(at_end))
  agreement = jnp.minimum(totals.min() * 2.0 ** (-2 * _narrow_exponent(rows.dtype)), _least_total(scales, rows.dtype))
  quality = _Quality(agreement, jnp.maximum(forward_lost.max(), fmt.lost(last)) + backward_lost.max())
  return Posterior(filtered, predicted, smoothed, leave_one_out, loglik), quality


def _loglik(scale: Array, log_total: Array) -> Array:
  return scale.astype(log_total.dtype) * math.log(2) + log_total


def _least_total(scales: Array, dtype) -> Array:
  """The least sum, over positions and sequences, of a message of sum 1 times a row, from the log2 of their scales."""
  return jnp.exp2(scales.min().astype(dtype) - 1)


class _Quality(NamedTuple):
  """How far the narrow format can be trusted, over all positions and sequences.

  Attributes:
    agreement: the least of past, present and future, sum_h alpha_t(h) l_t(h) beta_t(h), and of past and present,
      sum_h alpha_t(h) l_t(h), with messages that sum to 1 and rows of maximum 1, up to small factors.
    lost: the most of a message's sum that may have been rounded away, forward and backward added, in `_lost_units`.
  """

  agreement: Array
  lost: Array

  def certifies(self, dtype) -> Array:
    # What was lost has its weight in the posterior multiplied by at most the inverse of the agreement.
    agreement, lost = lax.stop_gradient((self.agreement, self.lost))
    return (agreement > math.sqrt(float(jnp.finfo(dtype).tiny))) & (
      lost < math.ldexp(_LOST_SHARE, _lost_units(dtype)) * agreement
    )


def _wide_posterior(chain: _Chain, rows: Array) -> Posterior:
  return _time_before_states(_smooth(_WIDE, chain, rows)[0])


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
  return jax.tree.map(_without_subnormals, chain), rows


def _forward_backward(hmm: Chain, likelihoods: Array) -> Posterior:
  """`forward_backward` on [T, E, ...], where trailing axes hold further sequences; results are [..., T, E]."""
  chain, rows = _by_parts(hmm, likelihoods)
  narrow, quality = _smooth(_NARROW, chain, rows)
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
  """`forward_backward` of every sequence in [..., T, E], with the batch as the minor axis inside the scans.

  On a CPU the batch is cut into blocks whose messages stay in its cache.
  """
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


def _filter_still(fmt: _Format, chain: _Chain, rows: Array) -> tuple[StillPosterior, _Quality]:
  """The recursion of `_smooth` forward, keeping nothing but its end; rows are [T, C, H, ...]."""
  stay, move = jnp.eye(chain.transition_matrix.shape[0], dtype=rows.dtype), chain.transition_matrix.T

  def step(message, row_and_first):
    # The state moves before every row but the first; a scan over the other rows alone would copy them.
    row, is_first = row_and_first
    observed, row_scale = fmt.observe(fmt.contract(jnp.where(is_first, stay, move))(message), row)
    message, scale = fmt.rescale(observed)
    return message, (scale, row_scale)

  start, start_scale = _start(fmt, chain, rows)
  last, (scales, row_scales) = lax.scan(step, start, (rows, jnp.arange(rows.shape[0]) == 0))
  probs = jnp.moveaxis(_normalise(fmt.entries(last)).sum(1), 0, -1)
  loglik = _loglik(start_scale + scales.sum(0) + row_scales.sum(0), fmt.log_total(last))
  return StillPosterior(probs, loglik), _Quality(_least_total(scales, rows.dtype), fmt.lost(last))


def _wide_filter_still(chain: _Chain, rows: Array) -> StillPosterior:
  return _filter_still(_WIDE, chain, rows)[0]


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
  narrow, quality = _filter_still(_NARROW, chain, rows)
  posterior = _repaired(_wide_filter_still, quality.certifies(rows.dtype), narrow, chain, rows)
  return jax.tree.map(lambda x: x.reshape(batch_shape + x.shape[1:]), posterior)


def most_likely_states(hmm: Chain, likelihoods: Array) -> Array:
  """The Viterbi path argmax_h P[h_{1:T}, x_{1:T}] of one sequence, int32 [T]; ties go to the lower state.

  Works on logarithms, so nothing underflows. Where the evidence has probability zero every path ties and the
  answer carries no information; `forward_backward(...).marginal_loglik` is -inf there.
  """
  log_transition = _log_or_minus_inf(hmm.transition_matrix)
  log_likelihoods = _log_or_minus_inf(likelihoods)

  def forward(score, log_row):
    through = score[:, None] + log_transition
    return through.max(0) + log_row, through.argmax(0)

  def backward(state, best_previous):
    return best_previous[state], best_previous[state]

  start = _log_or_minus_inf(hmm.initial_probs) + log_likelihoods[0]
  score, best_previous = lax.scan(forward, start, log_likelihoods[1:])
  last = score.argmax()
  _, states = lax.scan(backward, last, best_previous, reverse=True)
  return jnp.append(states, last).astype(jnp.int32)
