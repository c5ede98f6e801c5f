"""Random HMMs that satisfy the assumptions of a theorem: two families for each theorem, and a third for two.

`planted` draws the structure that the theorem needs: states with words of their own, imitators that two states never
move to, a state that announces those that show the memory. `unplanted` draws supports at random and keeps what
satisfies the assumptions. `adversarial` changes planted problems of Theorems 4.6 and C.6 so that the paper's beta
fails: the memory likely holds a value of weight 0, which emits the token of the largest key score.

All are redrawn until the assumptions hold by `hmm_jax.theory.assumptions`, with a smallest singular value of
at least `conditioning`.
"""

from collections.abc import Callable
import itertools
from typing import Any, NamedTuple

from jax import Array
import numpy as np

from hmm_jax._support.rational.algebra import is_ergodic
from hmm_jax.distributions.hmm import HMM
from hmm_jax.distributions.memory_hmm import MemoryHMM
from hmm_jax.distributions.processes import stationary_probs
from hmm_jax.theory.problem import (
  composed,
  concentrated,
  full_probs,
  generator,
  MemoryProblem,
  random_weights,
  sparse_probs,
  StateProblem,
)
from hmm_jax.theory.recovery import attention_keys
from hmm_jax.theory.theorems import Criteria, finding, ON_EMISSIONS

# The share of an imitator's emissions that gives it away.
MARKED = 1 / 4
MAX_DRAWS = 20_000
# The share of positive entries in a row of unplanted memory draws: few, so that some sequences determine a state.
_SPARSE = 0.25
# The least q^T Theta e_v of an adversarial problem; above 3 the paper's beta can fail.
_LARGE_KEY = 5


class Sizes(NamedTuple):
  """Sizes of a problem.

  Attributes:
    num_states: H.
    num_tokens: V.
    num_classes: C.
    memory_size: M; 0 without a memory.
    num_cells: N; 0 without a memory.
    num_recoverable: |H*| of the planted family with a memory.
  """

  num_states: int
  num_tokens: int
  num_classes: int
  memory_size: int = 0
  num_cells: int = 0
  num_recoverable: int = 1


def draw(theorem: str, family: str, key: Array, sizes: Sizes, criteria: Criteria, conditioning: float) -> Any:
  """A problem of a family that satisfies what the theorem's proof uses; `sizes` has the cells of C.6.

  Raises:
    ValueError: none of many proposals does, with a smallest singular value of at least `conditioning`.
  """
  rng = generator(key)
  for _ in range(MAX_DRAWS):
    problem = _proposed(theorem, family, rng, sizes, criteria)
    if problem is None:
      continue
    on_emissions = finding(ON_EMISSIONS[theorem], problem, criteria)
    if not on_emissions.holds or on_emissions.closeness['smallest_singular_value'] < conditioning:
      continue
    # The proof of Theorem 4.3 assumes nothing of the chain; others need P[H_0] of full support.
    before_text = problem._replace(hmm=problem.hmm._replace(initial_probs=problem.silent_probs))
    if theorem == '4.3' or finding('3.2', before_text, criteria).holds:
      return problem
  raise ValueError(f'conditioning is {conditioning}; valid is less: none of {MAX_DRAWS} draws at {sizes} reaches it')


def _proposed(theorem: str, family: str, rng: np.random.Generator, sizes: Sizes, criteria: Criteria) -> Any:
  """A candidate of the family, whose assumptions are unchecked; None if an adversarial one has small keys.

  The task of Theorem 4.3 weighs every value of the memory, and its chain is any; others weigh two values.
  """
  if not sizes.num_cells:
    if family == 'unplanted':
      return _unplanted_states(rng, sizes, theorem)
    return _planted_3_3(rng, sizes) if theorem == '3.3' else _planted_3_6(rng, sizes)
  chain, weighed = (lambda propose: propose()), np.arange(sizes.memory_size)
  if theorem != '4.3':
    chain, weighed = _ergodic, np.sort(rng.choice(sizes.memory_size, 2, replace=False))
  match family:
    case 'planted':
      return _planted_memory(rng, sizes, weighed, 0.5, chain)
    case 'unplanted':
      return _unplanted_memory(rng, sizes, weighed, chain)
    case _:
      return _against_beta(_planted_memory(rng, sizes, weighed, 1, chain), criteria)


def _ergodic(propose: Callable[[], np.ndarray]) -> np.ndarray:
  """The first proposed transition matrix that is irreducible and aperiodic."""
  while not is_ergodic(rows := propose()):
    pass
  return rows


