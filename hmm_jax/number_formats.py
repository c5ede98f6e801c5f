"""Messages of forward-backward in two number formats, and what the fast one may lose.

The narrow format is an ordinary array, rescaled at every step, so that
products below 1e-50 of the largest (in float32) round to zero. Beside each entry runs a bound on the mass that was
lost to it that way, by the recursion of the entries themselves. Where that bound could hold more than 1e-8 of any
posterior, or where past, present and future evidence agree at some position to less than the square root of the
smallest normal number (1e-19 in float32), the recursion is run once more in the wide format, a significand and an
exponent of its own for every state, which no product underflows. Text of a model under that model stays narrow.

A message is [C, H], still part by moving part, with any batch axes after.
"""

import math
from typing import Any, NamedTuple

import jax
from jax import lax
import jax.numpy as jnp

Array = jax.Array

# The state axes of a message: still part, moving part.
STATE_AXES = (0, 1)
# The exponent of a zero in the wide format; far below any sum of exponents met in a step.
_ZERO_EXPONENT = -(2**28)


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


class Format(NamedTuple):
  """The operations on messages that the recursion uses, in one number format."""

  encode: Any  # array -> message
  observe: Any  # (message, likelihood row) -> (their product, log2 of what the row was divided by)
  product: Any  # (message, message) -> message
  contract: Any  # matrix -> (message -> message with out[c, i] = sum_j matrix[i, j] in[c, j])
  rescale: Any  # message -> (message of the format's own scale, log2 of what it was divided by)
  entries: Any  # message -> array proportional to it
  log_total: Any  # message -> log of its sum over states
  kept: Any  # message -> what `product` needs of it later
  lost: Any  # message -> a bound on its loss over all states, in `lost_units` of the largest sum it can have


def positive_or_one(x: Array) -> Array:
  return jnp.where(x > 0, x, 1)


def log_or_minus_inf(x: Array) -> Array:
  return jnp.where(x > 0, jnp.log(positive_or_one(x)), -jnp.inf)


def without_subnormals(x: Array) -> Array:
  # Devices differ in whether a subnormal number equals zero; here it does. Zeros keep their gradients.
  return jnp.where((x > 0) & (x < jnp.finfo(x.dtype).tiny), 0, x)


def narrow_exponent(dtype) -> int:
  """Messages sum to just below 2 to this power: the product of two, and the inverse of that, stay inside the range."""
  return jnp.finfo(dtype).maxexp // 3 + 1


def lost_units(dtype) -> int:
  """Losses are counted in 2 to minus this power, which holds the largest that matters and the smallest there is."""
  return jnp.finfo(dtype).maxexp + 5


def _rounding_loss(dtype) -> float:
  """What is lost where a product of messages' entries is rounded to zero, in units of loss."""
  return math.ldexp(1, jnp.finfo(dtype).minexp - narrow_exponent(dtype) + lost_units(dtype))


def _bits_type(dtype):
  return jnp.int32 if jnp.finfo(dtype).bits == 32 else jnp.int64


def _power_of_two(exponent: Array, dtype) -> Array:
  """2 to the power of int32 exponents up to maxexp - 1, 0 where that is no normal number; by the bits of floats."""
  info = jnp.finfo(dtype)
  biased = jnp.maximum(exponent - info.minexp + 1, 0).astype(_bits_type(dtype))
  return lax.bitcast_convert_type(biased << info.nmant, dtype)


def _exponent(x: Array) -> Array:
  """The least power of two above each normal x > 0, int32; constant to differentiation, exact to scale by."""
  info = jnp.finfo(x.dtype)
  biased = lax.bitcast_convert_type(lax.stop_gradient(x), _bits_type(x.dtype)) >> info.nmant
  return (biased + info.minexp).astype(jnp.int32)


def _narrow_observe(message: _Narrow, row: Array) -> tuple[_Narrow, Array]:
  row, info = without_subnormals(row), jnp.finfo(row.dtype)
  largest = row.max(STATE_AXES)
  # The row is brought to a maximum between 1 and 2.
  exponent = jnp.where(largest > 0, jnp.clip(_exponent(largest) - 1, info.minexp, info.maxexp - 2), 0)
  row = row * _power_of_two(-exponent, row.dtype)
  # Scaling a row down may round its smallest entries to zero, and with each as much of the message there.
  loss = _rounding_loss(row.dtype) * jnp.where(exponent > 0, 2.0 ** narrow_exponent(row.dtype), 1)
  return _Narrow(message.entries * row, message.lost * lax.stop_gradient(row) + loss), exponent


def _narrow_rescale(message: _Narrow) -> tuple[_Narrow, Array]:
  dtype = message.entries.dtype
  unit = narrow_exponent(dtype)
  # Below this the certificate fails whatever follows, and the quotient must not overflow.
  least = unit + jnp.finfo(dtype).minexp // 2 - 10
  exponent = jnp.maximum(_exponent(message.entries.sum(STATE_AXES)), least) - unit
  scale = _power_of_two(-exponent, dtype)
  # A loss past any that can be certified is held there, so that no bound becomes infinite. What follows is no bound
  # any more: a certificate asks for the largest of all steps.
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


NARROW = Format(
  encode=lambda x: _Narrow(x * 2.0 ** narrow_exponent(x.dtype), jnp.zeros_like(x)),
  observe=_narrow_observe,
  product=lambda a, b: _Narrow(a.entries * b.entries, jnp.zeros(())),
  contract=_narrow_contract,
  rescale=_narrow_rescale,
  entries=lambda message: message.entries,
  log_total=lambda message: log_or_minus_inf(
    message.entries.sum(STATE_AXES) / 2.0 ** narrow_exponent(message.entries.dtype)
  ),
  kept=lambda message: message._replace(lost=jnp.zeros(())),
  lost=lambda message: message.lost.max() * math.prod(message.lost.shape[:2]),
)


def _widen(significand: Array, exponent: Array) -> _Wide:
  """Moves the size of each entry into its exponent. Exponents are constants to differentiation."""
  shift = jnp.minimum(jnp.frexp(lax.stop_gradient(significand))[1], jnp.finfo(significand.dtype).maxexp - 2)
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
  top = _top_exponent(message, STATE_AXES)
  exponent = jnp.clip(message.exponent - top, _ZERO_EXPONENT, 0)
  return _Wide(message.significand, exponent), top[0, 0]


def _wide_log_total(message: _Wide) -> Array:
  entries, top = _aligned(message, axis=STATE_AXES)
  return log_or_minus_inf(entries.sum(STATE_AXES)) + top[0, 0].astype(entries.dtype) * math.log(2)


def _wide_encode(x: Array) -> _Wide:
  return _widen(x, jnp.zeros((), jnp.int32))


def _wide_observe(message: _Wide, row: Array) -> tuple[_Wide, Array]:
  return _wide_product(message, _wide_encode(without_subnormals(row))), jnp.zeros(row.shape[2:], jnp.int32)


WIDE = Format(
  encode=_wide_encode,
  observe=_wide_observe,
  product=_wide_product,
  contract=_wide_contract,
  rescale=_wide_rescale,
  entries=lambda message: _aligned(message, STATE_AXES)[0],
  log_total=_wide_log_total,
  kept=lambda message: message,
  lost=lambda message: jnp.zeros(()),
)
