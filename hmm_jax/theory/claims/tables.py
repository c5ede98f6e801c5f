"""Tables of P[memory, path, text], from the definition alone, on which statements about short texts are checked.

They hold floats or `Fraction`s: the worst case of a statement is searched in float64 and decided exactly. A table has
one axis of n pairs (memory, path), and one of V for each token of the text.
Positions count the tokens of the text from 0; the state at position -1 is the one before the text.
"""

import itertools
from typing import NamedTuple

import numpy as np

from hmm_jax.theory.exact.algebra import split_columns


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
    states: H*, of the case's assumption.
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

  def columns(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The columns of W of these memory values and H*, [V, n], and those that span the paper's V-bar."""
    return split_columns(self.emission_matrix, self.cell_index == self.cell, values, self.states)


class Table(NamedTuple):
  """P[memory, path, X = x] of every memory, path and text.

  Attributes:
    case: the chain.
    probs: [n, V, ..., V].
    states: [L, n], the path, which may start before the text.
    reads: [L, n], the value that each state reads.
    values: [n], what cell j* holds.
    memories: [n], the number of the memory's configuration.
  """

  case: Case
  probs: np.ndarray
  states: np.ndarray
  reads: np.ndarray
  values: np.ndarray
  memories: np.ndarray

  @property
  def length(self) -> int:
    """T."""
    return self.probs.ndim - 1

  @property
  def text_probs(self) -> np.ndarray:
    """P[X = x] [V, ..., V]."""
    return self.probs.sum(0)

  @property
  def possible(self) -> np.ndarray:
    """The texts of positive probability, [V, ..., V]."""
    return self.text_probs != 0

  def without(self, position: int) -> 'Table':
    """The table of x without one token, whose axis has size 1."""
    return self._replace(probs=self.probs.sum(1 + position, keepdims=True))

  @property
  def left_out(self) -> 'list[Table]':
    """The tables without each of the tokens."""
    return [*map(self.without, range(self.length))]

  def by(self, index: np.ndarray, size: int) -> np.ndarray:
    """The sums of the probabilities by an index [n] below `size`, [size, V, ..., V]."""
    return np.array([self.probs[index == number].sum(0) for number in range(size)])

  def by_state(self, position: int, index: np.ndarray | int = 0, size: int = 1) -> np.ndarray:
    """The sums by an index [n] below `size` and the state at a position, [size H, V, ..., V]."""
    num_states = len(self.case.silent_probs)
    return self.by(index * num_states + self.states[position - self.length], size * num_states)


def table(
  case: Case, length: int, silent: int = 0, prompt: np.ndarray | None = None, start: np.ndarray | None = None
) -> Table:
  """The table of texts of a length, of the paths of positive probability.

  Args:
    case: the chain.
    length: T.
    silent: number of states of the path before the text, which emit nothing.
    prompt: u [M, ..., M, H], a factor of the first state's evidence.
    start: the law of the path's first state, [H]; P[H_1] if None.
  """
  num_cells, path_length = case.memory_probs.ndim, silent + length
  shape = case.memory_probs.shape + (len(case.silent_probs),) * path_length
  paths = np.indices(shape).reshape(len(shape), -1)
  probs = case.memory_probs[*paths[:num_cells]] * (case.first_probs if start is None else start)[paths[num_cells]]
  for now, then in itertools.pairwise(paths[num_cells:]):
    probs = probs * case.transition_matrix[now, then]
  if prompt is not None:
    probs = probs * prompt[*paths[: num_cells + 1]]
  possible = np.flatnonzero(probs)
  probs, cells, states = probs[possible], paths[:num_cells, possible], paths[num_cells:, possible]
  reads = np.take_along_axis(cells, case.cell_index[states], axis=0)
  for read, state in zip(reads[silent:], states[silent:]):
    emitted = case.emission_matrix[read, state]
    probs = probs[..., None] * np.expand_dims(emitted, tuple(range(1, probs.ndim)))
  memories = np.ravel_multi_index(tuple(cells), case.memory_probs.shape)
  return Table(case, probs, states, reads, cells[case.cell], memories)


def silent_table(case: Case, length: int, silent: int = 1) -> Table:
  """The table of texts after `silent` states that emit nothing, the first being H_0."""
  return table(case, length, silent, start=case.silent_probs)


def normalised(weights: np.ndarray) -> np.ndarray:
  """Laws [size, ...] from weights on the first axis; zeros where all weights are."""
  return over(weights, weights.sum(0))


def over(numerators: np.ndarray | int, denominators: np.ndarray) -> np.ndarray:
  """Quotients; 0 where the denominator is."""
  return numerators / np.where(denominators == 0, 1, denominators) * (denominators != 0)


def token_law(of: Table, position: int) -> np.ndarray:
  """G_i = P[X_i | X_-i] [V, V, ..., 1, ..., V], by its definition; zeros where x_-i is impossible."""
  return np.expand_dims(normalised(np.moveaxis(of.text_probs, position, 0)), 1 + position)


def apply(matrix: np.ndarray, laws: np.ndarray) -> np.ndarray:
  """A matrix [..., n] times laws [n, V, ..., V]."""
  return np.tensordot(matrix, laws, axes=(-1, 0))


def in_floats(case: Case) -> Case:
  """The case in float64."""
  names = ('memory_probs', 'silent_probs', 'transition_matrix', 'emission_matrix', 'task_weights')
  return case._replace(**{name: getattr(case, name).astype(np.float64) for name in names})
