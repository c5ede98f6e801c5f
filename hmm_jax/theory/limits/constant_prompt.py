"""One-row prompts of the exact model, and a test whether one is right with a linear head: docs/findings/theory.md.

Rows u_1, ..., u_k before the [MASK] reach its prediction only as the law A w of the masked state, up to scale, with
w = u_k * A(u_{k-1} * ... A(u_1 * P[H_1])) >= 0 and A = transition_matrix.T. With W = emission_matrix.T and
lambda_h(x) = P[X_{2:T+1} = x | H_1 = h], a head b scores b^T G, in proportion to sum_h (W^T b)_h (A w)_h lambda_h(x),
and the label is that of sum_h v_h lambda_h(x), v = mu * P[H_0]. So the head is right on every text if

  (W^T b) * (A w) = s v,  s > 0,

of which Theorem 3.6 is a case. Let S be the support of v and F that of A w. Then W^T b = v * q on S and 0 on the rest
of F, where q > 0 and q * (A w) = 1 on S. Such q are the positive vectors of a subspace, and such A w the cone of the
columns of A that reach no state outside F.
"""

from collections.abc import Iterator
import itertools
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hmm_jax.float64 import float64
from hmm_jax.heads import LinearHead
from hmm_jax.hmm import HMM
from hmm_jax.theory.limits import reciprocals
from hmm_jax.theory.limits.reciprocals import Pair
from hmm_jax.theory.problems.enumeration import normalised
from hmm_jax.theory.theorems import assumptions
from hmm_jax.theory.theorems.assumptions import Finding, Thresholds
from hmm_jax.theory.theorems.recovery import Construction

# The largest error of a solution that `reciprocals` finds; one with a larger error may be due to rounding.
_LARGEST_ERROR = 1e-6


class ConstantPrompt(NamedTuple):
  """A solution of (W^T b) * (A w) = s v, or the result that there is none.

  Attributes:
    outcome: 'yes', with a construction; 'no'; or 'undecided', where a search was cut off.
    construction: the prompt u = w / P[H_1] [1, H], scaled to at most 1, and the head [V, C]; None without a yes.
    reached_states: F, of a yes.
    error: of a yes, the largest |(W^T b) * (A w) - v| on F in float64, v scaled to a largest entry of 1.
  """

  outcome: str
  construction: Construction | None = None
  reached_states: np.ndarray | None = None
  error: float = np.inf


class Limits(NamedTuple):
  """Limits at which a search ends undecided.

  Attributes:
    max_covers: the most sets F.
    max_boxes: the most boxes of q on all F together, with at least two on each.
    max_nodes: of the search for H* in Assumption 3.5, which comes first.
  """

  max_covers: int
  max_boxes: int
  max_nodes: int


class _Case(NamedTuple):
  """The equation to solve.

  Attributes:
    A: [H, H], and W [V, H], the paper's; entries of A up to the threshold are 0.
    v: [C - 1, H], of largest entry 1.
    weighed: S.
    supports: successors of each state that can be first.
    rank: the threshold of singular values.
  """

  A: np.ndarray
  W: np.ndarray
  v: np.ndarray
  weighed: frozenset[int]
  supports: dict[int, frozenset[int]]
  rank: float


class _Factors(NamedTuple):
  """Factors on one F: q = `basis` @ y, A w = `columns` @ w_B on S; `starts` is B."""

  basis: np.ndarray
  columns: np.ndarray
  starts: np.ndarray

  @property
  def is_free(self) -> bool:
    """True where every q is possible."""
    return self.basis.shape[0] == self.basis.shape[1]

  @property
  def spare_dimensions(self) -> int:
    """The dimensions of q and A w less those that the equations take, if none is special."""
    return self.basis.shape[1] + int(np.linalg.matrix_rank(self.columns)) - self.columns.shape[0]


def masked_state_weights(hmm: HMM, rows: ArrayLike) -> np.ndarray:
  """w [H] of prompt rows [k, H], k >= 1, scaled to sum 1: the law of the masked state behind them is A w.

  Zeros where the rows contradict each other. Where P[H_1] has full support the one row w / P[H_1] has the same w.
  """
  first, *others = float64(rows)
  w = normalised(first * float64(hmm.initial_probs))
  for row in others:
    w = normalised(row * (w @ float64(hmm.transition_matrix)))
  return w


