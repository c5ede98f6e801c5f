"""Cases that the appendices speak of, at random and by search for the worst, and at the edges of their assumptions.

Probabilities have one small denominator, so that a search is made in float64 and its end decided without rounding.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from hmm_jax.theory.claims.lemmas import Claim, violation
from hmm_jax.theory.claims.tables import Case, in_floats, off_span
from hmm_jax.theory.exact.algebra import stationary_law

ASSUMED = 'as assumed'
_MAX_DRAWS = 2000


class Search(NamedTuple):
  """How a claim is searched.

  Attributes:
    length: T of the texts, all of which are taken.
    num_random: random cases.
    num_steps: of the search from the worst of them.
    num_edge: cases at each edge.
    denominator: of every probability but a stationary law.
    conditioning: the least smallest singular value of the columns of H*, off the span of the others.
  """

  length: int
  num_random: int
  num_steps: int
  num_edge: int
  denominator: int
  conditioning: float


class SampledCases(NamedTuple):
  """Cases of one kind: `assumed`, and by the name of an edge of the assumptions, `edges`."""

  assumed: list[Case]
  edges: dict[str, list[Case]]


class Found(NamedTuple):
  """What the search found of one claim.

  Attributes:
    at_random: the largest violation of random cases.
    adversarial: that of the search from the worst of them.
    exact: that of its last case, in `Fraction`s.
    edges: by name, the largest violation at an edge of the assumptions.
    worst: the last case.
  """

  at_random: float
  adversarial: float
  exact: Fraction
  edges: dict[str, float]
  worst: Case


def drawn_cases(kind: str, rng: np.random.Generator, how: Search) -> SampledCases:
  """Cases of one of the kinds of EDGES, for all claims that assume it."""
  some = lambda edge, count: [draw(kind, edge, rng, how) for _ in range(count)]
  return SampledCases(some(ASSUMED, how.num_random), {edge: some(edge, how.num_edge) for edge in EDGES[kind]})


def search(
  claim: Claim, cases: SampledCases, rng: np.random.Generator, how: Search, guide: Claim | None = None
) -> Found:
  """Violations of the cases, and of a search from the worst.

  Args:
    claim: what is searched.
    cases: of the kind that the claim assumes.
    rng: of the search.
    how: its size.
    guide: another claim whose violation the search follows where that of the first does not change, a label's say.
  """
  of = lambda case: float(violation(claim, in_floats(case), how.length))
  guided = of if guide is None else lambda case: (of(case), float(violation(guide, in_floats(case), how.length)))
  values = [guided(case) for case in cases.assumed]
  start = max(range(len(values)), key=values.__getitem__)
  worst, _ = climbed(guided, cases.assumed[start], rng, how)
  edges = {edge: max(map(of, some)) for edge, some in cases.edges.items()}
  at_random = max(map(of, cases.assumed))
  return Found(at_random, of(worst), Fraction(violation(claim, worst, how.length)), edges, worst)


def climbed(of: Callable[[Case], Any], case: Case, rng: np.random.Generator, how: Search) -> tuple[Case, Any]:
  """The last case of a search that keeps what is larger, and its value."""
  largest = of(case)
  for _ in range(how.num_steps):
    near = nudged(case, rng, how)
    if near is not None and (value := of(near)) > largest:
      case, largest = near, value
  return case, largest


def draw(kind: str, edge: str, rng: np.random.Generator, how: Search) -> Case:
  """A case of one of the kinds of EDGES, at one of its edges or `ASSUMED`, its columns as independent as asked for."""
  for _ in range(_MAX_DRAWS):
    case = _at_edge(_DRAWS[kind](rng, how.denominator, edge), edge, rng, how.denominator)
    regular = edge in _IRREGULAR or (case is not None and is_ergodic(case.transition_matrix))
    if case is not None and regular and smallest_singular_value(case) >= how.conditioning:
      return case
  raise ValueError(f'conditioning is {how.conditioning}; valid is less: no draw of {kind}, {edge}, has it')


def nudged(case: Case, rng: np.random.Generator, how: Search) -> Case | None:
  """The case with some probability moved between positive entries of a row; None where that is not allowed."""
  names = ['memory_probs', 'transition_matrix', 'emission_matrix', 'emission_matrix', 'task_weights']
  name = str(rng.choice(names if case.stationary else [*names, 'silent_probs']))
  array = getattr(case, name).copy()
  rows = (
    array.reshape(-1, array.shape[-1]) if name in ('transition_matrix', 'emission_matrix') else array.reshape(1, -1)
  )
  row = rows[rng.integers(len(rows))]
  positive = np.flatnonzero(row)
  if name == 'task_weights':
    row[rng.choice(positive)] = Fraction(int(rng.choice([-1, 1])) * int(rng.integers(1, 17)), 8)
  elif len(positive) > 1:
    giver, taker = rng.choice(positive, 2, replace=False)
    amount = Fraction(int(rng.integers(1, max(2, int(row[giver] * how.denominator)))), how.denominator)
    if amount >= row[giver]:
      return None
    row[giver], row[taker] = row[giver] - amount, row[taker] + amount
  near = _settled(case._replace(**{name: array}))
  return near if near is not None and smallest_singular_value(near) >= how.conditioning else None


def is_ergodic(transition_matrix: np.ndarray) -> bool:
  """Irreducible and aperiodic: some power of the support is all positive, and then that of (H - 1)^2 + 1 is."""
  size = len(transition_matrix)
  return bool((np.linalg.matrix_power((transition_matrix != 0).astype(float), (size - 1) ** 2 + 1) > 0).all())


def smallest_singular_value(case: Case) -> float:
  """Of the columns of H*, over supp(mu) where there is a memory, off the span of the others; 0 where that is empty."""
  W = np.moveaxis(in_floats(case).emission_matrix, -1, 0)
  values = case.weighed if W.shape[1] > 1 else np.zeros(1, int)
  reads_cell = case.cell_index == case.cell
  chosen = np.isin(np.arange(W.shape[1]), values)[:, None] | ~reads_cell
  others = W[:, chosen & ~np.isin(np.arange(W.shape[2]), case.states)]
  own = W[:, values][:, :, list(case.states)].reshape(len(W), -1)
  if W.shape[1] > 1:
    own = off_span(others) @ own
  return float(np.linalg.svd(own, compute_uv=False)[-1]) if own.shape[1] <= own.shape[0] else 0.0


def _row(rng: np.random.Generator, kept: Any, denominator: int) -> np.ndarray:
  """A distribution that is positive where `kept` is, often uneven."""
  kept = np.asarray(kept, bool)
  counts, size = np.zeros(len(kept), int), int(kept.sum())
  counts[kept] = 1 + rng.multinomial(denominator - size, rng.dirichlet(np.full(size, 0.5)))
  return counts * Fraction(1, denominator)


def _sparse(rng: np.random.Generator, size: int, denominator: int) -> np.ndarray:
  kept = rng.random(size) < 0.6
  kept[rng.integers(size)] = True
  return _row(rng, kept, denominator)


def _rows(rng: np.random.Generator, denominator: int, *shape: int) -> np.ndarray:
  count = int(np.prod(shape[:-1]))
  return np.array([_sparse(rng, shape[-1], denominator) for _ in range(count)]).reshape(shape)


def _weights(rng: np.random.Generator, weighed: list[int], size: int) -> np.ndarray:
  weights = np.full(size, Fraction(0), object)
  for place in weighed:
    weights[place] = Fraction(int(rng.choice([-1, 1])) * int(rng.integers(1, 17)), 8)
  return weights


def _without_memory(rng, denominator: int, emissions: np.ndarray, moves: np.ndarray, states: tuple[int, ...]) -> Case:
  size = len(moves)
  one = np.array([Fraction(1)], object)
  start, cells = _row(rng, np.ones(size), denominator), np.zeros(size, int)
  return Case(one, start, moves, cells, emissions[None], _weights(rng, list(states), size), 0, states, False)


def _independent(rng: np.random.Generator, denominator: int, edge: str) -> Case:
  """Assumption 3.1: three states, three words."""
  emissions, moves = _rows(rng, denominator, 3, 3), _rows(rng, denominator, 3, 3)
  return _without_memory(rng, denominator, emissions, moves, (0, 1, 2))


def _essential(rng: np.random.Generator, denominator: int, edge: str) -> Case:
  """Assumption 3.5: four states, three words; states 0 and 1 are H*, and state 3 moves to them alone."""
  moves = _rows(rng, denominator, 4, 4)
  moves[3] = _row(rng, [1, 1, 0, 0], denominator)
  return _without_memory(rng, denominator, _rows(rng, denominator, 4, 3), moves, (0, 1))


def _memory(rng: np.random.Generator, denominator: int, edge: str, memory_size: int, stationary: bool) -> Case:
  """State 0 shows values 0 and 1, state 1 announces it by word 0, and state 2 may read another cell."""
  num_cells = int(rng.integers(1, 3))
  weighed = [0] if edge == 'one value weighed' else [0, 1]
  emissions = np.full((memory_size, 3, 5), Fraction(0), object)
  emissions[:, [0, 2], 1:] = _rows(rng, denominator, memory_size, 2, 4)
  emissions[2:, 2] = emissions[1, 2]
  emissions[:, 1, 0] = Fraction(1)
  moves = _rows(rng, denominator, 3, 3)
  moves[1] = np.array([1, 0, 0]) * Fraction(1)
  shape = (memory_size,) * num_cells
  memory_probs = _row(rng, np.ones(memory_size**num_cells), max(denominator, 16)).reshape(shape)
  cells, start = np.array([0, 0, num_cells - 1]), _row(rng, np.ones(3), denominator)
  return Case(memory_probs, start, moves, cells, emissions, _weights(rng, weighed, memory_size), 0, (0,), stationary)


def _all_values(rng: np.random.Generator, denominator: int, edge: str) -> Case:
  """Assumption 4.2, and a task on all values of the memory."""
  return _memory(rng, denominator, edge, 2, stationary=False)


def _some_values(rng: np.random.Generator, denominator: int, edge: str) -> Case:
  """Assumptions 4.4 and C.5, and a task on some of the values."""
  return _memory(rng, denominator, edge, 2 if edge == 'every value weighed' else 3, stationary=True)


def _at_edge(case: Case, edge: str, rng: np.random.Generator, denominator: int) -> Case | None:
  """The case moved to an edge of its assumptions; None where its chain has no one stationary law."""
  moves, size = case.transition_matrix.copy(), len(case.transition_matrix)
  match edge:
    case 'P[M] with a zero':
      kept = np.arange(case.memory_probs.size) != rng.integers(case.memory_probs.size)
      case = case._replace(memory_probs=_row(rng, kept, denominator).reshape(case.memory_probs.shape))
    case 'periodic':
      moves = _periodic(rng, size, denominator)
    case 'reducible':
      # Nothing moves to the last state.
      moves = np.array([_row(rng, row[:-1] != 0, denominator) if row[:-1].any() else row[:-1] for row in moves])
      moves = np.hstack([moves, np.full((size, 1), Fraction(0))])
      if not moves.any(1).all():
        return None
    case 'one-hot start':
      case = case._replace(silent_probs=(np.arange(size) == rng.integers(size)) * Fraction(1))
    case 'not stationary':
      case = case._replace(stationary=False)
    case 'H* = H':
      return _everything_recoverable(case, rng, denominator)
  return _settled(case._replace(transition_matrix=moves))


def _periodic(rng: np.random.Generator, size: int, denominator: int) -> np.ndarray:
  """A cycle of three states, 1 before 0; or {0, 1} and {2, 3} by turns."""
  if size == 3:
    return (np.arange(3) == np.array([2, 0, 1])[:, None]) * Fraction(1)
  return np.array([_row(rng, row, denominator) for row in ([0, 0, 1, 1], [0, 0, 1, 1], [1, 1, 0, 0], [1, 1, 0, 0])])


def _everything_recoverable(case: Case, rng: np.random.Generator, denominator: int) -> Case | None:
  """Two states, both in H*."""
  memory_probs = case.memory_probs.sum(tuple(range(1, case.memory_probs.ndim)))
  emissions = _rows(rng, denominator, len(memory_probs), 2, 5)
  start, moves = _row(rng, np.ones(2), denominator), _rows(rng, denominator, 2, 2)
  cells = np.zeros(2, int)
  return _settled(Case(memory_probs, start, moves, cells, emissions, case.task_weights, 0, (0, 1), case.stationary))


def _settled(case: Case) -> Case | None:
  """The case with the stationary law of its chain, if it is to have that; None where there are several."""
  if not case.stationary:
    return case
  law = stationary_law(case.transition_matrix)
  return None if law is None else case._replace(silent_probs=law)


_DRAWS: dict[str, Callable[[np.random.Generator, int, str], Case]] = {
  '3.1': _independent,
  '3.5': _essential,
  '4.2': _all_values,
  '4.4, C.5': _some_values,
}
_IRREGULAR = _OF_CHAINS = ('periodic', 'reducible')
EDGES: dict[str, tuple[str, ...]] = {
  '3.1': (*_OF_CHAINS, 'one-hot start'),
  '3.5': (*_OF_CHAINS, 'one-hot start'),
  '4.2': (*_OF_CHAINS, 'one-hot start', 'P[M] with a zero', 'H* = H'),
  '4.4, C.5': (*_OF_CHAINS, 'P[M] with a zero', 'H* = H', 'every value weighed', 'one value weighed', 'not stationary'),
}
