"""Printing distributions and posteriors in one line."""

import reprlib
from typing import Any, TypeVar

ClassT = TypeVar('ClassT', bound=type)


def shown(cls: ClassT) -> ClassT:
  """Give a NamedTuple class a one-line repr with the shapes of its arrays."""
  cls.__repr__ = _line  # type: ignore[assignment]
  return cls


def _line(values: Any) -> str:
  return f'{type(values).__name__}({", ".join(map(_summary, values._fields, values))})'


def _summary(name: str, x: Any) -> str:
  return f'{name} {list(x.shape) if hasattr(x, "shape") else reprlib.repr(x)}'
