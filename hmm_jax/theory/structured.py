"""Random HMMs with exact zeros, so that the paper's assumptions on supports can hold, one generator a theorem.

Each draws a proposal with the structure that its theorem asks for and redraws until the assumption itself, as decided
by `hmm_jax.theory.assumptions`, holds with a smallest singular value of at least `conditioning`. Arrays are float64.
"""

import functools
from typing import Any, NamedTuple

import jax
from jax import Array
import numpy as np

from hmm_jax.hmm import HMM
from hmm_jax.memory_hmm import MemoryHMM
from hmm_jax.theory import assumptions
from hmm_jax.theory.assumptions import Thresholds

_MAX_DRAWS = 1000
# The share of an imitator's emissions that gives it away.
MARKED = 0.3


class StateProblem(NamedTuple):
  """A chain and a task on the posterior of a silent first state.

  Attributes:
    hmm: of the text; its first state follows a silent H_0.
    silent_probs: P[H_0] [H].
    task_weights: mu [C, H].
    drawn: how many proposals were drawn for it.
  """

  hmm: HMM
  silent_probs: np.ndarray
  task_weights: np.ndarray
  drawn: int


class MemoryProblem(NamedTuple):
  """A memory-augmented HMM and a task on the posterior of one cell.

  Attributes:
    hmm: of the text.
    silent_probs: P[H_0] [H], or [M, ..., M, H]; the law of the first state is one step after it.
    task_weights: mu [C, M].
    cell: j*.
    drawn: how many proposals were drawn for it.
  """

  hmm: MemoryHMM
  silent_probs: np.ndarray
  task_weights: np.ndarray
  cell: int
  drawn: int


class Sizes(NamedTuple):
  """Attributes: num_states H, num_tokens V, num_classes C, memory_size M, num_cells N (0 and 0 without a memory)."""

  num_states: int
  num_tokens: int
  num_classes: int
  memory_size: int
  num_cells: int


def generator(key: Array) -> np.random.Generator:
  """A numpy generator that a JAX key decides; drawing by rejection is host work."""
  return np.random.default_rng(np.asarray(jax.random.bits(key, (4,), 'uint32')).tolist())


def for_theorem_3_3(key: Array, sizes: Sizes, thresholds: Thresholds, conditioning: float) -> StateProblem:
  """H <= V, sparse transitions and emissions, W with independent columns: Assumptions 3.1 and 3.2."""

  def propose(rng):
    matrices = (sparse_probs(rng, sizes.num_states, size) for size in (sizes.num_states, sizes.num_tokens))
    hmm = HMM(np.zeros(sizes.num_states), *matrices)
    return _with_silent_state(rng, hmm, rng.standard_normal((sizes.num_classes, sizes.num_states)))

  check = lambda problem: assumptions.non_degeneracy(problem.hmm, thresholds)
  regular = lambda problem: assumptions.regularity(problem.hmm._replace(initial_probs=problem.silent_probs), thresholds)
  return _redrawn(key, propose, check, regular, conditioning)