def likelihoods(hmm: HMM, tokens: np.ndarray) -> np.ndarray:
  """lambda_h(x) = P[X_{2:T+1} = x | H_1 = h] of texts [n, T], scaled to a largest entry of 1, [n, H] float64.

  A [MASK] (id V) is no evidence; zeros where no state can produce x.
  """
  moves, W = map(float64, hmm[1:])
  rows_VxH = np.vstack([W.T, np.ones(len(W))])
  future = np.ones((len(tokens), len(W)))
  for now in np.asarray(tokens).T[::-1]:
    future = (future * rows_VxH[now]) @ moves.T
    largest = future.max(1, keepdims=True)
    future = future / np.where(largest > 0, largest, 1)
  return future


def token_probs_behind(hmm: HMM, rows: ArrayLike, tokens: np.ndarray) -> np.ndarray:
  """G [n, V] at the [MASK] between prompt rows [k, H], k >= 1, and texts [n, T], in float64: W ((A w) * lambda(x)).

  `ExactModel`'s prediction there, from w alone; zeros where prompt and text contradict each other.
  """
  A, W = (float64(matrix).T for matrix in hmm[1:])
  states = likelihoods(hmm, tokens) * (A @ masked_state_weights(hmm, rows))
  return normalised(states) @ W.T


