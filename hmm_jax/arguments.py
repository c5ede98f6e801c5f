"""Checks of what a caller gives to a public function, on the host and before anything compiles.

Values are looked at where they are known: not inside of `jax.jit`, `jax.vmap` or `jax.grad`, and of arrays with entries
for each position only those in the host's memory, since reading others would wait for an accelerator.
"""

from collections.abc import Callable, Sequence
import functools
import inspect
from typing import Any, TypeVar

import jax
from jax import Array
import jax.numpy as jnp
import numpy as np

FunctionT = TypeVar('FunctionT', bound=Callable[..., Any])
T = TypeVar('T')


def is_concrete(x: Any) -> bool:
  """True if x is an array whose numbers can be read now."""
  if isinstance(x, Array):
    return not isinstance(x, jax.core.Tracer) and x.is_fully_addressable
  return isinstance(x, np.ndarray)


def as_array(x: Any) -> Any:
  """A list or a tuple of numbers as an array; all else as it is."""
  return np.asarray(x) if type(x) in (list, tuple) else x


def with_arrays(x: Any) -> Any:
  """The named tuple with arrays for lists."""
  return type(x)(*map(as_array, x))


def distribution(x: T) -> T:
  """The distribution with arrays for lists, `validate`d if its numbers are known; whatever else x is, x itself."""
  if not hasattr(x, 'validate'):
    return x
  found: Any = with_arrays(x)
  return found.validate() if all(map(is_concrete, found)) else found


def check_ids(name: str, ids: Any, num_ids: int, where: Any = True) -> None:
  """Raise ValueError at the first id, of those `where` holds, that is no integer from 0 to below `num_ids`."""
  if not _is_on_host(ids) or isinstance(where, jax.core.Tracer):
    return
  ids = np.asarray(ids)
  if ids.size and ids.dtype.kind not in 'iu':
    raise ValueError(f'{name} are of type {ids.dtype}; valid are integers')
  is_wrong = np.asarray(where, bool) & ((ids < 0) | (ids >= num_ids))
  if is_wrong.any():
    wrong = np.broadcast_to(ids, is_wrong.shape)[is_wrong][0]
    raise ValueError(f'{name} contain {wrong}; valid are integers from 0 to {num_ids - 1}')


def check_vocabulary(model: Any, distribution: Any) -> None:
  """Raise ValueError where a distribution has another number of tokens than a model."""
  if getattr(distribution, 'num_tokens', model.num_tokens) != model.num_tokens:
    raise ValueError(f'the model has num_tokens {model.num_tokens}; valid is {distribution.num_tokens}, as in the text')


def check_widths(parts: Sequence[Any], width: int) -> None:
  """Raise ValueError unless the rows of each part [..., T, D] have this width."""
  for part in parts:
    if part.shape[-1] != width:
      raise ValueError(f'embeddings or a prompt have shape {part.shape}; valid is [..., {width}]')


def checked(function: FunctionT, **how: Any) -> FunctionT:
  """`jax.jit(function, **how)`, which refuses what is wrong in distributions and rows of weights, such as likelihoods.

  Lists become arrays. Raises ValueError that names the argument or field, its value and what is valid.
  """
  compiled, names = jax.jit(function, **how), list(inspect.signature(function).parameters)

  @functools.wraps(function)
  def call(*args: Any, **kwargs: Any) -> Any:
    checked_args = *map(_checked, names, args), *args[len(names) :]
    return compiled(*checked_args, **{name: _checked(name, x) for name, x in kwargs.items()})

  return call  # type: ignore[return-value]


def _checked(name: str, x: Any) -> Any:
  x = distribution(as_array(x))
  if hasattr(x, 'dtype') and jnp.issubdtype(x.dtype, jnp.number) and x.size and _is_on_host(x):
    least = np.asarray(x).min()
    # NaN is not at least 0.
    if not least >= 0:
      raise ValueError(f'{name} contain {least}; valid are numbers of at least 0')
  return x


def _is_on_host(x: Any) -> bool:
  return is_concrete(x) and (isinstance(x, np.ndarray) or x.platform() == 'cpu')
