"""How values are printed, and what an attribute that was guessed is answered."""

import reprlib
from typing import Any, TypeVar

ClassT = TypeVar('ClassT', bound=type)


class NoSuchName(AttributeError):
  """An AttributeError that ends with what the object has and the nearest public names, looked up when it is printed."""

  def __str__(self) -> str:
    from hmm_jax._support.names import did_you_mean

    own = [name for name in dir(self.obj) if not name.startswith('_') and name not in dir(tuple)]
    has = f'; it has {", ".join(own)}' if self.obj is not None else ''
    return f'{super().__str__()}{has}{did_you_mean(self.name or "")}'


def helped(cls: ClassT) -> ClassT:
  """Let attributes of `cls` that do not exist raise NoSuchName, since others have methods where we have functions."""
  cls.__getattr__ = _missing  # type: ignore[attr-defined]
  return cls


def shown(cls: ClassT) -> ClassT:
  """Give a NamedTuple class a one-line repr with the shapes of its arrays, and `helped`."""
  cls.__repr__ = _line  # type: ignore[assignment]
  return helped(cls)


def _missing(values: Any, name: str) -> Any:
  try:
    # Raises again what a property raised.
    return object.__getattribute__(values, name)
  except AttributeError as error:
    # Tools ask for private names.
    if name.startswith('_'):
      raise
    raise NoSuchName(*error.args, name=name, obj=values) from None


def _line(values: Any) -> str:
  return f'{type(values).__name__}({", ".join(map(_summary, values._fields, values))})'


def _summary(name: str, x: Any) -> str:
  return f'{name} {list(x.shape) if hasattr(x, "shape") else reprlib.repr(x)}'
