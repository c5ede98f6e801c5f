"""Exact inference on a Markov chain from likelihood rows (the paper's G-bar before the emissions).

Inference takes a likelihood row per position, not a token. The row of position t holds
P[observation at t | state], up to any positive factor: a token is its column of the emission matrix,
[MASK] is a row of ones, a theory prompt is the row u in [0, 1]^H, and a position past the end of a
ragged sequence is a row of ones.

Every function here is written for one sequence and touches the state axis alone, so axes after it
(a batch, say) ride along: `[T, H]` and `[T, H, B]` go through the same lines. `batched_*` uses that to
keep the batch as the minor axis, the fast layout on a CPU.

Messages are kept in one of two number formats. The narrow one is an ordinary array, rescaled at every
step. A product rounded to zero is then below 1e-50 of the largest in float32, and can matter only where
past, present and future evidence contradict each other by as much. Where at some position they agree to
less than the square root of the smallest normal number (1e-19 in float32), or where all of the evidence is
so improbable that a path could have been lost in both directions (about 1e-86), the recursion is run once
more in the wide format, a significand and an exponent of its own for every state, which no product
underflows. Text of 129 tokens stays narrow; text of 512 need not.
"""

import functools
import math
from typing import Any, NamedTuple, Protocol

import jax
from jax import lax
import jax.numpy as jnp

Array = jax.Array

# The largest share of a posterior that paths lost by the narrow format may hold.
_LOST_SHARE = 1e-8
# The exponent of a zero in the wide format; far below any sum of exponents met in a step.
_ZERO_EXPONENT = -(2**28)


class Chain(Protocol):
  """What inference needs of a distribution: the law of its hidden states."""

  @property
  def initial_probs(self) -> Array: ...

  @property
  def transition_matrix(self) -> Array: ...


class _Chain(NamedTuple):
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


class _Wide(NamedTuple):
  """A message whose entries are `significand * 2**exponent`, an exponent for each state."""

  significand: Array
  exponent: Array


class _Format(NamedTuple):
  """The operations on messages that the recursion uses, in one number format."""

  encode: Any  # array -> message
  times: Any  # (message, likelihood row) -> message
  product: Any  # (message, message) -> message
  contract: Any  # matrix -> (message -> message with out[i] = sum_j matrix[i, j] in[j])
  rescale: Any  # message -> (message of the format's own scale, log of what it was divided by)
  entries: Any  # message -> array proportional to it
  log_total: Any  # message -> log of its sum over states


def _positive_or_one(x: Array) -> Array:
  return jnp.where(x > 0, x, 1)


@jax.custom_jvp
def _normalise(weights: Array) -> Array:
  """Weights over their sum on the state axis; zeros where the sum is zero."""
  return weights * (1 / _positive_or_one(weights.sum(0)))


@_normalise.defjvp
def _normalise_jvp(primals, tangents):
  # The derived rule squares the sum, which is far from 1 and would leave the range of floats.
  (weights,), (tangent,) = primals, tangents
  probs = _normalise(weights)
  scaled = jnp.where(weights.sum(0) > 0, tangent * (1 / _positive_or_one(weights.sum(0))), 0)
  return probs, scaled - probs * scaled.sum(0)


def _log_or_minus_inf(x: Array) -> Array:
  return jnp.where(x > 0, jnp.log(_positive_or_one(x)), -jnp.inf)


