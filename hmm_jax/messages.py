"""The arithmetic of messages [H, C, B]: weights of sum 1, or their logarithms where scaling loses what matters."""

from collections.abc import Callable
from typing import NamedTuple

import jax
from jax import Array, lax
import jax.numpy as jnp

from hmm_jax import float64


@jax.custom_jvp
def probs(weights: Array) -> Array:
  """Weights [..., H, C, B] that a constant brought to sum 1, with the slopes of whatever multiple of them has sum 1."""
  return weights


@probs.defjvp
def _probs_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
  (probs,), (tangent,) = primals, tangents
  return probs, tangent - probs * tangent.sum((-3, -2), keepdims=True)


def _contract(matrix: Array, message: Array) -> Array:
  # Without an output type of its own, which `vmap` outside of `in_float64` would truncate.
  return lax.dot_general(matrix, message, (((1,), (0,)), ((), ())), precision=lax.Precision.HIGHEST)


class Arithmetic(NamedTuple):
  """An encoding of messages [H, C, B], and the operations of the recursion on it."""

  encode: Callable[[Array], Array]
  decode: Callable[[Array], Array]
  times: Callable[[Array, Array], Array]
  contract: Callable[[Array, Array], Array]  # (matrix [I, J], message [J, C, B]) -> message [I, C, B]
  log_total: Callable[[Array], Array]  # message -> log of its sum, [B]
  rescale: Callable[[Array], Array]  # to sum 1, by a constant to differentiation; zeros stay zeros


def _rescale(weights: Array) -> Array:
  total = lax.stop_gradient(weights).sum((0, 1))
  return weights * jnp.where(total > 0, 1 / float64.positive_or_one(total), 0)


SCALED = Arithmetic(
  encode=lambda weights: weights,
  decode=lambda weights: weights,
  times=jnp.multiply,
  contract=_contract,
  log_total=lambda message: float64.log(message.sum((0, 1))),
  rescale=_rescale,
)
LOGARITHMIC = Arithmetic(
  encode=float64.log,
  decode=jnp.exp,
  times=jnp.add,
  contract=lambda matrix, message: float64.log_sum(jnp.expand_dims(matrix, range(2, message.ndim + 1)) + message, 1),
  log_total=lambda message: float64.log_sum(message, (0, 1)),
  rescale=lambda message: message - jnp.maximum(float64.log_sum(lax.stop_gradient(message), (0, 1)), -1e30),
)
