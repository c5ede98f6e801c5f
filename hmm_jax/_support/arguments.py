"""The border of the library: arguments of public functions are converted and checked once, before anything compiles.

Concrete float64 stays float64, whatever container it comes in, although `jax_enable_x64` is off. Traced arrays, inside
of `jax.jit`, `jax.vmap` or `jax.grad`, keep the type that JAX gave them. Values of concrete arguments are checked, of
arrays with a position axis only in host memory, since reading them from an accelerator would block.
"""

from collections.abc import Callable, Sequence
import decimal
import functools
import inspect
import numbers
import reprlib
from typing import Any, TypeVar

import jax
from jax import Array
import jax.numpy as jnp
import numpy as np

from hmm_jax._support import float64

FunctionT = TypeVar('FunctionT', bound=Callable[..., Any])
T = TypeVar('T')


def is_concrete(x: Any) -> bool:
  """True if x is an array whose numbers can be read now."""
  if isinstance(x, Array):
    return not isinstance(x, jax.core.Tracer) and x.is_fully_addressable
  return isinstance(x, np.ndarray)


def array(name: str, x: Any) -> Any:
  """Convert `x` to a numpy array of real numbers; JAX arrays stay on their device.

  Accepts lists, data frames, tensors, fractions, any byte order, and complex numbers with zero imaginary part. Numbers
  wider than 8 bytes become float64. A PRNG key passes for an argument named `key...`, and in parameters. Raises
  ValueError for anything else, such as masked arrays, sparse matrices and strings.
  """
  if (isinstance(x, Array) or type(x) is np.ndarray) and x.dtype in _PLAIN:
    return x
  try:
    values = _values(x)
  except Exception:  # Each library raises its own.
    values = np.array(None)
  if jnp.issubdtype(values.dtype, jax.dtypes.extended):
    if name.startswith(('key', 'params')):
      return values
    values = np.array(None)
  if values.dtype.kind == 'c' and not isinstance(values, jax.core.Tracer) and not values.imag.any():
    values = values.real
  wide = values
  if values.dtype.kind in 'biuf' and not isinstance(values, Array):
    with np.errstate(over='ignore'):
      values = wide.astype(np.float64 if wide.dtype.itemsize > 8 else wide.dtype.newbyteorder('='), copy=False)
  # numpy does not know the kind of bfloat16.
  is_real = values.dtype.kind in 'biuf' or jnp.issubdtype(values.dtype, jnp.number) and values.dtype.kind == 'V'
  if not is_real or values is not wide and ((values == 0) != (wide == 0)).any():
    kind = type(x).__name__ if values.dtype == object else f'{type(x).__name__} of {wide.dtype}'
    raise ValueError(
      f'{name} is {reprlib.repr(x)}, of type {kind}; valid is an array of real numbers that float64 holds'
    )
  return values


_NUMBERS = bool, int, float
# The types of most arrays, which pass at once.
_PLAIN = {np.dtype(kind) for kind in ('bool', 'uint8', 'int32', 'float32', 'float64')}


def _values(x: Any) -> Any:
  """The numbers of `x` as an array of any type, one of objects if it has other things than numbers."""
  if isinstance(x, Array):
    return x
  if isinstance(x, (list, tuple)):
    x = [part if isinstance(part, (int, float)) else _values(part) for part in x]
    if any(isinstance(part, jax.core.Tracer) for part in x):
      return jnp.asarray(x)
  if isinstance(x, np.ma.MaskedArray):
    return np.array(None)
  try:
    values = np.asarray(x)
  except Exception:  # A tensor that requires a gradient, or of a type that numpy lacks.
    values = np.asarray(x.tolist())
  if values.dtype == object and all(isinstance(value, (numbers.Complex, decimal.Decimal)) for value in values.flat):
    as_complex = np.array([complex(value) for value in values.flat]).reshape(values.shape)
    return as_complex if ((as_complex == 0) == (values == 0)).all() else values
  return values


def tree(name: str, x: Any) -> Any:
  """Convert each leaf of a tree, such as a model's parameters, to an `array`; numbers stay what they are."""
  convert = lambda path, leaf: leaf if type(leaf) in _NUMBERS else array(name + jax.tree_util.keystr(path), leaf)
  return jax.tree.map_with_path(convert, x)


def model_params(x: Any) -> Any:
  """Parameters of a model as a `distribution`, or as a `tree` of arrays."""
  return distribution(x) if hasattr(x, 'validate') else tree('params', x)


def with_arrays(x: Any) -> Any:
  """Convert each field of a named tuple to an `array`."""
  return type(x)(*map(array, x._fields, x))


def distribution(x: T) -> T:
  """Return a distribution with converted fields, `validate`d if their values are known; anything else unchanged."""
  if not hasattr(x, 'validate'):
    return x
  # `validate` converts too.
  fields: Any = x if all(map(is_concrete, x)) else with_arrays(x)  # type: ignore[call-overload]
  return fields.validate() if all(map(is_concrete, fields)) else fields


def check_ids(name: str, ids: Any, num_ids: int, where: Any = True) -> None:
  """Raise ValueError unless every id is an integer from 0 to `num_ids` - 1; ids with `where` False are ignored."""
  if not _is_on_host(ids) or isinstance(where, jax.core.Tracer):
    return
  ids = np.asarray(ids)
  if ids.size and ids.dtype.kind not in 'iu':
    raise ValueError(f'{name} are of type {ids.dtype}; valid are integers')
  is_wrong = np.asarray(where, bool) & ((ids < 0) | (ids >= num_ids))
  if is_wrong.any():
    wrong = np.broadcast_to(ids, is_wrong.shape)[is_wrong][0]
    raise ValueError(f'{name} contain {wrong}; valid are integers from 0 to {num_ids - 1}')


