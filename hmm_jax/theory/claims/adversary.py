"""Cases for the claims of the appendices: random, the worst that a search finds, and at the edges of the assumptions.

Probabilities have one small denominator, so that a search runs in float64 and its last case is decided exactly.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from hmm_jax.theory.claims.lemmas import Claim, violation
from hmm_jax.theory.claims.tables import Case, in_floats
from hmm_jax.theory.exact.algebra import is_ergodic, off_span, stationary_law
from hmm_jax.theory.exact.problem import composition

ASSUMED = 'as assumed'
_MAX_DRAWS = 2000


class Search(NamedTuple):
  """Sizes of the search for the worst case of a claim.

  Attributes:
    length: T; all texts of that length are checked.
    num_random: random cases.
    num_steps: steps of the search from the worst of them.
    num_edge: cases at each edge.
    denominator: of every probability but a stationary law.
    conditioning: lower bound on the smallest singular value of the columns of H* off the span of the others.
  """

  length: int
  num_random: int
  num_steps: int
  num_edge: int
  denominator: int
  conditioning: float


class SampledCases(NamedTuple):
  """Cases of one kind: `assumed` inside its assumptions, `edges` at each of their edges, by name."""

  assumed: list[Case]
  edges: dict[str, list[Case]]


class Found(NamedTuple):
  """Result of the search for one claim.

  Attributes:
    at_random: the largest violation of random cases.
    adversarial: the largest of the search from the worst of them.
    exact: the violation of its last case, in `Fraction`s.
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
    claim: the claim to violate.
    cases: of the kind that the claim assumes.
    rng: of the search.
    how: its size.
    guide: a claim whose violation breaks the search's ties, where that of `claim` is piecewise constant (a label).
  """
  of = lambda case: float(violation(claim, in_floats(case), how.length))
  guided = of if guide is None else lambda case: (of(case), float(violation(guide, in_floats(case), how.length)))
  worst, _ = climbed(guided, max(cases.assumed, key=guided), rng, how)
  edges = {edge: max(map(of, some)) for edge, some in cases.edges.items()}
  at_random = max(map(of, cases.assumed))
  return Found(at_random, of(worst), Fraction(violation(claim, worst, how.length)), edges, worst)


def climbed(of: Callable[[Case], Any], case: Case, rng: np.random.Generator, how: Search) -> tuple[Case, Any]:
  """The last case of a hill climb on `of`, and its value."""
  largest = of(case)
  for _ in range(how.num_steps):
    near = nudged(case, rng, how)
    if near is not None and (value := of(near)) > largest:
      case, largest = near, value
  return case, largest


def draw(kind: str, edge: str, rng: np.random.Generator, how: Search) -> Case:
  """A case of a kind of EDGES, at one of its edges or `ASSUMED`, with columns of at least `how.conditioning`."""
  for _ in range(_MAX_DRAWS):
    case = _at_edge(_sampled(kind, edge, rng, how.denominator), edge, rng, how.denominator)
    regular = edge in _IRREGULAR or (case is not None and is_ergodic(case.transition_matrix))
    if case is not None and regular and smallest_singular_value(case) >= how.conditioning:
      return case
  raise ValueError(f'conditioning is {how.conditioning}; valid is less: no draw of {kind}, {edge}, reaches it')


def nudged(case: Case, rng: np.random.Generator, how: Search) -> Case | None:
  """The case with some probability moved between positive entries of a row; None where that is not allowed."""
  names = ['memory_probs', 'transition_matrix', 'emission_matrix', 'emission_matrix', 'task_weights']
  name = str(rng.choice(names if case.stationary else [*names, 'silent_probs']))
  array = getattr(case, name).copy()
  # The law of a memory is one row, whatever its shape.
  rows = array.reshape(-1, array.shape[-1] if name.endswith('matrix') else array.size)
  row = rows[rng.integers(len(rows))]
  positive = np.flatnonzero(row)
  if name == 'task_weights':
    row[rng.choice(positive)] = _weight(rng)
  elif len(positive) > 1:
    giver, taker = rng.choice(positive, 2, replace=False)
    amount = Fraction(int(rng.integers(1, max(2, int(row[giver] * how.denominator)))), how.denominator)
    if amount >= row[giver]:
      return None
    row[giver], row[taker] = row[giver] - amount, row[taker] + amount
  near = _settled(case._replace(**{name: array}))
  return near if near is not None and smallest_singular_value(near) >= how.conditioning else None


def smallest_singular_value(case: Case) -> float:
  """The least singular value of the columns of H* off the span of the others; 0 where that is empty.

  Where there is a memory the columns are those over supp(mu).
  """
  has_memory = len(case.emission_matrix) > 1
  own, others = in_floats(case).columns(case.weighed if has_memory else np.zeros(1, int))
  if has_memory:
    own = off_span(others) @ own
  return float(np.linalg.svd(own, compute_uv=False)[-1]) if own.shape[1] <= own.shape[0] else 0.0


def _row(rng: np.random.Generator, kept: Any, denominator: int) -> np.ndarray:
  """A distribution that is positive where `kept` is, often uneven."""
  return composition(rng, np.asarray(kept, bool), denominator) * Fraction(1, denominator)


def _rows(rng: np.random.Generator, denominator: int, *shape: int) -> np.ndarray:
  """Distributions on the last axis, each entry positive with probability 0.6."""
  rows = list[np.ndarray]()
  for _ in range(int(np.prod(shape[:-1]))):
    kept = rng.random(shape[-1]) < 0.6
    kept[rng.integers(shape[-1])] = True
    rows.append(_row(rng, kept, denominator))
  return np.array(rows).reshape(shape)


def _weight(rng: np.random.Generator) -> Fraction:
  """A nonzero multiple of 1/8 from -2 to 2."""
  return Fraction(int(rng.choice([-1, 1])) * int(rng.integers(1, 17)), 8)


def _weights(rng: np.random.Generator, weighed: list[int], size: int) -> np.ndarray:
  return np.array([_weight(rng) if place in weighed else Fraction(0) for place in range(size)], object)


def _sampled(kind: str, edge: str, rng: np.random.Generator, denominator: int) -> Case:
  """A case of a kind of EDGES, with the values that `edge` needs."""
  match kind:
    case '3.1':
      # Three states, three words.
      emissions, moves = _rows(rng, denominator, 3, 3), _rows(rng, denominator, 3, 3)
      return _without_memory(rng, denominator, emissions, moves, (0, 1, 2))
    case '3.5':
      # Four states, three words; states 0 and 1 are H*, and state 3 moves to them alone.
      moves = _rows(rng, denominator, 4, 4)
      moves[3] = _row(rng, [1, 1, 0, 0], denominator)
      return _without_memory(rng, denominator, _rows(rng, denominator, 4, 3), moves, (0, 1))
    case '4.2':
      return _memory(rng, denominator, 2, [0, 1], stationary=False)
    case _:
      memory_size, weighed = 2 if edge == 'every value weighed' else 3, [0] if edge == 'one value weighed' else [0, 1]
      return _memory(rng, denominator, memory_size, weighed, stationary=True)


def _without_memory(
  rng: np.random.Generator, denominator: int, emissions: np.ndarray, moves: np.ndarray, states: tuple[int, ...]
) -> Case:
  size, one = len(moves), np.array([Fraction(1)], object)
  start, cells = _row(rng, np.ones(size), denominator), np.zeros(size, int)
  return Case(one, start, moves, cells, emissions[None], _weights(rng, list(states), size), 0, states, False)


def _memory(rng: np.random.Generator, denominator: int, memory_size: int, weighed: list[int], stationary: bool) -> Case:
  """State 0 shows values 0 and 1, state 1 announces it by word 0, and state 2 may read another cell."""
  num_cells = int(rng.integers(1, 3))
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


def _at_edge(case: Case, edge: str, rng: np.random.Generator, denominator: int) -> Case | None:
  """The case moved to an edge of its assumptions; None if its chain has no unique stationary law."""
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
  """A cycle of three states, 1 before 0; or {0, 1} and {2, 3} in alternation."""
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
  """The case, if `stationary` with the stationary law of its chain; None if that is not unique."""
  if not case.stationary:
    return case
  law = stationary_law(case.transition_matrix)
  return None if law is None else case._replace(silent_probs=law)


_IRREGULAR = ('periodic', 'reducible')
EDGES: dict[str, tuple[str, ...]] = {
  '3.1': (*_IRREGULAR, 'one-hot start'),
  '3.5': (*_IRREGULAR, 'one-hot start'),
  '4.2': (*_IRREGULAR, 'one-hot start', 'P[M] with a zero', 'H* = H'),
  '4.4, C.5': (*_IRREGULAR, 'P[M] with a zero', 'H* = H', 'every value weighed', 'one value weighed', 'not stationary'),
}
