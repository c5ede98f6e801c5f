"""Printing distributions and posteriors in one line."""

import reprlib
from typing import Any, TypeVar

import numpy as np

from hmm_jax._support.arguments import is_concrete
from hmm_jax._support.float64 import positive_or_one

ClassT = TypeVar('ClassT', bound=type)

# The axes of a distribution, unless it is only the last.
_AXES = {'memory_probs': None, 'leave_one_out_read_probs': (-2, -1)}


def shown(cls: ClassT) -> ClassT:
  """Give a NamedTuple class a one-line repr with shapes and mean entropies."""
  cls.__repr__ = _line  # type: ignore[assignment]
  return cls


def _line(values: Any) -> str:
  return f'{type(values).__name__}({", ".join(map(_summary, values._fields, values))})'


def _summary(name: str, x: Any) -> str:
  """The name and the shape, and of known probabilities the mean entropy of a distribution in nats; a number itself."""
  if name.endswith(('_probs', '_matrix')) and is_concrete(x):
    probs = np.asarray(x, np.float64)
    entropies = -(probs * np.log(positive_or_one(probs))).sum(_AXES.get(name, -1))
    return f'{name} {list(x.shape)} {entropies.mean():.3g} nats'
  if is_concrete(x) and not x.shape:
    return f'{name} {x:.6g}'
  return f'{name} {list(x.shape) if hasattr(x, "shape") else reprlib.repr(x)}'
