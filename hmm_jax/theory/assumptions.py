"""The paper's assumptions, each decided with a witness and its distance from the other answer.

Everything here is float64 linear algebra and graph search on the host. The functions write A = transition_matrix.T and
W = emission_matrix.T, the paper's column-stochastic matrices, and from there on follow the paper.

The paper's random draw is sparse in its transitions: a mixture of H permutations leaves 32 to 40% of them exactly 0
(the mean of 200 draws, from H = 4 to H = 30). Its first law is dense, and so are its emissions but for the 5% of them
that lie below 1e-38 and are 0 in float32. Probabilities above a support threshold epsilon count as positive, since the
smallest of a draw are negligible; a rank threshold does so for singular values.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
import scipy.linalg
import scipy.sparse.csgraph

from hmm_jax._support.float64 import float64
from hmm_jax.distributions.hmm import HMM
from hmm_jax.distributions.memory_hmm import MemoryHMM
from hmm_jax.distributions.processes import stationary_probs


class Thresholds(NamedTuple):
  """Sizes up to which numbers count as zero.

  Attributes:
    support: epsilon; probabilities up to this are taken for 0.
    rank: singular values up to this share of the largest are taken for 0.

  >>> Thresholds()
  Thresholds(support=0.0, rank=1e-09)
  """

  support: float = 0.0
  rank: float = 1e-9


class Finding(NamedTuple):
  """Result for one assumption.

  Attributes:
    statement: its number in the paper.
    holds: whether it holds at these thresholds.
    reason: one sentence that says why.
    witness: evidence, by name: the states of the sets that the assumption says exist, or a dependence.
    closeness: distance from the other answer, by name: `smallest_singular_value`, `condition_number`,
      `smallest_positive_prob`.
    thresholds: what was taken for zero.

  >>> from hmm_jax.theory.counterexamples import head_fails_prompt_succeeds
  >>> finding = non_degeneracy(head_fails_prompt_succeeds().hmm, Thresholds(support=0.0, rank=1e-9))
  >>> finding.statement, finding.holds, finding.reason
  ('Assumption 3.1', False, 'the 3 columns of W in 2 dimensions are dependent')
  """

  statement: str
  holds: bool
  reason: str
  witness: dict[str, Any]
  closeness: dict[str, float]
  thresholds: Thresholds


class AssumptionError(ValueError):
  """An assumption of a construction's theorem fails. Attribute: finding.

  >>> from hmm_jax.theory.counterexamples import head_fails_prompt_succeeds
  >>> finding = non_degeneracy(head_fails_prompt_succeeds().hmm, Thresholds(support=0.0, rank=1e-9))
  >>> str(AssumptionError(finding))
  'Assumption 3.1 fails: the 3 columns of W in 2 dimensions are dependent'
  """

  def __init__(self, finding: Finding):
    super().__init__(f'{finding.statement} fails: {finding.reason}')
    self.finding = finding


def contrasts(task_weights: ArrayLike) -> np.ndarray:
  """mu relative to the last class, [C, S] float64: argmax_c mu_c @ p is that of mu_c - mu_C, whatever p.

  With two classes the first row is the paper's mu, and class 0 is its F* = 1, ties included (3.1).

  Raises:
    ValueError: `task_weights` is no matrix of at least two finite rows, or its rows are all equal.
  """
  weights = float64(task_weights)
  if weights.ndim != 2 or weights.shape[0] < 2 or not np.isfinite(weights).all():
    raise ValueError(f'task_weights has shape {weights.shape}; valid is [C, S] with C at least 2, all entries finite')
  relative = weights - weights[-1]
  if not relative.any():
    raise ValueError('task_weights has equal rows and gives every input the same label; valid are rows that differ')
  return relative


def weighted_states(task_weights: ArrayLike) -> np.ndarray:
  """supp(mu), ascending: the states, or memory values, that some class weighs differently from the last one."""
  return np.flatnonzero(contrasts(task_weights).any(0))


def non_degeneracy(hmm: HMM, thresholds: Thresholds) -> Finding:
  """Assumption 3.1: the columns of W [V, H] are linearly independent.

  The witness of a failure is `dependence` [H], a unit vector c with W c = 0: two posteriors that differ by a multiple
  of c predict the same token.

  >>> from hmm_jax.theory.counterexamples import head_fails_prompt_succeeds
  >>> hmm = head_fails_prompt_succeeds().hmm  # three states, two tokens
  >>> non_degeneracy(hmm, Thresholds(support=0.0, rank=1e-9)).holds
  False
  """
  W = float64(hmm.emission_matrix).T
  independent, direction, closeness = _spectrum(W, thresholds)
  adjective = 'independent' if independent else 'dependent'
  reason = f'the {W.shape[1]} columns of W in {W.shape[0]} dimensions are {adjective}'
  witness = {} if independent else {'dependence': direction}
  return Finding('Assumption 3.1', independent, reason, witness, closeness, thresholds)


def regularity(chain: HMM | MemoryHMM, thresholds: Thresholds) -> Finding:
  """Assumption 3.2: the hidden chain is ergodic (irreducible and aperiodic), and its first law has full support.

  The first law is `initial_probs`; pass P[H_0] there if the label is of a silent H_0. A law that depends on the memory
  must have full support for every memory of positive probability. Witnesses:
  `communicating_classes`, the strongly connected parts of the support graph of A; `period`, of the first of them;
  `states_without_start`.

  >>> from hmm_jax.theory.counterexamples import head_fails_prompt_succeeds
  >>> regularity(head_fails_prompt_succeeds().hmm, Thresholds(support=0.0, rank=1e-9)).reason
  'the chain is irreducible and aperiodic, and every state can be first'
  """
  A = float64(chain.transition_matrix).T
  edges = A.T > thresholds.support
  count, part = scipy.sparse.csgraph.connected_components(edges, directed=True, connection='strong')
  classes = [np.flatnonzero(part == index) for index in range(count)]
  period = _period(edges, classes[0])
  without_start = np.flatnonzero((_possible_laws(chain, chain.initial_probs) <= thresholds.support).any(0))
  reason = 'the chain is irreducible and aperiodic, and every state can be first'
  if count > 1:
    reason = 'the chain is reducible'
  elif period != 1:
    reason = 'the chain is periodic'
  elif without_start.size:
    reason = 'a state cannot be first'
  holds = count == 1 and period == 1 and not without_start.size
  witness = {'communicating_classes': classes, 'period': period, 'states_without_start': without_start}
  closeness = {'smallest_positive_prob': _smallest_positive(thresholds, A, float64(chain.initial_probs))}
  return Finding('Assumption 3.2', holds, reason, witness, closeness, thresholds)


def relaxed_non_degeneracy(hmm: HMM, task_weights: ArrayLike, thresholds: Thresholds, max_nodes: int) -> Finding:
  """Assumption 3.5: some H* covers supp(mu), is all that some B reaches in one step, and has independent columns of W.

  That is supp(mu) in H* = union of supp(A[:, h]) over h in B, and {W[:, h]} for h in H* independent. The search
  branches on which column of A covers the next state of supp(mu). The smallest singular value of W[:, H*] only falls as
  H* grows, so branches no better than the best cover so far are cut safely: the answer is the cover with the largest
  value. It is exact if the search ends within `max_nodes` (H up to about 20 always does). Otherwise `exhaustive` is
  False: a cover that was found is valid, but a failure may be wrong.

  Witnesses: `essential_states`, H*; `prompt_states`, the largest B for it; `exhaustive`; `dependence` [|H*|] where the
  best cover is dependent. Without any cover, `unreachable_states` of supp(mu).

  >>> from hmm_jax.theory.counterexamples import head_fails_prompt_succeeds
  >>> task, thresholds = head_fails_prompt_succeeds(), Thresholds(support=0.0, rank=1e-9)
  >>> finding = relaxed_non_degeneracy(task.hmm, task.task_weights, thresholds, max_nodes=1000)
  >>> finding.holds, finding.witness['essential_states'].tolist()  # praise and complaint
  (True, [0, 1])
  """
  A, W = float64(hmm.transition_matrix).T, float64(hmm.emission_matrix).T
  statement, targets = 'Assumption 3.5', weighted_states(task_weights)
  supports = [frozenset(np.flatnonzero(column > thresholds.support).tolist()) for column in A.T]
  reached = frozenset().union(*supports)
  unreachable = [int(state) for state in targets if state not in reached]
  if unreachable:
    reason = 'no state moves to some state of supp(mu)'
    return Finding(statement, False, reason, {'unreachable_states': np.array(unreachable)}, {}, thresholds)
  cover, exhaustive = _best_cover(W, supports, frozenset(targets.tolist()), max_nodes)
  states = np.array(sorted(cover))
  starts = np.array([h for h, support in enumerate(supports) if support <= cover])
  independent, direction, closeness = _spectrum(W[:, states], thresholds)
  witness = {'essential_states': states, 'prompt_states': starts, 'exhaustive': exhaustive}
  closeness |= {'smallest_positive_prob': _smallest_positive(thresholds, A[:, starts])}
  reason = 'H* covers supp(mu), B moves to H* alone, and the columns of W in H* are independent'
  if not independent:
    witness['dependence'] = direction
    reason = 'the best H* that covers supp(mu) has dependent columns of W'
  return Finding(statement, independent, reason, witness, closeness, thresholds)


def recoverable_hidden_states(hmm: MemoryHMM, cell: int, thresholds: Thresholds) -> Finding:
  """Assumption 4.2: states H* = {j*} x S* whose columns of W, over all memory values, are independent of all others.

  {W[:, (m, h)]} over m and h in H* is independent, and its span meets that of m and h outside H* in 0 alone. States are
  decided one at a time: if each of two satisfies this against all other columns, both together do. So the largest H* is
  found exactly. Witnesses: `recoverable_states`, H*; `memory_values`, those of its columns; `distances`, for every
  state that reads the cell the smallest singular value of its columns off the span of the others, of which
  `smallest_singular_value` is the least in H*.

  >>> from hmm_jax.theory.counterexamples import head_fails_attention_succeeds
  >>> task = head_fails_attention_succeeds()
  >>> finding = recoverable_hidden_states(task.hmm, 0, Thresholds(support=0.0, rank=1e-9))
  >>> finding.witness['recoverable_states'].tolist()  # the noun
  [1]
  """
  return _recoverable('Assumption 4.2', hmm, cell, np.arange(hmm.memory_size), thresholds)


def relaxed_recoverable_hidden_states(
  hmm: MemoryHMM, cell: int, task_weights: ArrayLike, thresholds: Thresholds
) -> Finding:
  """Assumption 4.5, and with several cells C.5 (D.5 in the later text): 4.2 for the memory values in supp(mu) alone.

  The columns of H* over m in M* = supp(mu) are independent, and their span meets in 0 alone that of M* with the other
  states that read the cell, and of every m with the states that read another one. Witnesses as in
  `recoverable_hidden_states`.

  >>> from hmm_jax.theory.counterexamples import head_fails_attention_succeeds
  >>> task, thresholds = head_fails_attention_succeeds(), Thresholds(support=0.0, rank=1e-9)
  >>> relaxed_recoverable_hidden_states(task.hmm, 0, task.task_weights, thresholds).statement
  'Assumption 4.5'
  """
  statement = 'Assumption 4.5' if hmm.num_cells == 1 else 'Assumption C.5'
  return _recoverable(statement, hmm, cell, weighted_states(task_weights), thresholds)


def stationarity(hmm: MemoryHMM, thresholds: Thresholds, tolerance: float) -> Finding:
  """Assumption 4.4: Assumption 3.2, and the law of the first state is the stationary one, P[H_0] = A P[H_0].

  If the first state depends on the memory, this must hold for every memory of positive probability. `tolerance` is the
  largest absolute error that counts as equal. Witness: `stationary_probs` [H]; closeness also `stationarity_error`.

  >>> from hmm_jax.theory.counterexamples import head_fails_attention_succeeds
  >>> hmm = head_fails_attention_succeeds().hmm
  >>> stationarity(hmm, Thresholds(support=0.0, rank=1e-9), tolerance=1e-9).holds
  True
  """
  regular = regularity(hmm, thresholds)
  start = silent_start(hmm, hmm.initial_probs, thresholds, tolerance)
  reason = 'P[H_0] is stationary' if start.holds else 'P[H_0] is not stationary'
  if not regular.holds:
    reason = regular.reason
  witness = regular.witness | {'stationary_probs': stationary_probs(hmm.transition_matrix)}
  closeness = regular.closeness | {'stationarity_error': start.closeness['start_error']}
  return Finding('Assumption 4.4', regular.holds and start.holds, reason, witness, closeness, thresholds)


def silent_start(hmm: MemoryHMM, silent_probs: ArrayLike, thresholds: Thresholds, tolerance: float) -> Finding:
  """The condition of Theorem 4.6 on the start, in place of Assumption 4.4: P[H_1] = A P[H_0], positive where P[H_0] is.

  This must hold for every memory of positive probability. Assumption 4.4 with P[H_0] = P[H_1] is a case of it.
  `tolerance` is the largest absolute error that counts as equal. Closeness: `start_error`, `smallest_positive_prob` of
  P[H_1].
  """
  silent, first = np.broadcast_arrays(*(_possible_laws(hmm, law) for law in (silent_probs, hmm.initial_probs)))
  error = float(np.abs(silent @ float64(hmm.transition_matrix) - first).max())
  is_next = error <= tolerance
  is_covered = not ((silent > thresholds.support) & (first <= thresholds.support)).any()
  reason = 'P[H_1] = A P[H_0], and is positive where P[H_0] is'
  if not is_next:
    reason = 'P[H_1] differs from A P[H_0]'
  elif not is_covered:
    reason = 'a state has P[H_0] > 0 and P[H_1] = 0'
  closeness = {'start_error': error, 'smallest_positive_prob': _smallest_positive(thresholds, first)}
  return Finding('Assumption 4.4 relaxed', is_next and is_covered, reason, {}, closeness, thresholds)


def _spectrum(columns: np.ndarray, thresholds: Thresholds) -> tuple[bool, np.ndarray, dict[str, float]]:
  """Independence of the columns, the direction of their smallest singular value, and their `closeness`."""
  _, values, rows = np.linalg.svd(columns, full_matrices=True)
  smallest = float(values[-1]) if columns.shape[1] <= columns.shape[0] else 0.0
  condition = float(values[0]) / smallest if smallest > 0 else math.inf
  closeness = {'smallest_singular_value': smallest, 'condition_number': condition}
  return smallest > thresholds.rank * float(values[0]), rows[-1], closeness


def _best_cover(
  W: np.ndarray, supports: list[frozenset[int]], targets: frozenset[int], max_nodes: int
) -> tuple[frozenset[int], bool]:
  """The union of supports over `targets` with the largest smallest singular value, and whether the search ended."""
  best, best_value = frozenset().union(*supports), -1.0
  seen: set[frozenset] = set()
  stack: list[frozenset] = [frozenset()]
  while stack and len(seen) < max_nodes:
    covered = stack.pop()
    if covered in seen:
      continue
    seen.add(covered)
    value = _smallest_singular_value(W[:, sorted(covered)])
    if value <= best_value:
      continue
    missing = targets - covered
    if not missing:
      best, best_value = covered, value
      continue
    ways = {state: {support for support in supports if state in support} for state in missing}
    fewest = min(ways.values(), key=len)
    stack += sorted((covered | support for support in fewest), key=len, reverse=True)
  return best, not stack


def _smallest_singular_value(columns: np.ndarray) -> float:
  """0 for more columns than dimensions, infinite for none."""
  if columns.shape[1] > columns.shape[0]:
    return 0.0
  return float(np.linalg.svd(columns, compute_uv=False)[-1]) if columns.shape[1] else math.inf


def _recoverable(
  statement: str, hmm: MemoryHMM, cell: int, memory_values: np.ndarray, thresholds: Thresholds
) -> Finding:
  """The finding of 4.2 or a relaxation: H* and its distances, the columns of H* being those of `memory_values`."""
  if not 0 <= cell < hmm.num_cells:
    raise ValueError(f'cell is {cell}; valid is an integer from 0 to {hmm.num_cells - 1}')
  W = np.moveaxis(float64(hmm.emission_matrix), -1, 0)
  distances, states = {}, []
  for state in np.flatnonzero(np.asarray(hmm.cell_index) == cell).tolist():
    own = W[:, memory_values, state]
    basis = scipy.linalg.orth(columns_outside(hmm, cell, [state], memory_values), thresholds.rank)
    distances[state] = _smallest_singular_value(own - basis @ (basis.T @ own))
    if distances[state] > thresholds.rank * np.linalg.svd(own, compute_uv=False)[0]:
      states.append(state)
  witness = {'recoverable_states': np.array(states, int), 'memory_values': memory_values, 'distances': distances}
  reason, nearest = (
    'the columns of W in H* are independent of all others',
    min((distances[state] for state in states), default=0.0),
  )
  if not states:
    reason = f'no state that reads cell {cell} has columns of W independent of all others'
    nearest = max(distances.values(), default=0.0)
  return Finding(statement, bool(states), reason, witness, {'smallest_singular_value': nearest}, thresholds)


def columns_outside(hmm: MemoryHMM, cell: int, states: ArrayLike, memory_values: ArrayLike) -> np.ndarray:
  """The columns of W, [V, n], that span the paper's V-bar in Assumptions 4.2, 4.5 and C.5.

  Those of (m, h) with m in `memory_values` for h outside `states` that reads the cell, and all m for h that reads
  another.
  """
  W = np.moveaxis(float64(hmm.emission_matrix), -1, 0)
  reads_cell = np.asarray(hmm.cell_index) == cell
  # np.isin is many times slower on so few entries.
  has_value, is_outside = np.zeros(hmm.memory_size, bool), np.ones(hmm.num_states, bool)
  has_value[np.asarray(memory_values)], is_outside[np.asarray(states)] = True, False
  return W[:, (has_value[:, None] | ~reads_cell) & is_outside]


def _possible_laws(chain: HMM | MemoryHMM, start: ArrayLike) -> np.ndarray:
  """The laws [n, H] of a state, one, or one for each memory that has probability."""
  laws = np.atleast_2d(float64(start))
  if isinstance(chain, MemoryHMM) and np.ndim(start) > 1:
    laws = laws[float64(chain.memory_probs) > 0]
  return laws


def _period(edges: np.ndarray, states: np.ndarray) -> int:
  """The greatest common divisor of the lengths of cycles within a strongly connected part; 0 without a cycle."""
  inside = edges[np.ix_(states, states)]
  levels = scipy.sparse.csgraph.shortest_path(inside, unweighted=True, indices=0)
  starts, ends = np.nonzero(inside)
  return math.gcd(*(levels[starts] + 1 - levels[ends]).astype(int).tolist())


def _smallest_positive(thresholds: Thresholds, *arrays: np.ndarray) -> float:
  return min(float(array[array > thresholds.support].min(initial=math.inf)) for array in arrays)