def constant_prompt(
  hmm: HMM, task_weights: ArrayLike, silent_probs: ArrayLike, thresholds: Thresholds, limits: Limits
) -> ConstantPrompt:
  """Decide whether b and w >= 0 with (W^T b) * (A w) = s v, s > 0, exist, and build the prompt and the head.

  With C classes, b_c and v_c are relative to the last class and share one w and one s. The sets F are unions of
  supports of columns of A that cover S; one without any q > 0 is pruned, with all its supersets. If every q is
  possible, as under Assumption 3.5, any w that reaches S will do; otherwise `reciprocals` decides.

  Prompts have one row, on the states that can be first; if P[H_1] has full support, they represent all prompts. The
  search covers entries of q, and of A w on S, within a factor of 1e6, and 'no' refers to those.

  Args:
    hmm: the model's chain, H states and V tokens.
    task_weights: mu [C, H].
    silent_probs: P[H_0] [H]; P[H_1] for a label of the masked first state itself.
    thresholds: what counts as zero: probabilities of A, singular values of W.
    limits: of the search.

  Raises:
    ValueError: mu * P[H_0] is 0, or `task_weights` is none (`assumptions.contrasts`).

  >>> from hmm_jax.theory.problems.counterexamples import head_fails_prompt_succeeds
  >>> task, thresholds = head_fails_prompt_succeeds(), assumptions.Thresholds(support=0.0, rank=1e-9)
  >>> limits = Limits(max_covers=10, max_boxes=100, max_nodes=1000)
  >>> constant_prompt(task.hmm, task.task_weights, task.silent_probs, thresholds, limits).outcome
  'yes'
  """
  case = _case(hmm, task_weights, silent_probs, thresholds)
  # The cover of Assumption 3.5 is a candidate wherever the search for covers ends.
  relaxed = assumptions.relaxed_non_degeneracy(hmm, task_weights, thresholds, limits.max_nodes)
  found = list(itertools.islice(_covers(case), limits.max_covers + 1))
  covers = {states: _factors(case, states) for states in [*_essential(case, relaxed), *found[: limits.max_covers]]}
  free = [
    _built(case, hmm, states, factors, _any_pair(factors)) for states, factors in covers.items() if factors.is_free
  ]
  if free:
    return min(free, key=lambda built: built.error)
  is_open, max_boxes = len(found) > limits.max_covers, max(limits.max_boxes // max(len(covers), 1), 2)
  for states, factors in sorted(covers.items(), key=lambda cover: cover[1].spare_dimensions, reverse=True):
    pair = reciprocals.decide(factors.basis, factors.columns, max_boxes)
    built = _built(case, hmm, states, factors, pair) if isinstance(pair, Pair) else None
    if built and built.error <= _LARGEST_ERROR:
      return built
    is_open |= pair is not False
  return ConstantPrompt('undecided' if is_open else 'no')


def _case(hmm: HMM, task_weights: ArrayLike, silent_probs: ArrayLike, thresholds: Thresholds) -> _Case:
  A = float64(hmm.transition_matrix).T
  A = np.where(A > thresholds.support, A, 0)
  v = assumptions.contrasts(task_weights)[:-1] * float64(silent_probs)
  if not v.any():
    raise ValueError('silent_probs are 0 wherever task_weights differ; valid is a positive probability there')
  return _Case(
    A=A,
    W=float64(hmm.emission_matrix).T,
    v=v / np.abs(v).max(),
    weighed=frozenset(np.flatnonzero(v.any(0)).tolist()),
    supports={h: frozenset(np.flatnonzero(A[:, h]).tolist()) for h in np.flatnonzero(hmm.initial_probs).tolist()},
    rank=thresholds.rank,
  )


def _essential(case: _Case, relaxed: Finding) -> list[frozenset[int]]:
  """H* where Assumption 3.5 holds and states that can be first reach all of it."""
  states = frozenset(np.ravel(relaxed.witness.get('essential_states', [])).tolist())
  reached = frozenset().union(*(support for support in case.supports.values() if support <= states))
  return [states] if relaxed.holds and reached == states else []


def _covers(case: _Case) -> Iterator[frozenset[int]]:
  """Unions F of supports that contain S and allow some q > 0, small ones first; each once.

  Every such union grows, one support at a time, from one that covers the states of S in turn. A union without any q > 0
  has no superset with one.
  """
  supports = sorted(set(case.supports.values()), key=len)
  seen, frontier = set[frozenset[int]](), [frozenset[int]()]
  while frontier:
    states = frontier.pop(0)
    missing = case.weighed - states
    if not missing:
      yield states
    ways = [[support for support in supports if state in support] for state in missing]
    grown = {states | support for support in min(ways, key=len, default=supports)} - seen - {states}
    seen |= grown
    frontier += [union for union in grown if reciprocals.has_positive(_basis(case, union))]
    frontier.sort(key=lambda union: (len(union), sorted(union)))


def _basis(case: _Case, states: frozenset[int]) -> np.ndarray:
  """The q [n, d] on S within F for which some b has W^T b_c = v_c * q there and 0 on the rest of F.

  The W^T b on F are the orthogonal complement of the kernel of W's columns in F.
  """
  inside = sorted(states)
  W = case.W[:, inside]
  kernel = _null_space(W, case.rank * float(np.linalg.norm(W, 2)))[[h in case.weighed for h in inside]]
  v = case.v[:, sorted(states & case.weighed)]
  # Entries of both are at most 1, and all conditions may be 0.
  return _null_space((kernel.T[None] * v[:, None]).reshape(-1, v.shape[1]), case.rank)


def _null_space(matrix: np.ndarray, threshold: float) -> np.ndarray:
  """An orthonormal basis [n, d], singular values up to the threshold counted as 0."""
  if not matrix.size:
    return np.eye(matrix.shape[1])
  _, values, rows = np.linalg.svd(matrix, full_matrices=True)
  return rows[np.count_nonzero(values > threshold) :].T


def _factors(case: _Case, states: frozenset[int]) -> _Factors:
  starts = np.array([h for h, support in case.supports.items() if support <= states])
  return _Factors(_basis(case, states), case.A[sorted(case.weighed)][:, starts], starts)


def _any_pair(factors: _Factors) -> Pair:
  """A pair with A w as even as possible, or w = 1 where S is reached too unevenly for a linear program."""
  w = reciprocals.widest(factors.columns)
  w = w if (factors.columns @ w > 0).all() else np.ones_like(w)
  return Pair(1 / (factors.columns @ w), w)


def _built(case: _Case, hmm: HMM, states: frozenset[int], factors: _Factors, pair: Pair) -> ConstantPrompt:
  inside, weighed, w, wanted = sorted(states), sorted(case.weighed), np.zeros(hmm.num_states), np.zeros_like(case.v)
  w[factors.starts] = pair.w
  u = np.divide(w, float64(hmm.initial_probs), out=np.zeros_like(w), where=w > 0)
  wanted[:, weighed] = case.v[:, weighed] * pair.q
  heads = np.linalg.lstsq(case.W[:, inside].T, wanted[:, inside].T, rcond=case.rank)[0]
  error = np.abs((case.W.T @ heads).T * (case.A @ w) - case.v)[:, inside].max()
  head = LinearHead(np.pad(heads, ((0, 0), (0, 1))), np.zeros(len(case.v) + 1))
  return ConstantPrompt('yes', {'prompt': (u / u.max())[None], 'head': head}, np.array(inside), float(error))
