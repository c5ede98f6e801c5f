"""The arithmetic of messages [H, C, B]: weights of sum 1, or their logarithms where weights would underflow."""

from collections.abc import Callable
import functools
from typing import Any, NamedTuple

import jax
from jax import Array, lax
import jax.numpy as jnp
import numpy as np

from hmm_jax._support import float64

# Up to this many states, products with a matrix per sequence are unrolled: XLA makes them twice as fast.
_UNROLLED = 64


@jax.custom_jvp
def probs(weights: Array) -> Array:
  """Weights [..., H, C, B] that a constant scaled to sum 1, with the gradient of normalisation."""
  return weights


@probs.defjvp
def _probs_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
  (probs,), (tangent,) = primals, tangents
  return probs, tangent - probs * tangent.sum((-3, -2), keepdims=True)


def _contract(matrix: Array, message: Array) -> Array:
  if matrix.ndim == 2:
    return jnp.tensordot(matrix, message, 1, precision=lax.Precision.HIGHEST)
  if len(matrix) > _UNROLLED:
    return (_beside(matrix, message) * message).sum(1)
  return functools.reduce(jnp.add, (matrix[:, j, None] * message[j] for j in range(len(matrix))))


def _beside(matrix: Array, message: Array) -> Array:
  """A matrix [I, J], or one per sequence [I, J, ...], with axes that broadcast against a message [J, C, ...]."""
  return matrix[:, :, None] if matrix.ndim > 2 else jnp.expand_dims(matrix, range(2, message.ndim + 1))


class Arithmetic(NamedTuple):
  """An encoding of messages [H, C, B], and the operations of the recursion on it."""

  encode: Callable[[Array], Array]  # of float64
  decode: Callable[[Array], Array]
  times: Callable[[Array, Array], Array]
  contract: Callable[[Array, Array], Array]  # (matrix [I, J] or [I, J, B], message [J, C, B]) -> [I, C, B]
  total: Callable[[Array], Array]  # message -> its sum, [B], which is encoded too
  over: Callable[[Array, Array], Array]  # (message, total) -> their ratio; the message where the total is zero
  log: Callable[[Array], Array]  # of what is encoded
  least_log_evidence: float  # at or below it the next arithmetic is used

  def one(self, shape: tuple[int, ...], dtype: Any) -> Array:
    return self.encode(jnp.ones(shape, np.float64)).astype(dtype)


SCALED = Arithmetic(
  encode=lambda weights: weights,
  decode=lambda weights: weights,
  times=jnp.multiply,
  contract=_contract,
  total=lambda message: message.sum((0, 1)),
  over=lambda message, total: message * (1 / float64.positive_or_one(total)),
  log=float64.log,
  # Underflow takes at most H^2 1e-308 a step from a message of sum 1. If the evidence of rows with maximum 1 is at
  # least exp(-650) = 1e-282, a posterior loses at most T H^2 1e-26.
  least_log_evidence=-650,
)
LOGARITHMIC = Arithmetic(
  encode=float64.log_of_any,
  decode=jnp.exp,
  times=jnp.add,
  contract=lambda matrix, message: float64.log_sum(_beside(matrix, message) + message, 1),
  total=lambda message: float64.log_sum(message, (0, 1)),
  over=lambda message, total: message - jnp.where(total == -jnp.inf, 0, total),
  log=lambda x: x,
  least_log_evidence=-jnp.inf,
)
# Each arithmetic leaves the sequences that it does not certify to the next.
ARITHMETICS = (SCALED, LOGARITHMIC)
