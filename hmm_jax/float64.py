"""Float64 arithmetic inside of functions of float32 arrays, without `jax_enable_x64`, and logarithms of zero."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
from jax import Array, lax

# No public name of this setting is scoped: `jax.config.update` would change it for the user's whole program.
from jax._src.config import explicit_x64_dtypes, ExplicitX64Mode
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

FunctionT = TypeVar('FunctionT', bound=Callable[..., Any])


def in_float64(function: FunctionT) -> FunctionT:
  """Wrap `function` so that `as_float64` makes float64 arrays inside it; nothing outside changes.

  A transpose runs outside: a differentiated function needs a rule of its own, both halves of it `in_float64`.
  """
  return explicit_x64_dtypes(ExplicitX64Mode.ALLOW)(function)


@jax.custom_vjp
def as_float64(x: Array) -> Array:
  """`x` in float64; gradients are clipped to a millionth of the largest number of x's type, so that sums stay finite.

  Devices differ in whether a subnormal number equals zero; here it does.
  """
  x = jnp.where((x > 0) & (x < jnp.finfo(x.dtype).tiny), 0, x)
  return lax.convert_element_type(x, np.dtype(np.float64))


def _hold_slopes(like: Array, slopes: Array) -> tuple[Array]:
  largest = float(jnp.finfo(like.dtype).max) * 1e-6
  return (jnp.clip(slopes, -largest, largest).astype(like.dtype),)


as_float64.defvjp(lambda x: (as_float64(x), jnp.zeros((), x.dtype)), _hold_slopes)


def float64(array: ArrayLike) -> np.ndarray:
  """The array in float64, on the host."""
  return np.asarray(array, np.float64)


def widened(tree: Any) -> Any:
  """The tree with its floating-point arrays in float64."""
  is_floating = lambda x: jnp.issubdtype(x.dtype, jnp.floating)
  return jax.tree.map(lambda x: as_float64(x) if is_floating(x) else x, tree)


def as_float(x: Any) -> Array:
  """`x` as an array of at least float32."""
  return jnp.asarray(x, jnp.promote_types(x.dtype, jnp.float32))


def log(x: Array) -> Array:
  """log x: -inf with gradient 0 at 0; NaN where x is negative or NaN."""
  return jnp.where(x == 0, -jnp.inf, jnp.log(jnp.where(x == 0, 1, x)))


def log_sum(log_weights: Array, axis: Any) -> Array:
  """The log of the sum of exp(log_weights) over axes, -inf where all are."""
  largest = lax.stop_gradient(log_weights).max(axis, keepdims=True)
  largest = jnp.where(jnp.isfinite(largest), largest, 0)
  return log(jnp.exp(log_weights - largest).sum(axis)) + largest.squeeze(axis)


def positive_or_one(x: Array) -> Array:
  """x where positive, else 1: a divisor."""
  return jnp.where(x > 0, x, 1)
