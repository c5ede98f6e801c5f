"""Tables of P[memory, path, text], by the definition alone: what statements about short texts are checked on.

They take floats and `Fraction`s alike: the same statement is searched for its worst case in float64 and decided there
without rounding. A table has an axis for memories and paths, n of them, and one of V for each token of the text.
"""

import functools
import itertools
from typing import NamedTuple

import numpy as np

from hmm_jax.theory.exact import algebra


class Case(NamedTuple):
  """A memory-augmented HMM with a task; a plain HMM has one cell of one value, and its task weighs states.

  Attributes:
    memory_probs: [M, ..., M], P[M_1, ..., M_N].
    silent_probs: P[H_0] [H].
    transition_matrix: [H, H], P[next = j | now = i].
    cell_index: [H], the cell that each state reads.
    emission_matrix: [M, H, V].
    task_weights: the paper's mu, [M], or [H] without a memory.
    cell: j*.
    states: H*, of the assumption that the case is of.
    stationary: whether P[H_0] is the stationary law.
  """

  memory_probs: np.ndarray
  silent_probs: np.ndarray
  transition_matrix: np.ndarray
  cell_index: np.ndarray
  emission_matrix: np.ndarray
  task_weights: np.ndarray
  cell: int
  states: tuple[int, ...]
  stationary: bool

  @property
  def first_probs(self) -> np.ndarray:
    """P[H_1] = A P[H_0] [H]."""
    return self.silent_probs @ self.transition_matrix

  @property
  def others(self) -> np.ndarray:
    """The states outside H*."""
    return np.setdiff1d(np.arange(len(self.transition_matrix)), self.states)

  @property
  def weighed(self) -> np.ndarray:
    """supp(mu)."""
    return np.flatnonzero(self.task_weights)


class Table(NamedTuple):
  """P[memory, path, X = x] of every memory, path and text.

  Attributes:
    probs: [n, V, ..., V].
    states: [n, L], the path, which may start before the text.
    memories: [n], the number of the memory's configuration.
    values: [n], what cell j* holds.
    reads: [n, L], what the cell holds that each state reads.
    length: T.
  """

  probs: np.ndarray
  states: np.ndarray
  memories: np.ndarray
  values: np.ndarray
  reads: np.ndarray
  length: int

  @property
  def text_probs(self) -> np.ndarray:
    """P[X = x] [V, ..., V]."""
    return self.probs.sum(0)

  def without(self, position: int) -> 'Table':
    """The table of x without one token, whose axis is 1."""
    return self._replace(probs=self.probs.sum(1 + position, keepdims=True))

  def by(self, index: np.ndarray, size: int) -> np.ndarray:
    """The sums of the probabilities by an index [n] below `size`, [size, V, ..., V]."""
    return np.array([self.probs[index == number].sum(0) for number in range(size)])


@functools.cache
def _paths(memory_size: int, num_cells: int, num_states: int, length: int) -> tuple[np.ndarray, np.ndarray]:
  """Every memory [n, N] beside every path [n, L]."""
  memories = list(itertools.product(range(memory_size), repeat=num_cells))
  paths = list(itertools.product(range(num_states), repeat=length))
  return np.repeat(memories, len(paths), axis=0), np.tile(paths, (len(memories), 1))


def table(case: Case, start: np.ndarray, length: int, silent: int = 0, prompt: np.ndarray | None = None) -> Table:
  """The table of texts of a length, of the paths of positive probability.

  Args:
    case: the chain.
    start: the law of the path's first state, [H].
    length: T.
    silent: how many states of the path come before the text, and are not seen.
    prompt: u [M, ..., M, H], what the first state's evidence is multiplied by.
  """
  memory_size, num_states, _ = case.emission_matrix.shape
  cells, states = _paths(memory_size, case.memory_probs.ndim, num_states, silent + length)
  probs = case.memory_probs[tuple(cells.T)] * start[states[:, 0]]
  for now, then in itertools.pairwise(states.T):
    probs = probs * case.transition_matrix[now, then]
  if prompt is not None:
    probs = probs * prompt[(*cells.T, states[:, 0])]
  possible = np.flatnonzero(probs)
  probs, states, cells = probs[possible], states[possible], cells[possible]
  reads = cells[np.arange(len(cells))[:, None], case.cell_index[states]]
  for position in range(silent, silent + length):
    emitted = case.emission_matrix[reads[:, position], states[:, position]]
    probs = probs[..., None] * emitted.reshape(len(probs), *[1] * (probs.ndim - 1), emitted.shape[-1])
  memories = np.ravel_multi_index(tuple(cells.T), case.memory_probs.shape)
  return Table(probs, states, memories, cells[:, case.cell], reads, length)


def normalised(weights: np.ndarray) -> np.ndarray:
  """Laws [size, ...] from weights on the first axis; zeros where they are."""
  total = weights.sum(0)
  return weights / np.where(total == 0, 1, total)


def token_law(of_text: np.ndarray, position: int) -> np.ndarray:
  """G_i = P[X_i | X_-i] [V, V, ..., 1, ..., V] from P[X = x], by its definition; zeros where x_-i is impossible."""
  return np.expand_dims(normalised(np.moveaxis(of_text, position, 0)), 1 + position)


def token_at(array: np.ndarray, position: int, length: int) -> np.ndarray:
  """An array [V, ...] by token as one by text, [..., V, ..., V], V on the axis of one position."""
  shape = [1] * length
  shape[position] = array.shape[0]
  return np.moveaxis(array, 0, -1).reshape(array.shape[1:] + tuple(shape))


def apply(matrix: np.ndarray, laws: np.ndarray) -> np.ndarray:
  """A matrix [..., n] times laws [n, V, ..., V]."""
  return np.tensordot(matrix, laws, axes=(-1, 0))


def left_inverse(columns: np.ndarray) -> np.ndarray:
  """The Moore-Penrose inverse of independent columns, in the numbers of its argument."""
  return algebra.left_inverse(columns) if columns.dtype == object else np.linalg.pinv(columns)


def off_span(columns: np.ndarray) -> np.ndarray:
  """The projection off the span of columns, in the numbers of its argument."""
  if columns.dtype == object:
    return algebra.off_span(columns)
  left, values, _ = np.linalg.svd(columns, full_matrices=False)
  basis = left[:, values > 1e-9 * values.max(initial=0.0)]
  return np.eye(len(columns)) - basis @ basis.T


def in_floats(case: Case) -> Case:
  """The case in float64."""
  names = ('memory_probs', 'silent_probs', 'transition_matrix', 'emission_matrix', 'task_weights')
  return case._replace(**{name: getattr(case, name).astype(np.float64) for name in names})
