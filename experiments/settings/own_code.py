"""Models and heads of the user's own, MODULE:FUNCTION, which flags and config files alone import.

A record may name them too, and comes from anybody: settings that are read from one name what is imported already, or
are refused when it is asked for.
"""

from collections.abc import Callable
import functools
import hashlib
import pathlib
import pkgutil
import sys
from typing import Any, NamedTuple

import jax
from jax import Array
import jax.numpy as jnp

from experiments.settings.fields import require, SettingsError
from hmm_jax.hmm import Distribution
from hmm_jax.model import MaskedLM


class _Imported(NamedTuple):
  """A function, and the SHA-256 of the file of its module."""

  function: Callable[..., Any]
  digest: str


_IMPORTED: dict[str, _Imported] = {}


def import_named(field: str, name: str) -> None:
  """Imports the function of this name, once a process. Raises SettingsError, with the field, where there is none."""
  if name in _IMPORTED:
    return
  try:
    function = pkgutil.resolve_name(name)
    source = pathlib.Path(str(sys.modules[name.partition(':')[0]].__file__))
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
  except (Exception, SystemExit) as error:
    # A module is a program, which may fail in any way or exit.
    raise _failed(f'{field} is {name!r}', error, 'MODULE:FUNCTION of a Python file that can be imported') from error
  require(callable(function), field, name, 'the name of a function')
  _IMPORTED[name] = _Imported(function, digest)


def imported(field: str, name: str) -> _Imported:
  """The function of this name. Raises SettingsError where no flag or config file of this process has named it."""
  valid = f'one that --config.{field} or a config file names: nothing is imported because a record says so'
  require(name in _IMPORTED, field, name, valid)
  return _IMPORTED[name]


def own_model(name: str, distribution: Distribution, key: Array) -> tuple[MaskedLM, Any]:
  """The masked language model that a function makes of a distribution, and its parameters on a device of this host.

  Args:
    name: of the function, from (distribution, key) to (model, params). The model is hashable, as a frozen dataclass is,
      since programs are compiled for it; the parameters are a tree of arrays.
    distribution: an `HMM` or a `MemoryHMM`.
    key: decides what the function draws, so that a trial that is run again has the same model.

  Raises SettingsError where the function fails, or returns something else. No program is compiled to find out.
  """
  function = imported('model', name).function
  try:
    found = function(distribution, key)
    model, params = found if isinstance(found, tuple) and len(found) == 2 else (None, ())
    parts = [part for part in vars(MaskedLM) if not part.startswith('_')]
    is_whole = all(hasattr(model, part) for part in parts) and len(jax.tree.leaves(params)) > 0
    require(is_whole, f'what {name} returns', found, 'a pair of a MaskedLM and its parameters, at least one array')
    hash(model)
    predicted = jax.eval_shape(functools.partial(_prompted, model), params).shape
    params = jax.device_put(params, jax.local_devices()[0])
  except SettingsError:
    raise
  except Exception as error:
    valid = 'a function from (distribution, key) to a hashable MaskedLM and its parameters'
    raise _failed(f'model is {name!r}', error, valid) from error
  num_tokens = distribution.num_tokens
  require(model.num_tokens == num_tokens, f'num_tokens of what {name} returns', model.num_tokens, str(num_tokens))
  valid = str((1, 1, 3, num_tokens))
  require(predicted == (1, 1, 3, num_tokens), f'the shape of what {name} predicts', predicted, valid)
  return model, params


def _prompted(model: MaskedLM, params: Any) -> Array:
  """Predictions on a text of two tokens after a prompt of one row, which ask for every part of a model."""
  prompts = jnp.zeros((1, 1, model.embedding_size(params)))
  return model.predict_prompted(params, prompts, jnp.zeros((1, 2), jnp.int32))


def _failed(what: str, error: BaseException, valid: str) -> SettingsError:
  reason = ' '.join(f'{type(error).__name__}: {error}'.split())
  return SettingsError(f'{what}, which fails with {reason:.300}; valid is {valid}')