def _narrow_unit(dtype) -> float:
  """What messages are rescaled to sum to: the product of two, and the inverse of that, stay well inside the range."""
  return 2.0 ** (jnp.finfo(dtype).maxexp // 3 + 1)


def _narrow_rescale(message: Array) -> tuple[Array, Array]:
  unit = _narrow_unit(message.dtype)
  # Below this the certificate fails whatever follows, and the quotient must not overflow.
  least = unit * math.sqrt(jnp.finfo(message.dtype).tiny) / 1024
  total = lax.stop_gradient(jnp.maximum(message.sum(0), least))
  return message * (unit / total), jnp.log(total) - math.log(unit)


_NARROW = _Format(
  encode=lambda x: x,
  times=lambda message, row: message * row,
  product=lambda a, b: a * b,
  contract=lambda matrix: functools.partial(jnp.tensordot, matrix, axes=1, precision=lax.Precision.HIGHEST),
  rescale=_narrow_rescale,
  entries=lambda message: message,
  log_total=lambda message: _log_or_minus_inf(message.sum(0)),
)


def _power_of_two(exponent: Array, dtype) -> Array:
  lowest = jnp.finfo(dtype).minexp
  return jnp.where(exponent < lowest, 0, jnp.ldexp(jnp.ones((), dtype), jnp.maximum(exponent, lowest)))


def _widen(significand: Array, exponent: Array) -> _Wide:
  """Moves the size of each entry into its exponent. Exponents are constants to differentiation."""
  shift = jnp.frexp(lax.stop_gradient(significand))[1]
  # A zero keeps the exponent of its factors: that is the size of its slope.
  exponent = jnp.maximum(exponent + jnp.where(significand > 0, shift, 0), _ZERO_EXPONENT)
  return _Wide(significand * _power_of_two(-shift, significand.dtype), exponent)


def _top_exponent(message: _Wide, axis: int) -> Array:
  return jnp.where(message.significand > 0, message.exponent, _ZERO_EXPONENT).max(axis, keepdims=True)


def _aligned(message: _Wide, axis: int) -> tuple[Array, Array]:
  """The entries over a common power of two, and that power; entries too small to count become 0.

  The slope of a zero is held to that of the largest entry, which keeps every gradient finite.
  """
  top = _top_exponent(message, axis)
  scale = _power_of_two(jnp.minimum(message.exponent - top, 0), message.significand.dtype)
  return message.significand * scale, top


def _wide_contract(matrix: Array):
  wide_matrix = _widen(matrix, jnp.zeros((), jnp.int32))

  def contract(message: _Wide) -> _Wide:
    lift = lambda x: x.reshape(x.shape + (1,) * (message.exponent.ndim - 1))
    terms = _Wide(
      lift(wide_matrix.significand) * message.significand[None],
      jnp.maximum(lift(wide_matrix.exponent) + message.exponent[None], _ZERO_EXPONENT),
    )
    entries, top = _aligned(terms, axis=1)
    return _widen(entries.sum(1), top[:, 0])

  return contract


def _wide_rescale(message: _Wide) -> tuple[_Wide, Array]:
  top = _top_exponent(message, 0)
  exponent = jnp.clip(message.exponent - top, _ZERO_EXPONENT, 0)
  return _Wide(message.significand, exponent), top[0].astype(message.significand.dtype) * math.log(2)


def _wide_log_total(message: _Wide) -> Array:
  entries, top = _aligned(message, axis=0)
  return _log_or_minus_inf(entries.sum(0)) + top[0].astype(entries.dtype) * math.log(2)


_WIDE = _Format(
  encode=lambda x: _widen(x, jnp.zeros((), jnp.int32)),
  times=lambda message, row: _widen(message.significand * row, message.exponent),
  product=lambda a, b: _widen(a.significand * b.significand, jnp.maximum(a.exponent + b.exponent, _ZERO_EXPONENT)),
  contract=_wide_contract,
  rescale=_wide_rescale,
  entries=lambda message: _aligned(message, 0)[0],
  log_total=_wide_log_total,
)


def _smooth(fmt: _Format, chain: Chain, likelihoods: Array) -> tuple[Posterior, Array]:
  """Runs the recursion once in each direction on rows [T, H, ...]; results are [T, ..., H].

  Up to a factor for every t, alpha_t(h) = P[H_t = h, x_{1:t-1}] and beta_t(h) = P[x_{t+1:T} | H_t = h].

  Returns:
    The posterior, and the smallest agreement, over positions and sequences: that of past, present and future,
    sum_h alpha_t(h) l_t(h) beta_t(h), and that of past and present, sum_h alpha_t(h) l_t(h), with each factor
    scaled as `fmt.rescale` does.
  """
  forward_matrix = fmt.contract(chain.transition_matrix.T)
  backward_matrix = fmt.contract(chain.transition_matrix)
  start = chain.initial_probs.reshape((-1,) + (1,) * (likelihoods.ndim - 2))
  start = jnp.broadcast_to(start, likelihoods.shape[1:]).astype(likelihoods.dtype)
  probs = lambda entries: jnp.moveaxis(_normalise(entries), 0, -1)

  def forward(alpha, row):
    updated = fmt.times(alpha, row)
    scaled, log_scale = fmt.rescale(updated)
    return forward_matrix(scaled), (alpha, probs(fmt.entries(updated)), probs(fmt.entries(alpha)), log_scale)

  def backward(beta, alpha_and_row):
    alpha, row = alpha_and_row
    updated = fmt.times(beta, row)
    smoothed = fmt.entries(fmt.product(alpha, updated))
    leave_one_out = fmt.entries(fmt.product(alpha, beta))
    beta, _ = fmt.rescale(backward_matrix(updated))
    return beta, (probs(smoothed), probs(leave_one_out), smoothed.sum(0).min())

  alpha, start_log_scale = fmt.rescale(fmt.encode(start))
  beta, _ = fmt.rescale(fmt.encode(jnp.ones_like(start)))
  _, (alphas, filtered, predicted, log_scales) = lax.scan(forward, alpha, likelihoods)
  _, (smoothed, leave_one_out, totals) = lax.scan(backward, beta, (alphas, likelihoods), reverse=True)
  last, _ = fmt.rescale(fmt.times(jax.tree.map(lambda x: x[-1], alphas), likelihoods[-1]))
  loglik = start_log_scale + log_scales.sum(0) + fmt.log_total(last)
  unit = _narrow_unit(likelihoods.dtype)
  agreement = jnp.minimum(totals.min() / unit**2, jnp.exp(log_scales.min()))
  return Posterior(filtered, predicted, smoothed, leave_one_out, loglik), agreement


def _without_subnormals(x: Array) -> Array:
  # Devices differ in whether a subnormal number equals zero; here it does. Zeros keep their gradients.
  return jnp.where((x > 0) & (x < jnp.finfo(x.dtype).tiny), 0, x)


def _unit_rows(likelihoods: Array) -> tuple[Array, Array]:
  """Rows divided by their maximum, and the log of what they were divided by (0 for a row of zeros)."""
  largest = lax.stop_gradient(_positive_or_one(likelihoods.max(1, keepdims=True)))
  return likelihoods / largest, jnp.log(largest).sum((0, 1))


def _wide_posterior(chain: _Chain, rows: Array) -> Posterior:
  return _time_before_states(_smooth(_WIDE, chain, rows)[0])


def _time_before_states(posterior: Posterior) -> Posterior:
  return Posterior(*(jnp.moveaxis(x, 0, -2) for x in posterior[:-1]), posterior.marginal_loglik)


@jax.custom_vjp
def _repaired(certified: Array, narrow: Posterior, chain: _Chain, rows: Array) -> Posterior:
  """`narrow` where it is certified, else the wide pass.

  A loop of at most one round rather than a `cond`: it works in place, and under `jax.vmap` it runs only if some
  sequence needs it. Loops have no reverse mode, hence the rule.
  """
  run = lambda _: (jnp.bool_(True), _wide_posterior(chain, rows))
  return lax.while_loop(lambda carry: ~carry[0], run, (certified, narrow))[1]


def _repaired_forward(certified, narrow, chain, rows):
  return _repaired(certified, narrow, chain, rows), (certified, chain, rows)


def _repaired_backward(residuals, cotangents):
  certified, *arguments = residuals
  run = lambda _: (jnp.bool_(True), jax.vjp(_wide_posterior, *arguments)[1](cotangents))
  start = certified, jax.tree.map(jnp.zeros_like, tuple(arguments))
  _, wide_cotangents = lax.while_loop(lambda carry: ~carry[0], run, start)
  # Evidence of probability 1e-76, say, has slopes past the largest float; they are held to it.
  wide_cotangents = jax.tree.map(jnp.nan_to_num, wide_cotangents)
  narrow_cotangents = jax.tree.map(lambda x: jnp.where(certified, x, 0), cotangents)
  return None, narrow_cotangents, *wide_cotangents


_repaired.defvjp(_repaired_forward, _repaired_backward)


def _forward_backward(chain: Chain, likelihoods: Array) -> Posterior:
  """`forward_backward` on [T, H, ...], where trailing axes hold further sequences; results are [..., T, H]."""
  chain = _Chain(_without_subnormals(chain.initial_probs), _without_subnormals(chain.transition_matrix))
  rows, log_rows = _unit_rows(_without_subnormals(likelihoods))
  narrow, agreement = _smooth(_NARROW, chain, rows)
  tiny, length, num_states = float(jnp.finfo(rows.dtype).tiny), *rows.shape[:2]
  # A path that both directions lost was twice below `lost` of the others, and so weighs less than its square.
  lost = math.log(tiny) - math.log(_narrow_unit(rows.dtype)) + math.log(length * num_states)
  needed_loglik = 2 * lost - math.log(_LOST_SHARE)
  agreement, loglik = lax.stop_gradient((agreement, narrow.marginal_loglik.min()))
  certified = (agreement > math.sqrt(tiny)) & (loglik > needed_loglik)
  posterior = _repaired(certified, _time_before_states(narrow), chain, rows)
  return posterior._replace(marginal_loglik=posterior.marginal_loglik + log_rows)


def forward_backward(hmm: Chain, likelihoods: Array) -> Posterior:
  """Exact posteriors of one sequence by message passing (Rabiner 1989; the paper's G-bar, section 3.1).

  alpha_{t+1}(j) = sum_i alpha_t(i) l_t(i) A[i, j] and beta_t(i) = sum_j A[i, j] l_{t+1}(j) beta_{t+1}(j), with
  A the row-stochastic `transition_matrix`. Time O(T H^2). Differentiable in every argument (reverse mode, once),
  at rows that contain exact zeros too. Gradients are always finite; where the wide format runs, the slope at an
  exact zero is held to that of the largest entry of its row.

  Args:
    hmm: anything with `initial_probs` [H] (the first emitting state) and `transition_matrix` [H, H].
    likelihoods: [T, H], nonnegative; `token_likelihoods` makes them from tokens.

  Returns:
    A `Posterior`. `jax.vmap` of this function and `batched_forward_backward` agree; the latter is faster. Numbers
    below the smallest normal one count as 0.
  """
  return _forward_backward(hmm, likelihoods)


def batched_forward_backward(hmm: Chain, likelihoods: Array) -> Posterior:
  """`forward_backward` of every sequence in [..., T, H], with the batch as the minor axis inside the scans."""
  batch_shape, (length, num_states) = likelihoods.shape[:-2], likelihoods.shape[-2:]
  likelihoods_TxHxB = jnp.moveaxis(likelihoods.reshape((-1, length, num_states)), 0, -1)
  posterior = _forward_backward(hmm, likelihoods_TxHxB)
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
