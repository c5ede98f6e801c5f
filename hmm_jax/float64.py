"""Float64 arithmetic inside of functions of float32 arrays, without `jax_enable_x64`."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
from jax import lax

# No public name of this setting is scoped: `jax.config.update` would change it for the user's whole program.
from jax._src.config import explicit_x64_dtypes
from jax._src.config import ExplicitX64Mode
import jax.numpy as jnp
import numpy as np

Array = jax.Array
FunctionT = TypeVar('FunctionT', bound=Callable[..., Any])


def in_float64(function: FunctionT) -> FunctionT:
  """`function`, inside of which `as_float64` makes float64 arrays; nothing outside of it changes.

  A transpose runs outside: what is differentiated needs a rule of its own, both halves of which are `in_float64`.
  """
  return explicit_x64_dtypes(ExplicitX64Mode.ALLOW)(function)


@jax.custom_vjp
def as_float64(x: Array) -> Array:
  """`x` in float64. Slopes are held to a millionth of the largest number of x's type, so that sums stay finite.

  Devices differ in whether a subnormal number equals zero; here it does.
  """
  x = jnp.where((x > 0) & (x < jnp.finfo(x.dtype).tiny), 0, x)
  return lax.convert_element_type(x, np.dtype(np.float64))


def _hold_slopes(like: Array, slopes: Array) -> tuple[Array]:
  largest = float(jnp.finfo(like.dtype).max) * 1e-6
  return (jnp.clip(slopes, -largest, largest).astype(like.dtype),)


as_float64.defvjp(lambda x: (as_float64(x), jnp.zeros((), x.dtype)), _hold_slopes)