def for_theorem_3_6(
  key: Array, sizes: Sizes, thresholds: Thresholds, conditioning: float, max_nodes: int
) -> StateProblem:
  """H > V allowed: two states B that move into a small H* alone, and H - |H*| imitators of H*.

  An imitator emits as a random mixture of the states of H* does, but for a mark, the last token, in a share `MARKED` of
  its emissions. So W is dependent where there are more imitators than |H*|, and yet the probability of the mark tells
  the mass on H* from any G: 1 - G[V - 1] / MARKED.
  """
  num_essential = max(2, min(sizes.num_tokens, sizes.num_states) // 2)

  def propose(rng):
    order = rng.permutation(sizes.num_states)
    essential, imitators, starts = order[:num_essential], order[num_essential:], order[-2:]
    transition_matrix = sparse_probs(rng, sizes.num_states, sizes.num_states)
    transition_matrix[starts] = 0
    for start, half in zip(starts, np.array_split(essential, 2)):
      transition_matrix[start, half] = rng.dirichlet(np.full(len(half), 3.0))
    emission_matrix = np.zeros((sizes.num_states, sizes.num_tokens))
    emission_matrix[essential, :-1] = sparse_probs(rng, num_essential, sizes.num_tokens - 1)
    imitated = rng.dirichlet(np.ones(num_essential), len(imitators)) @ emission_matrix[essential]
    emission_matrix[imitators] = (1 - MARKED) * imitated + MARKED * np.eye(sizes.num_tokens)[-1]
    task_weights = np.zeros((sizes.num_classes, sizes.num_states))
    task_weights[:, essential] = rng.standard_normal((sizes.num_classes, num_essential))
    hmm = HMM(np.zeros(sizes.num_states), transition_matrix, emission_matrix)
    return _with_silent_state(rng, hmm, task_weights)

  check = lambda problem: assumptions.relaxed_non_degeneracy(problem.hmm, problem.task_weights, thresholds, max_nodes)
  regular = lambda problem: assumptions.regularity(problem.hmm._replace(initial_probs=problem.silent_probs), thresholds)
  return _redrawn(key, propose, check, regular, conditioning)


def for_theorem_4_3(key: Array, sizes: Sizes, thresholds: Thresholds, conditioning: float) -> MemoryProblem:
  """A state that every memory value shows differently, off the span of the others: Assumptions 4.2 and 3.2.

  State 0 reads the cell of the task and is in H*, alone where M (H - 2) > V - 1 - M. State 1 announces it: it moves to
  state 0 alone and emits a token that no other state does, so that R (4.3) holds every sequence with that token before
  its last position. The others emit from a small set of mixtures.
  """

  def propose(rng):
    hmm = _announced(rng, sizes, num_values=sizes.memory_size)
    task_weights = rng.standard_normal((sizes.num_classes, sizes.memory_size))
    return MemoryProblem(hmm, hmm.initial_probs, task_weights, 0, 0)

  check = lambda problem: assumptions.recoverable_hidden_states(problem.hmm, problem.cell, thresholds)
  regular = lambda problem: assumptions.regularity(problem.hmm, thresholds)
  return _redrawn(key, propose, check, regular, conditioning)


def for_theorem_4_6(
  key: Array, sizes: Sizes, thresholds: Thresholds, conditioning: float, tolerance: float
) -> MemoryProblem:
  """As `for_theorem_4_3`, for two values of the memory alone and from the stationary law: Assumptions 4.5 (C.5), 4.4.

  The columns of state 0 for the values that mu does not weigh lie in the span of those that it does, so that state 0
  fails Assumption 4.2 where M > 2; all others fail it too where M (H - 2) > V - 3.
  """

  def propose(rng):
    hmm = _announced(rng, sizes, num_values=2)
    hmm = hmm._replace(initial_probs=assumptions.stationary_probs(hmm.transition_matrix))
    task_weights = np.zeros((sizes.num_classes, sizes.memory_size))
    task_weights[:, :2] = rng.standard_normal((sizes.num_classes, 2))
    return MemoryProblem(hmm, hmm.initial_probs, task_weights, 0, 0)

  relaxed = assumptions.relaxed_recoverable_hidden_states
  check = lambda problem: relaxed(problem.hmm, problem.cell, problem.task_weights, thresholds)
  stationary = lambda problem: assumptions.stationarity(problem.hmm, thresholds, tolerance)
  return _redrawn(key, propose, check, stationary, conditioning)


def sparse_probs(rng: np.random.Generator, num_rows: int, size: int) -> np.ndarray:
  """Distributions [num_rows, size] with about half of their entries exactly 0, and uneven where positive.

  Positive entries are proportional to 0.02 + u^4 with u uniform, so that one of them often dominates, as in the paper's
  draws, and none is below 0.02 / (1.02 size).
  """
  kept = rng.random((num_rows, size)) < 0.5
  kept[np.arange(num_rows), rng.integers(size, size=num_rows)] = True
  weights = np.where(kept, 0.02 + rng.random((num_rows, size)) ** 4, 0)
  return weights / weights.sum(-1, keepdims=True)


def _with_silent_state(rng, hmm: HMM, task_weights: np.ndarray) -> StateProblem:
  silent_probs = 0.5 / hmm.num_states + 0.5 * rng.dirichlet(np.ones(hmm.num_states))
  return StateProblem(hmm._replace(initial_probs=silent_probs @ hmm.transition_matrix), silent_probs, task_weights, 0)


def _announced(rng, sizes: Sizes, num_values: int) -> MemoryHMM:
  """State 0 shows `num_values` values of cell 0 independently, state 1 announces it, the others speak in mixtures."""
  num_states, num_tokens, memory_size = sizes.num_states, sizes.num_tokens, sizes.memory_size
  transition_matrix = sparse_probs(rng, num_states, num_states)
  transition_matrix[1] = np.eye(num_states)[0]
  cell_index = np.append([0, 0], rng.integers(sizes.num_cells, size=num_states - 2))
  # The announcement is token 0. What the others say has as many dimensions as the rest of the vocabulary leaves.
  num_mixed = num_tokens - 1 - num_values
  mixtures = np.hstack([np.zeros((num_mixed, 1)), sparse_probs(rng, num_mixed, num_tokens - 1)])
  emission_matrix = rng.dirichlet(np.ones(num_mixed), (memory_size, num_states)) @ mixtures
  shown = np.hstack([np.zeros((num_values, 1)), sparse_probs(rng, num_values, num_tokens - 1)])
  emission_matrix[:num_values, 0] = shown
  emission_matrix[num_values:, 0] = rng.dirichlet(np.ones(num_values), memory_size - num_values) @ shown
  emission_matrix[:, 1] = np.eye(num_tokens)[0]
  cell_probs = 0.5 / memory_size + 0.5 * rng.dirichlet(np.ones(memory_size), sizes.num_cells)
  return MemoryHMM(
    memory_probs=functools.reduce(np.multiply.outer, cell_probs),
    initial_probs=0.5 / num_states + 0.5 * rng.dirichlet(np.ones(num_states)),
    transition_matrix=transition_matrix,
    cell_index=cell_index.astype(np.int32),
    emission_matrix=emission_matrix,
  )


def _redrawn(key, propose, check, check_chain, conditioning: float) -> Any:
  rng = generator(key)
  for drawn in range(1, _MAX_DRAWS + 1):
    problem = propose(rng)
    finding = check(problem) if check_chain(problem).holds else None
    if finding and finding.holds and finding.closeness['smallest_singular_value'] >= conditioning:
      return problem._replace(drawn=drawn)
  raise ValueError(f'conditioning is {conditioning}; valid is less: {_MAX_DRAWS} draws at these sizes had none so well')
