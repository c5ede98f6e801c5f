"""Linear algebra on object arrays of `Fraction`s: ranks and left inverses without any rounding."""

from collections.abc import Callable
from fractions import Fraction
import math
import operator

import numpy as np
from numpy.typing import ArrayLike

PRIME = 2**61 - 1


def as_fractions(array: ArrayLike) -> np.ndarray:
  """The array as `Fraction`s, float by float, in an array of objects."""
  array = np.asarray(array)
  return np.array([Fraction(value) for value in array.reshape(-1).tolist()], object).reshape(array.shape)


def fraction_rows(rows: ArrayLike) -> np.ndarray:
  """Distributions [..., n] as `Fraction`s, each divided by its exact sum; floats are exact rationals."""
  fractions = as_fractions(rows)
  return fractions / fractions.sum(-1, keepdims=True)


def as_integers(array: ArrayLike) -> tuple[np.ndarray, int]:
  """Integers of the same shape, and their common denominator."""
  fractions = as_fractions(array)
  denominator = math.lcm(*(value.denominator for value in fractions.flat))
  return np.array([int(value * denominator) for value in fractions.flat], object).reshape(fractions.shape), denominator


def row_reduced(matrix: np.ndarray) -> tuple[np.ndarray, list[int]]:
  """The reduced row echelon form of a matrix [m, n] and the columns of its pivots, ascending."""
  rows, pivots = eliminated(np.array([as_integers(row)[0] for row in matrix], object), operator.floordiv)
  return rows * Fraction(1, rows[0, pivots[0]] if pivots else 1), pivots


def eliminated(rows: np.ndarray, divided: Callable[[np.ndarray, int], np.ndarray]) -> tuple[np.ndarray, list[int]]:
  """Rows [m, n] of integers after Gauss-Jordan elimination, all pivots equal, and the columns of the pivots, ascending.

  Entries stay integers (Bareiss 1968): what is `divided` by the previous pivot is a multiple of it.
  """
  pivots, pivot = list[int](), 1
  for column in range(rows.shape[1]):
    at = len(pivots)
    candidates = at + np.flatnonzero(rows[at:, column])
    if candidates.size:
      rows[[at, candidates[0]]] = rows[[candidates[0], at]]
      last, pivot = pivot, rows[at, column]
      others = np.arange(len(rows)) != at
      rows[others] = divided(pivot * rows[others] - np.outer(rows[others, column], rows[at]), last)
      pivots.append(column)
  return rows, pivots


def modular_pivots(matrix: np.ndarray) -> list[int]:
  """The columns of integers [m, n] that are independent of those before them modulo a prime, ascending.

  This is fast, and these are independent. If the prime divides a determinant there may be more.
  """
  return eliminated(matrix % PRIME, lambda values, _: values % PRIME)[1]


def rank(matrix: np.ndarray) -> int:
  """The rank of a matrix [m, n], which may have no columns."""
  return len(row_reduced(matrix)[1])


def left_inverse(columns: np.ndarray) -> np.ndarray:
  """The Moore-Penrose inverse (C^T C)^-1 C^T [n, m] of independent columns C [m, n]."""
  return row_reduced(np.hstack([columns.T @ columns, columns.T]))[0][:, columns.shape[1] :]


def is_ergodic(transition_matrix: np.ndarray) -> bool:
  """True if a chain is irreducible and aperiodic: for some n, every state can reach every state in n moves.

  n = (H - 1)^2 + 1 suffices if any n does (Wielandt 1950).
  """
  size = len(transition_matrix)
  return bool(np.linalg.matrix_power(transition_matrix != 0, (size - 1) ** 2 + 1).all())
