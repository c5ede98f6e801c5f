"""The border of the library: arguments of public functions are converted and checked once, before anything compiles.

Concrete float64 stays float64, whatever container it comes in, although `jax_enable_x64` is off. Traced arrays, inside
of `jax.jit`, `jax.vmap` or `jax.grad`, keep the type that JAX gave them. Values of concrete arguments are checked, of
arrays with a position axis only in host memory, since reading them from an accelerator would block.
"""

from collections.abc import Callable
import functools
import inspect
import numbers
import reprlib
import textwrap
from typing import Any, TypeVar

import jax
from jax import Array
import jax.numpy as jnp
import numpy as np

from hmm_jax._support import float64
from hmm_jax._support.compilation import is_outermost

FunctionT = TypeVar('FunctionT', bound=Callable[..., Any])
T = TypeVar('T')

_SIZES = 'length', 'document_length', 'chunk_length', 'memory_size'
_LARGEST = 2**31 - 1
# XLA ends the process at the size of a matrix of more.
_MOST_STATES = 2**15
# Rows of numbers that are finite and at least 0.
_WEIGHTS = 'likelihoods', 'before', 'after', 'between', 'evidence'
_NUMBERS = bool, int, float
_REAL = np.bool_, np.integer, np.floating
# The types of most arrays, which pass at once.
_PLAIN = {np.dtype(kind) for kind in ('bool', 'uint8', 'int32', 'float32', 'float64')}


def checked(function: FunctionT, **options: Any) -> FunctionT:
  """`float64.jit(function, **options)` of `converted` arguments."""
  return converted(function, float64.jit(function, **options))


def converted(function: FunctionT, call: Callable[..., Any] | None = None) -> FunctionT:
  """Wrap `function`, or `call` with the same parameters, so that arguments are converted and checked first.

  A parameter's name and annotation select the check: distribution, array, size or temperature. Raises ValueError that
  names the argument or field, its value and what is valid; after a failure also if `params` do not fit `model`.
  """
  parameters = inspect.signature(function).parameters
  annotations = {name: str(parameter.annotation) for name, parameter in parameters.items()}
  call = call or function
  convert = lambda name, x: _converted(name, annotations.get(name, ''), x)

  @float64.with_promotion
  @functools.wraps(function)
  def border(*args: Any, **named: Any) -> Any:
    args = *map(convert, parameters, args), *args[len(parameters) :]
    named = {name: convert(name, x) for name, x in named.items()}
    try:
      return call(*args, **named)
    except Exception:
      given = dict(zip(parameters, args)) | named
      if 'model' in given and 'params' in given:
        check_params(given['model'], given['params'])
      raise

  return border  # type: ignore[return-value]


def _converted(name: str, annotation: str, x: Any) -> Any:
  if x is None and 'None' in annotation:
    return x
  if name in _WEIGHTS:
    return _weights(name, x)
  if name == 'key':
    return key(x)
  if 'rray' in annotation:
    return array(name, x)
  if name == 'model':
    valid = 'a model, the first that `pretrain` returns, or an ExactModel: are model and params swapped?'
    require(hasattr(x, 'predict'), name, x, valid)
  if name in ('params', 'head'):
    return model_params(x, name)
  if name in ('hmm', 'distribution'):
    return process(name, x)
  if name.startswith('num_') or name in _SIZES:
    check_size(name, x, most=_MOST_STATES if name == 'num_states' else _LARGEST)
  if name.endswith('_temperature') and not isinstance(x, jax.core.Tracer) and not 1e-30 <= float(x) <= 1e30:
    raise ValueError(f'{name} is {x}; valid is a number from 1e-30 to 1e30')
  return distribution(x)


def process(name: str, x: Any) -> Any:
  """A `distribution`; raises ValueError for anything else."""
  # The order of a key and a distribution differs between functions.
  swapped = ': are key and distribution swapped?' if isinstance(x, numbers.Integral) or _is_key(x) else ''
  valid = f'an HMM, or hj.from_transition_matrices(T) of T [V, S, S]{swapped}'
  require(hasattr(x, 'transition_matrix'), name, x, valid)
  return distribution(x)


def key(x: Any) -> Any:
  """A PRNG key, of which an integer is the seed; raises ValueError for anything else."""
  if isinstance(x, numbers.Integral):
    check_size('key', x, 0)
    return jax.random.key(int(x))
  swapped = ': are key and distribution swapped?' if hasattr(x, 'transition_matrix') else ''
  require(_is_key(x), 'key', x, f'a PRNG key or a seed{swapped}')
  return x


def _is_key(x: Any) -> bool:
  """True for a PRNG key, or the uint32 words of one."""
  dtype: Any = getattr(x, 'dtype', None)
  return dtype == np.uint32 or isinstance(x, Array) and jnp.issubdtype(dtype, jax.dtypes.prng_key)