def check_finite(name: str, x: Any) -> None:
  """Raise ValueError unless all numbers of an array or a tree are finite."""
  if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(jax.device_get(x))):
    raise ValueError(f'{name} have an entry that is not finite; valid are finite numbers')


def check_size(name: str, value: Any, least: int = 1, most: int = 2**31 - 1) -> None:
  """Raise ValueError unless `value` is an integer from `least` to `most`."""
  if not isinstance(value, numbers.Integral) or isinstance(value, bool) or not least <= int(value) <= most:
    raise ValueError(f'{name} is {value}; valid is an integer from {least} to {most:,}')


def position(name: str, value: Any, length: int) -> int:
  """The position in a text of this length, from 0 on, that `value` counts from either end; an empty text has 0.

  Raises ValueError for any other.
  """
  check_size(name, value, -length, max(length - 1, 0))
  return value % max(length, 1)


def check_vocabulary(model: Any, distribution: Any) -> None:
  """Raise ValueError if a distribution has another number of tokens than a model."""
  if getattr(distribution, 'num_tokens', model.num_tokens) != model.num_tokens:
    raise ValueError(f'the model has num_tokens {model.num_tokens}; valid is {distribution.num_tokens}, as in the text')


def check_texts(model: Any, params: Any, tokens: Any) -> None:
  """Raise ValueError unless tokens [..., T] are texts of at least one token of a model's vocabulary, or [MASK]."""
  if not np.ndim(tokens) or not tokens.shape[-1]:
    raise ValueError(f'tokens have shape {np.shape(tokens)}; valid is [..., T], T at least 1')
  check_ids('tokens', tokens, model.num_tokens + 1)
  check_vocabulary(model, params)


def labelled(features: Any, labels: Any, num_classes: int) -> tuple[np.ndarray, np.ndarray]:
  """Features [n, F], of their own type, and labels [n] in host memory; raises ValueError if they are no examples."""
  features, labels = np.asarray(array('features', features)), np.asarray(array('labels', labels))
  if features.ndim != 2 or not len(features) or labels.shape != features.shape[:1]:
    valid = '[n, F] and [n], n at least 1'
    raise ValueError(f'features have shape {features.shape} and labels {labels.shape}; valid are {valid}')
  check_finite('features', features)
  check_size('num_classes', num_classes, 2)
  check_ids('labels', labels, num_classes)
  return features, labels


def check_widths(parts: Sequence[Any], width: int) -> None:
  """Raise ValueError unless the rows of each part [..., T, D] have this width."""
  for part in parts:
    if part.shape[-1] != width:
      raise ValueError(f'embeddings or a prompt have shape {part.shape}; valid is [..., {width}]')


def converted(function: FunctionT, call: Callable[..., Any] | None = None) -> FunctionT:
  """Wrap `function`, or `call` with the same parameters, so that arguments are converted and checked first.

  A parameter's name and annotation select the check: distribution, array, size or temperature. Raises ValueError that
  names the argument or field, its value and what is valid.
  """
  parameters = inspect.signature(function).parameters
  annotations = {name: str(parameter.annotation) for name, parameter in parameters.items()}
  call = call or function

  def convert(name: str, x: Any) -> Any:
    annotation = annotations.get(name, '')
    if x is None and 'None' in annotation:
      return x
    if 'rray' in annotation:
      return _weights(name, x) if name in _WEIGHTS else array(name, x)
    if name in ('hmm', 'distribution') and not hasattr(x, 'transition_matrix'):
      raise ValueError(
        f'{name} is {reprlib.repr(x)}, of type {type(x).__name__}; valid is a distribution such as an HMM'
      )
    if name.startswith('num_') or name in _SIZES:
      # XLA ends the process at the size of a matrix of more states.
      check_size(name, x, most=2**15 if name == 'num_states' else 2**31 - 1)
    # Not of a traced number.
    is_known = isinstance(x, numbers.Real) or is_concrete(x)
    if name.endswith('_temperature') and is_known and not 1e-30 <= float(x) <= 1e30:
      raise ValueError(f'{name} is {x}; valid is a number from 1e-30 to 1e30')
    if name == 'head':
      return tree(name, x)
    return model_params(x) if name == 'params' else distribution(x)

  @float64.with_promotion
  @functools.wraps(function)
  def border(*args: Any, **named: Any) -> Any:
    named = {name: convert(name, x) for name, x in named.items()}
    return call(*map(convert, parameters, args), *args[len(parameters) :], **named)

  return border  # type: ignore[return-value]


def checked(function: FunctionT, **options: Any) -> FunctionT:
  """`float64.jit(function, **options)` of `converted` arguments."""
  return converted(function, float64.jit(function, **options))


_SIZES = 'length', 'document_length', 'chunk_length', 'chunk_size', 'memory_size'
# Rows of numbers that are finite and at least 0.
_WEIGHTS = 'likelihoods', 'before', 'after', 'between', 'evidence'


def _weights(name: str, x: Any) -> Any:
  """`array` of finite numbers of at least 0; raises ValueError if values on the host are others."""
  x = array(name, x)
  if not _is_on_host(x) or not x.size:
    return x
  values = np.asarray(x)
  least, most = values.min(), values.max()
  # NaN is not at least 0.
  if not (least >= 0 and most < np.inf):
    raise ValueError(f'{name} contain {most if least >= 0 else least}; valid are finite numbers of at least 0')
  # JAX would cut integers to 32 bits.
  return values.astype(np.float64) if values.dtype.kind in 'iu' and values.dtype.itemsize > 4 else x


def _is_on_host(x: Any) -> bool:
  return is_concrete(x) and (isinstance(x, np.ndarray) or x.platform() == 'cpu')
