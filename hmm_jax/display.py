"""Printing distributions and posteriors: a line in a terminal, small heat maps in a notebook."""

import reprlib
from typing import Any, TypeVar

import numpy as np

from hmm_jax.arguments import is_concrete

ClassT = TypeVar('ClassT', bound=type)

# The axes that a distribution is on, where it is not the last alone.
_AXES = {'memory_probs': None, 'leave_one_out_read_probs': (-2, -1)}
# Rows and columns of a heat map at most.
_MOST_CELLS = 64


def shown(cls: ClassT) -> ClassT:
  """The class of named tuples, of arrays such as probabilities, whose instances print shapes and mean entropies."""
  cls.__repr__, cls._repr_html_ = _line, _heat_maps  # type: ignore[assignment, attr-defined]
  return cls


def _line(values: Any) -> str:
  return f'{type(values).__name__}({", ".join(map(_summary, values._fields, values))})'


def _summary(name: str, x: Any) -> str:
  """The name and the shape, and of known probabilities the mean entropy of a distribution in nats; a number itself."""
  if _is_distribution(name, x):
    probs = np.asarray(x, np.float64)
    entropies = -(probs * np.log(np.where(probs > 0, probs, 1))).sum(_AXES.get(name, -1))
    return f'{name} {list(x.shape)} {entropies.mean():.3g} nats'
  if is_concrete(x) and not x.shape:
    return f'{name} {x:.6g}'
  return f'{name} {list(x.shape) if hasattr(x, "shape") else reprlib.repr(x)}'


def _is_distribution(name: str, x: Any) -> bool:
  return name.endswith(('_probs', '_matrix')) and is_concrete(x)


def _heat_maps(values: Any) -> str:
  """The line; then of each field of probabilities that are known its name and a picture, white at 0 and black at 1."""
  fields = [(name, x) for name, x in zip(values._fields, values) if _is_distribution(name, x)]
  return '<br>'.join([_line(values), *(f'{name}<br>{_picture(np.asarray(x))}' for name, x in fields)])


def _picture(probs: np.ndarray) -> str:
  """Rows of probabilities [..., R, C] as an SVG; of leading axes the first entry, and at most _MOST_CELLS a side."""
  rows = np.atleast_2d(probs)
  rows = rows[(0,) * (rows.ndim - 2)][:_MOST_CELLS, :_MOST_CELLS]
  height, width = rows.shape
  cell = '<rect x="{}" y="{}" width="1" height="1" fill-opacity="{:.2f}"/>'
  cells = ''.join(cell.format(j, i, rows[i, j]) for i, j in zip(*np.nonzero(rows >= 0.005)))
  return f'<svg viewBox="0 0 {width} {height}" width="{6 * width}" style="border: 1px solid">{cells}</svg>'
