"""Float64 arithmetic inside of functions of float32 arrays, without `jax_enable_x64`, and logarithms of zero."""

from collections.abc import Callable
import functools
import inspect
import math
from typing import Any, TypeVar

import jax
from jax import Array, lax

# No public name of this setting is scoped: `jax.config.update` would change it for the user's whole program.
from jax._src.config import explicit_x64_dtypes, ExplicitX64Mode
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from hmm_jax._support import compilation

FunctionT = TypeVar('FunctionT', bound=Callable[..., Any])
_FLOAT64 = np.dtype(np.float64)


def with_promotion(function: FunctionT) -> FunctionT:
  """Wrap `function` so that arrays of different ranks and types combine in it, whatever the user's options of JAX."""

  @functools.wraps(function)
  def call(*args: Any, **named: Any) -> Any:
    config: Any = jax.config
    try:
      if (config.jax_numpy_rank_promotion, config.jax_numpy_dtype_promotion) == ('allow', 'standard'):
        return function(*args, **named)
      with jax.numpy_rank_promotion('allow'), jax.numpy_dtype_promotion('standard'):
        return function(*args, **named)
    except TypeError:
      _check_names(function, named)
      raise

  return call  # type: ignore[return-value]


def _check_names(function: Callable[..., Any], named: dict[str, Any]) -> None:
  """Raise TypeError with the names of all parameters if one that is given is none of them."""
  parameters = inspect.signature(function).parameters
  unknown = [name for name in named if name not in parameters]
  if unknown:
    message = f'{function.__qualname__} has no parameter {unknown[0]}; its parameters are {", ".join(parameters)}'
    raise TypeError(message) from None


def in_float64(function: FunctionT) -> FunctionT:
  """Wrap `function` so that `as_float64` makes float64 arrays inside it; nothing outside changes.

  A transpose runs outside: a differentiated function needs a rule of its own, both halves of it `in_float64`.
  """
  return with_promotion(explicit_x64_dtypes(ExplicitX64Mode.ALLOW)(function))


def jit(
  function: FunctionT, *, returns_float64: bool = False, by: Callable[..., Any] = compilation.quick, **options: Any
) -> FunctionT:
  """Jit `function`, and keep concrete arrays and distributions of float64 in float64 although x64 is off.

  Float64 results are cast to float32, unless `returns_float64`: then they are numpy arrays, or tracers if traced.
  `by` is `jax.jit`, or a function like it.
  """
  compiled = by(function, **options)
  narrow = functools.wraps(function)(lambda *args, **named: narrowed(function(*args, **named)))
  narrow_compiled = by(narrow, **options)

  @in_float64
  def call_in_float64(args: Any, named: Any) -> Any:
    args, named = put((args, named))
    if not returns_float64:
      return narrow_compiled(*args, **named)
    of_host = lambda x: x if isinstance(x, jax.core.Tracer) else np.asarray(x)
    return jax.tree.map(of_host, compiled(*args, **named))

  @with_promotion
  @functools.wraps(function)
  def call(*args: Any, **named: Any) -> Any:
    if _x64() or not any(map(_has_float64, (*args, *named.values()))):
      return compiled(*args, **named)
    if explicit_x64_dtypes.value is ExplicitX64Mode.ALLOW:
      args, named = put((args, named))
      return compiled(*args, **named)
    return call_in_float64(args, named)

  return call  # type: ignore[return-value]


def _x64() -> bool:
  return jax.config.jax_enable_x64  # type: ignore[attr-defined]


def _has_float64(x: Any) -> bool:
  """True for arrays and distributions of float64; other trees, such as a model's parameters, are JAX's own affair."""
  if isinstance(x, (Array, np.ndarray)):
    return x.dtype == _FLOAT64
  return hasattr(x, 'transition_matrix') and any(leaf.dtype == _FLOAT64 for leaf in jax.tree.leaves(x))


def put(tree: Any) -> Any:
  """The tree with its numpy arrays of float64 on the device as they are, inside `in_float64`."""
  is_wide = lambda x: isinstance(x, np.ndarray) and x.dtype == np.float64
  return jax.tree.map(lambda x: jnp.asarray(x, np.float64) if is_wide(x) else x, tree)


@in_float64
def on_device(tree: Any, device: jax.Device) -> Any:
  """The tree on a device, with its numpy arrays of float64 as they are."""
  return jax.device_put(put(tree), device)


def narrowed(tree: Any) -> Any:
  """The tree with float32 for float64, unless `jax_enable_x64`."""
  return tree if _x64() else jax.tree.map(lambda x: x.astype(np.float32) if x.dtype == np.float64 else x, tree)


@jax.custom_vjp
def as_float64(x: Array) -> Array:
  """`x` in float64.

  Gradients of a narrower type are clipped to a millionth of its largest number, so that sums stay finite. Devices
  differ in whether a subnormal number equals zero; here one of a narrower type does.
  """
  if x.dtype != np.float64:
    x = jnp.where((x > 0) & (x < jnp.finfo(x.dtype).tiny), 0, x)
  return lax.convert_element_type(x, np.dtype(np.float64))


def _hold_slopes(like: Array, slopes: Array) -> tuple[Array]:
  if like.dtype == np.float64:
    return (slopes,)
  largest = float(jnp.finfo(like.dtype).max) * 1e-6
  return (jnp.clip(slopes, -largest, largest).astype(like.dtype),)


as_float64.defvjp(lambda x: (as_float64(x), jnp.zeros((), x.dtype)), _hold_slopes)


def float64(array: ArrayLike) -> np.ndarray:
  """The array in float64, on the host."""
  return np.asarray(array, np.float64)


def narrowest(array: np.ndarray) -> np.ndarray:
  """The array in int32 or, if that holds every number and none is subnormal, float32, as drawn ones; else float64."""
  narrow = array.astype(np.int32 if array.dtype.kind == 'i' else np.float32)
  return array.astype(np.float64) if ((narrow != array) | is_read_as_zero(narrow)).any() else narrow


def is_read_as_zero(array: np.ndarray) -> Any:
  """True for subnormal float32 numbers, which inference takes for 0; in float64 it would not."""
  return (array.dtype == np.float32) & (array != 0) & (np.abs(array) < np.finfo(np.float32).tiny)


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


def log_of_any(x: Array) -> Array:
  """`log` of float64 numbers, also of subnormal ones, which a CPU's arithmetic takes for 0; their gradient is 0."""
  # The bits of a subnormal number count its units of 2^-1074.
  units = lax.convert_element_type(_bits(x), np.float64)
  return jnp.where(is_subnormal(x), jnp.log(units) - 1074 * math.log(2), log(x))


def is_subnormal(x: Array) -> Array:
  """True for float64 numbers above 0 that a CPU's arithmetic takes for 0."""
  return (_bits(x) > 0) & (_bits(x) >> 52 == 0)


def _bits(x: Array) -> Array:
  return lax.bitcast_convert_type(lax.stop_gradient(x), np.uint64)


def log_sum(log_weights: Array, axis: Any) -> Array:
  """The log of the sum of exp(log_weights) over axes, -inf where all are."""
  largest = lax.stop_gradient(log_weights).max(axis, keepdims=True)
  largest = jnp.where(jnp.isfinite(largest), largest, 0)
  return log(jnp.exp(log_weights - largest).sum(axis)) + largest.squeeze(axis)


def positive_or_one(x: Any) -> Any:
  """x where positive, else 1: a divisor. A numpy array stays one, of any type."""
  return (np if isinstance(x, np.ndarray) else jnp).where(x > 0, x, 1)