def _planted_3_3(rng: np.random.Generator, sizes: Sizes) -> StateProblem:
  """H <= V: half of the emissions of a state are a word assigned to it alone, the others any words.

  `draw` checks that W has full rank, which this makes likely and not certain.
  """
  own = np.eye(sizes.num_tokens)[rng.permutation(sizes.num_tokens)[: sizes.num_states]]
  emission_matrix = (own + sparse_probs(rng, sizes.num_states, sizes.num_tokens, denominator=32)) / 2
  transition_matrix = _ergodic(lambda: sparse_probs(rng, sizes.num_states, sizes.num_states))
  return _state_problem(rng, transition_matrix, emission_matrix, np.arange(sizes.num_states), sizes)


def _planted_3_6(rng: np.random.Generator, sizes: Sizes) -> StateProblem:
  """H > V allowed: two states B that move into a small H* alone, and H - |H*| imitators of H*.

  An imitator emits like a mixture of two states of H*, but for a mark, the last token, in a share `MARKED` of its
  emissions. So W is dependent if there are more imitators than |H*|, and yet the probability of the mark gives the mass
  on H* from any G: 1 - G[V - 1] / MARKED.
  """
  num_states, num_tokens = sizes.num_states, sizes.num_tokens
  num_essential = max(2, min(num_tokens, num_states) // 2)
  order = rng.permutation(num_states)
  essential, imitators, starts = order[:num_essential], order[num_essential:], order[-2:]
  transition_matrix = _moving_into(rng, num_states, dict(zip(starts, np.array_split(essential, 2))))
  emission_matrix = np.zeros((num_states, num_tokens))
  emission_matrix[essential, :-1] = sparse_probs(rng, num_essential, num_tokens - 1, denominator=8)
  for state in imitators:
    imitated = emission_matrix[rng.choice(essential, 2)].sum(0) / 2
    emission_matrix[state] = (1 - MARKED) * imitated + MARKED * np.eye(num_tokens)[-1]
  return _state_problem(rng, transition_matrix, emission_matrix, np.sort(essential), sizes)


def _unplanted_states(rng: np.random.Generator, sizes: Sizes, theorem: str) -> StateProblem:
  """H <= V and all states weighed in Theorem 3.3; in 3.6 H > V is allowed, and the task is on two or three states."""
  transition_matrix = _ergodic(lambda: sparse_probs(rng, sizes.num_states, sizes.num_states))
  emission_matrix, weighed = sparse_probs(rng, sizes.num_states, sizes.num_tokens), np.arange(sizes.num_states)
  if theorem == '3.6':
    weighed = np.sort(rng.choice(sizes.num_states, rng.integers(2, 4), replace=False))
  return _state_problem(rng, transition_matrix, emission_matrix, weighed, sizes)


def _state_problem(
  rng: np.random.Generator,
  transition_matrix: np.ndarray,
  emission_matrix: np.ndarray,
  weighed: np.ndarray,
  sizes: Sizes,
) -> StateProblem:
  silent_probs = full_probs(rng, sizes.num_states)
  hmm = HMM(silent_probs @ transition_matrix, transition_matrix, emission_matrix)
  return StateProblem(hmm, silent_probs, random_weights(rng, sizes.num_classes, weighed, sizes.num_states))


def _moving_into(rng: np.random.Generator, num_states: int, targets: dict[int, np.ndarray]) -> np.ndarray:
  """A sparse transition matrix [H, H] where some states move to all of their targets and to no others."""
  rows = sparse_probs(rng, num_states, num_states)
  for state, reached in targets.items():
    rows[state] = composed(rng, np.isin(np.arange(num_states), reached))
  return rows


def _planted_memory(
  rng: np.random.Generator, sizes: Sizes, weighed: np.ndarray, announced: float, chain: Callable[..., np.ndarray]
) -> MemoryProblem:
  """The first states show the weighed values of cell 0 independently, and the next one announces them.

  Only the announcer emits token 0 and moves to the states that show, so that R (4.3) has sequences with token 0 before
  their end. All others emit from mixtures that leave room for what is shown. Values of weight 0 are shown in any words,
  off the span of the weighed ones; a share `announced` of these values is announced too, and others may emit token 0.
  """
  num_states, num_tokens, num_shown = sizes.num_states, sizes.num_tokens, sizes.num_recoverable
  shown, announcer = np.arange(num_shown), num_shown
  transition_matrix = chain(lambda: _moving_into(rng, num_states, {announcer: shown}))
  reads = np.append(np.zeros(num_shown + 1, int), rng.integers(sizes.num_cells, size=num_states - num_shown - 1))
  after = lambda rows: np.pad(rows, ((0, 0), (1, 0)))
  num_mixed = num_tokens - 1 - len(weighed) * num_shown
  mixtures = after(sparse_probs(rng, num_mixed, num_tokens - 1, denominator=8))
  emission_matrix = np.array(
    [sparse_probs(rng, num_states, num_mixed, denominator=8) @ mixtures for _ in range(sizes.memory_size)]
  )
  for value in np.setdiff1d(np.arange(sizes.memory_size), weighed):
    any_words = sparse_probs(rng, num_states, num_tokens)
    if rng.random() < announced:
      any_words = after(sparse_probs(rng, num_states, num_tokens - 1))
      any_words[announcer] = np.eye(num_tokens)[0]
    emission_matrix[value, reads == 0] = any_words[reads == 0]
  for value in weighed:
    emission_matrix[value, shown] = after(sparse_probs(rng, num_shown, num_tokens - 1))
    emission_matrix[value, announcer] = np.eye(num_tokens)[0]
  return _memory_problem(rng, transition_matrix, reads, emission_matrix, weighed, sizes)


def _unplanted_memory(
  rng: np.random.Generator, sizes: Sizes, weighed: np.ndarray, chain: Callable[..., np.ndarray]
) -> MemoryProblem:
  """Sparse supports, also of the `chain`; some states emit independently of their cell, as articles do."""
  reads = rng.permutation(np.append(0, rng.integers(sizes.num_cells, size=sizes.num_states - 1)))
  emission_matrix = np.array(
    [sparse_probs(rng, sizes.num_states, sizes.num_tokens, _SPARSE) for _ in range(sizes.memory_size)]
  )
  indifferent = rng.random(sizes.num_states) < 0.5
  emission_matrix[:, indifferent] = emission_matrix[0, indifferent]
  transition_matrix = chain(lambda: sparse_probs(rng, sizes.num_states, sizes.num_states, _SPARSE))
  return _memory_problem(rng, transition_matrix, reads, emission_matrix, weighed, sizes)


def _memory_problem(
  rng: np.random.Generator,
  transition_matrix: np.ndarray,
  reads: np.ndarray,
  emission_matrix: np.ndarray,
  weighed: np.ndarray,
  sizes: Sizes,
) -> MemoryProblem:
  """A problem with dependent cells, at times without full support, and a stationary start in half of the draws."""
  shape = (sizes.memory_size,) * sizes.num_cells
  memory_probs = sparse_probs(rng, 1, sizes.memory_size**sizes.num_cells, density=0.75)[0].reshape(shape)
  silent_probs = full_probs(rng, sizes.num_states)
  if rng.random() < 0.5:
    # Rounding would leave states that a reducible chain never visits a small probability.
    silent_probs = np.round(stationary_probs(transition_matrix), 14)
  first_probs = silent_probs @ transition_matrix
  hmm = MemoryHMM(memory_probs, first_probs, transition_matrix, reads.astype(np.int32), emission_matrix)
  task_weights = random_weights(rng, sizes.num_classes, weighed, sizes.memory_size)
  return MemoryProblem(hmm, silent_probs, task_weights, 0)


def _against_beta(problem: MemoryProblem, criteria: Criteria) -> MemoryProblem | None:
  """The problem with a likely value of weight 0 that emits the token of the largest key score; None if that is small.

  Assumption 4.5 (C.5) is unaffected: it is about weighed values and other cells.
  """
  on_emissions = finding('4.5', problem, criteria)
  if not on_emissions.holds:
    return None
  states = on_emissions.witness['recoverable_states']
  key_scores = attention_keys(problem.hmm, problem.cell, on_emissions)[states].sum(0)
  if key_scores.max() < _LARGE_KEY:
    return None
  hmm: Any = problem.hmm
  token = int(key_scores.argmax())
  unweighed = ~np.isin(np.arange(hmm.memory_size), on_emissions.witness['memory_values'])
  emission_matrix = hmm.emission_matrix.copy()
  for value, state in itertools.product(np.flatnonzero(unweighed), states):
    emission_matrix[value, state] = concentrated(hmm.emission_matrix[value, state] > 0, token)
  held = hmm.memory_probs * unweighed.reshape((-1,) + (1,) * (hmm.num_cells - 1))
  memory_probs = concentrated(hmm.memory_probs.reshape(-1) > 0, int(held.argmax())).reshape(held.shape)
  return problem._replace(hmm=hmm._replace(emission_matrix=emission_matrix, memory_probs=memory_probs))