def require(holds: Any, name: str, x: Any, valid: str) -> None:
  """Raise ValueError, 'NAME is X, of type TYPE; valid is ...', unless it holds; X is cut."""
  if not holds:
    kind = f'{type(x).__name__} {getattr(x, "dtype", "")}'.strip()
    # A key has a line of its own for its words.
    shown = ' '.join(reprlib.repr(x).split())
    raise ValueError(f'{name} is {shown}, of type {kind}; valid is {valid}')


def check_functions(**named: Any) -> None:
  """Raise ValueError unless each argument is None or can be called."""
  for name, x in named.items():
    require(x is None or callable(x), name, x, 'a function')


def given_once(**named: Any) -> None:
  """Raise ValueError if more than one of the arguments is given, since each decides the same."""
  given = [name for name, x in named.items() if x is not None]
  if len(given) > 1:
    raise ValueError(f'{" and ".join(given)} are both given; valid is one of them')


def array(name: str, x: Any) -> Any:
  """Convert `x` to a numpy array of real numbers; JAX arrays stay on their device.

  Accepts lists, data frames, tensors, fractions and any byte order. Fractions and long doubles become float64. A PRNG
  key passes for an argument named `key...`, and in parameters. Raises ValueError for anything else, such as complex
  numbers, masked arrays, sparse matrices and strings.
  """
  if (isinstance(x, Array) or type(x) is np.ndarray) and x.dtype in _PLAIN:
    return x
  try:
    values = _values(x)
  except Exception:  # Each library raises its own.
    values = np.array('')
  is_key = _is_key(values) and name.startswith(('key', 'params'))
  is_real = any(jnp.issubdtype(values.dtype, kind) for kind in _REAL)
  require(is_key or is_real, name, x, 'an array of real numbers that float64 holds')
  return values


def _values(x: Any) -> Any:
  """The numbers of `x` as an array. Raises any error for a masked array, or what has no real numbers."""
  if isinstance(x, Array):
    return x
  if isinstance(x, (list, tuple)):
    x = [part if type(part) in _NUMBERS else _values(part) for part in x]
    if any(isinstance(part, jax.core.Tracer) for part in x):
      return jnp.asarray(x)
  if isinstance(x, np.ma.MaskedArray):
    raise TypeError('masked')
  try:
    values = np.asarray(x)
  except Exception:  # A tensor that requires a gradient, or of a type that numpy lacks.
    values = np.asarray(x.tolist())
  if values.dtype == object:
    if not all(isinstance(value, numbers.Real) for value in values.flat):
      raise TypeError('not real')
    return values.astype(np.float64)
  is_wide = values.dtype == np.longdouble
  return values.astype(np.float64 if is_wide else values.dtype.newbyteorder('='), copy=False)


def tree(name: str, x: Any) -> Any:
  """Convert each leaf of a tree, such as a model's parameters, to an `array`; numbers stay what they are."""
  convert = lambda path, leaf: leaf if type(leaf) in _NUMBERS else array(name + jax.tree_util.keystr(path), leaf)
  return jax.tree.map_with_path(convert, x)


def model_params(x: Any, name: str = 'params') -> Any:
  """Parameters of a model as a `distribution`, or as a `tree` of arrays."""
  return distribution(x) if hasattr(x, 'validate') else tree(name, x)


def with_arrays(x: Any) -> Any:
  """Convert each field of a named tuple to an `array`."""
  return type(x)(*map(array, x._fields, x))


def distribution(x: T) -> T:
  """Return a distribution with converted fields, `validate`d if their values are known; anything else unchanged."""
  if not hasattr(x, 'validate'):
    return x
  fields: Any = with_arrays(x)
  return fields.validate() if all(map(is_concrete, fields)) else fields


def is_concrete(x: Any) -> bool:
  """True if x is an array whose numbers can be read now."""
  if isinstance(x, Array):
    return not isinstance(x, jax.core.Tracer) and x.is_fully_addressable
  return isinstance(x, np.ndarray)


def _is_on_host(x: Any) -> bool:
  return is_concrete(x) and (isinstance(x, np.ndarray) or x.platform() == 'cpu')


def are_on_host(tree: Any) -> bool:
  """True if the CPU computes, outside of `jax.jit` and the like, and can read all arrays of the tree."""
  return is_outermost() and jax.default_backend() == 'cpu' and all(map(_is_on_host, jax.tree.leaves(tree)))


def _weights(name: str, x: Any) -> Any:
  """`array` of finite numbers of at least 0; raises ValueError if values on the host are others."""
  x = array(name, x)
  if not _is_on_host(x):
    return x
  values = np.asarray(x)
  # NaN is not at least 0.
  is_wrong = ~((values >= 0) & (values < np.inf))
  if is_wrong.any():
    raise ValueError(f'{name} has the entry {values[is_wrong][0]}; valid are finite numbers of at least 0')
  # JAX would cut integers to 32 bits.
  return values.astype(np.float64) if values.dtype.kind in 'iu' else x


def check_ids(name: str, ids: Any, num_ids: int, where: Any = True) -> None:
  """Raise ValueError unless every id is an integer from 0 to `num_ids` - 1; ids with `where` False are ignored."""
  if not _is_on_host(ids) or isinstance(where, jax.core.Tracer):
    return
  ids = np.asarray(ids)
  is_id = (ids >= 0) & (ids < num_ids) & (ids.dtype.kind in 'iu')
  is_wrong = np.asarray(where, bool) & ~is_id
  if is_wrong.any():
    wrong = np.broadcast_to(ids, is_wrong.shape)[is_wrong][0]
    raise ValueError(f'{name} has the entry {wrong}; valid are integers from 0 to {num_ids - 1}')


def check_finite(name: str, x: Any) -> None:
  """Raise ValueError unless all numbers of an array or a tree are finite."""
  if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(jax.device_get(x))):
    raise ValueError(f'{name} have an entry that is not finite; valid are finite numbers')


def check_shape(name: str, x: Any, *axes: Any) -> tuple[int, ...]:
  """The shape of an array. Raises ValueError unless it has these axes, behind any others if the first is `...`.

  A number is the size of an axis; one that has a name is of any size but 0.
  """
  shape, own = np.shape(x), [axis for axis in axes if axis is not ...]
  last = shape[len(shape) - len(own) :] if ... in axes else shape
  fits = [size > 0 if isinstance(axis, str) else size == axis for size, axis in zip(last, own)]
  if len(last) != len(own) or not all(fits):
    valid = ', '.join(['...'] * (... in axes) + [str(axis) for axis in own])
    raise ValueError(f'the shape of {name} is {shape}; valid is [{valid}]')
  return shape


def check_probs(name: str, probs: Any, *axes: Any, over: Any = -1, within: float = 1e-5) -> None:
  """Raise ValueError unless probabilities have the axes of `check_shape` and sum to 1 `over` some, None for all."""
  check_shape(name, probs, *axes)
  rows = np.asarray(probs, np.float64)
  # NaN is not at least 0.
  if not (rows >= 0).all():
    raise ValueError(f'{name} has an entry that is negative or not finite; valid are probabilities')
  sums = rows.sum(over)
  row = np.unravel_index(np.abs(sums - 1).argmax(), sums.shape)
  if abs(sums[row] - 1) > within:
    place = f' in row {", ".join(map(str, row))}' if row else ''
    raise ValueError(f'{name}{place} sums to {sums[row]:.6g}; valid is 1 (within {within})')


def check_size(name: str, value: Any, least: int = 1, most: int = _LARGEST) -> None:
  """Raise ValueError unless `value` is an integer from `least` to `most`."""
  if not isinstance(value, numbers.Integral) or isinstance(value, bool) or not least <= int(value) <= most:
    raise ValueError(f'{name} is {value}; valid is an integer from {least} to {most:,}')


def position(name: str, value: Any, length: int) -> int:
  """The position in a text of this length, from 0 on, that `value` counts from either end; an empty text has 0.

  Raises ValueError for any other.
  """
  check_size(name, value, -length, max(length - 1, 0))
  return value % max(length, 1)


def check_params(model: Any, params: Any) -> None:
  """Raise ValueError if the model cannot predict a token with these parameters; nothing is computed."""
  try:
    jax.eval_shape(lambda params: model.predict(params, model.embed(params, jnp.zeros((1, 1), jnp.int32))), params)
  except Exception as error:  # Any, of JAX's, flax's or a model of one's own.
    reason = textwrap.shorten(str(error), 200)
    raise ValueError(
      f'params, a {type(params).__name__}, do not fit the model ({reason}); valid are those that `pretrain` returned, '
      'or for an ExactModel a distribution'
    )


def check_vocabulary(model: Any, distribution: Any) -> None:
  """Raise ValueError if a distribution has another number of tokens than a model."""
  if getattr(distribution, 'num_tokens', model.num_tokens) != model.num_tokens:
    raise ValueError(f'the model has num_tokens {model.num_tokens}; valid is {distribution.num_tokens}, as in the text')


def check_texts(model: Any, params: Any, tokens: Any) -> None:
  """Raise ValueError unless tokens [..., T] are texts of at least one token of a model's vocabulary, or [MASK]."""
  check_shape('tokens', tokens, ..., 'T')
  check_ids('tokens', tokens, model.num_tokens + 1)
  check_vocabulary(model, params)


def labelled(features: Any, labels: Any, num_classes: int) -> tuple[np.ndarray, np.ndarray]:
  """Features [n, F], of their own type, and labels [n] in host memory; raises ValueError if they are no examples."""
  features, labels = np.asarray(array('features', features)), np.asarray(array('labels', labels))
  # There may be none of a text.
  num_texts, _ = check_shape('features', features, 'n', *features.shape[-1:])
  check_shape('labels', labels, num_texts)
  check_finite('features', features)
  check_size('num_classes', num_classes, 2)
  check_ids('labels', labels, num_classes)
  return features, labels
