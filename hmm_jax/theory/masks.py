"""Number of [MASK]s before a text after which a linear head gives every label: Theorem 3.3 for k masks.

The k masks are tokens of a chain that begins at the first of them with the law nu = `initial_probs`. H_1 is the state of
the last mask, pi = nu A^(k-1) its law (rows of A sum to 1 here), and x is the text that follows it. With

  J[h, v] = P[X_{2-k..1} = v, H_1 = h] = pi_h M_k[h, v]  and  lambda_h(x) = P[x | H_1 = h],

the joint law of the masked tokens given x is proportional to J^T lambda(x), and the scores of the classes are
proportional to mu (rho * lambda(x)), where rho = `silent_probs` is the prior by which texts are labelled. So a head b
gives every score iff J b - rho * mu is orthogonal to S, the span of all lambda(x) (`tuning.reachable`). It exists for
every mu iff rank(S J) = dim S, for which rank M_k = |H| suffices. The k marginals, which one pass of a model gives, are
the same with other columns: J[h, (i, v)] = P[X_i = v, H_1 = h].

For a stationary nu the span of M_k grows with k until it stops for good: if any k is enough, |H| - rank W + 1 is.
"""

from collections.abc import Callable, Iterator
import itertools
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hmm_jax._support.float64 import float64
from hmm_jax._support.rational.algebra import as_integers, exact, exact_rows, modular_pivots, PRIME, row_reduced
from hmm_jax._support.rational.chain import exact_chain
from hmm_jax.distributions.hmm import HMM
from hmm_jax.theory import assumptions
from hmm_jax.theory.assumptions import AssumptionError, Finding, Thresholds
from hmm_jax.theory.recovery import Construction
from hmm_jax.tuning.heads import LinearHead
from hmm_jax.tuning.reachable import reachable


class MaskCount(NamedTuple):
  """Least number of masks for one way of reading them, and what each number up to it gives.

  Attributes:
    masks: the least k that is enough, proved in exact arithmetic; None if no k up to len(ranks) is, which for a
      stationary start means that no k is.
    ranks: rank of M_k for k = 1, 2, ..., exactly.
    singular_value_ratios: of M_k, the smallest over the largest, in float64: what noise in G leaves of the rank.
  """

  masks: int | None
  ranks: tuple[int, ...]
  singular_value_ratios: tuple[float, ...]


class MasksNeeded(NamedTuple):
  """Result of `masks_needed`.

  Attributes:
    joint: from the joint law of k masks, V^k numbers.
    marginals: from the k marginals, k V numbers.
    future_rank: dim S, the dimension of what texts tell about H_1.
  """

  joint: MaskCount
  marginals: MaskCount
  future_rank: int


def masks_needed(hmm: HMM, task_weights: ArrayLike | None = None, silent_probs: ArrayLike | None = None) -> MasksNeeded:
  """Find the least number of [MASK]s before a text whose law gives the scores to a linear head.

  Ranks are decided modulo the prime 2^61 - 1 if they are as large as they can be, which is a proof, and else in
  fractions, which is slow for many states. A float is an exact rational: rounding alone can raise a rank, with a
  singular value ratio of about 1e-16. Pass `Fraction`s for what holds of decimal numbers.

  Args:
    hmm: of floats or `Fraction`s, H states; `initial_probs` is the law of the state of the first mask.
    task_weights: mu [C, H], for the scores of one task; None for those of every mu and prior.
    silent_probs: rho [H], the prior by which the task labels texts; None for `initial_probs`.

  Raises:
    ValueError: `hmm` has a memory, or the rows of mu are equal.

  Source: the theorem of k masks in docs/findings/theory.md; k = 1 is Theorem 3.3 of Wei, Xie and Ma (2021).

  >>> from hmm_jax.theory.mask_examples import lazy_cycle
  >>> needed = masks_needed(lazy_cycle(5))  # 5 states, 2 tokens
  >>> needed.joint.masks, needed.joint.ranks, needed.marginals.masks
  (4, (2, 3, 4, 5), 4)
  """
  if not isinstance(hmm, HMM):
    raise ValueError(f'hmm is a {type(hmm).__name__}; valid is an HMM, such as that of to_hmm')
  futures = reachable(hmm, hmm.num_states - 1).basis
  wanted = futures
  if task_weights is not None:
    mu = exact(assumptions.contrasts(task_weights))
    rho = exact_rows(hmm.initial_probs if silent_probs is None else silent_probs)
    wanted = futures @ as_integers(rho * mu)[0].T
  counts = [
    _decided(hmm, futures, wanted, joint, modulo=True) or _decided(hmm, futures, wanted, joint, modulo=False)
    for joint in (True, False)
  ]
  return MasksNeeded(*counts, len(futures))


def mask_probs(hmm: HMM, masks: int, joint: bool = True) -> np.ndarray:
  """M_k: the law of k masked tokens given the state at the last of them, [H, V^k], or their marginals [H, k V].

  Columns are words v_1 ... v_k in the order of their digits, the first mask first; for marginals, masks in order.
  Entries are `Fraction`s if those of `hmm` are. Rows of states that cannot occur there are 0.

  Args:
    hmm: `initial_probs` is the law of the state of the first mask.
    masks: k, at least 1.
    joint: False for the marginals.

  >>> hmm = HMM(np.array([0.5, 0.5]), np.array([[0, 1.0], [1, 0]]), np.array([[1.0, 0], [0.5, 0.5]]))
  >>> print(mask_probs(hmm, 2))  # P[aa], P[ab], P[ba], P[bb]; the states alternate
  [[0.5 0.  0.5 0. ]
   [0.5 0.5 0.  0. ]]
  """
  if masks < 1:
    raise ValueError(f'masks is {masks}; valid is at least 1')
  pasts = _pasts(*map(np.asarray, hmm), joint, compressed=lambda columns: columns)
  law, columns = next(itertools.islice(pasts, masks - 1, None))
  return _given_state(law, columns)


def theorem_3_3_masks(
  hmm: HMM, task_weights: ArrayLike, silent_probs: ArrayLike, masks: int, thresholds: Thresholds, joint: bool = True
) -> Construction:
  """The linear head b = M_k^+ (mu * rho / pi) on the law of k masks, right on every text if rank M_k = |H|.

  M_k has full row rank, so that M_k b is mu * rho / pi, and b^T M_k^T p = (mu * rho / pi)^T p for the posterior p of
  the state of the last mask; p * rho / pi is proportional to the posterior that labels the text. k = 1 is `theorem_3_3`.

  Args:
    hmm: H states and V tokens; `initial_probs` is the law of the state of the first mask.
    task_weights: mu [C, H].
    silent_probs: rho [H], the prior by which the task labels texts.
    masks: k.
    thresholds: what counts as zero.
    joint: False for a head on the k marginals, [k V] numbers in the order of `mask_probs`.

  Raises:
    AssumptionError: rank M_k < |H| at these thresholds.

  >>> from hmm_jax.theory.mask_examples import lazy_cycle
  >>> hmm, thresholds = lazy_cycle(3), Thresholds(support=0.0, rank=1e-9)
  >>> head = theorem_3_3_masks(hmm, np.eye(3), hmm.initial_probs, 2, thresholds)['head']
  >>> print((float64(mask_probs(hmm, 2)) @ head.weights).round(6) + 0.0)  # mu relative to the last class
  [[ 1.  0.  0.]
   [ 0.  1.  0.]
   [-1. -1.  0.]]
  """
  law = float64(hmm.initial_probs) @ np.linalg.matrix_power(float64(hmm.transition_matrix), masks - 1)
  M = float64(mask_probs(hmm, masks, joint))
  independent, direction, closeness = assumptions.spectrum(_factor(M).T, thresholds)
  if not independent:
    reason = f'the laws of {masks} masks given each of {len(M)} states are dependent'
    witness = {'dependence': direction}
    raise AssumptionError(Finding('Theorem 3.3 with k masks', False, reason, witness, closeness, thresholds))
  weights = assumptions.contrasts(task_weights) * float64(silent_probs) / law
  return {'head': LinearHead(np.linalg.pinv(M) @ weights.T, np.zeros(len(weights)))}


def _decided(hmm: HMM, futures: np.ndarray, wanted: np.ndarray, joint: bool, modulo: bool) -> MaskCount | None:
  """The least k for which the columns `wanted` are in the span of S J; modulo a prime, None if that is no proof.

  A rank modulo a prime is at most the rank, and the rank of J at most `_largest_rank`. So a rank of J that is as large
  is exact; S J of full rank proves that k is enough, and `wanted` that raises its rank above that of J that it is not.
  """
  chain = exact_chain(hmm)
  integers = chain.start[0], chain.moves, chain.likelihoods[:-1, 0].T
  reduced, pivots = (_modulo_prime, modular_pivots) if modulo else (np.asarray, _pivots)
  futures, wanted, emission_rank = reduced(futures), reduced(wanted), len(_pivots(integers[2]))
  pasts = _pasts(*map(reduced, integers), joint, lambda columns: reduced(columns)[:, pivots(columns)])
  in_floats = _pasts(*map(float64, hmm), joint, compressed=_factor)
  ranks, ratios = list[int](), list[float]()
  for (_, columns), (law, factor) in zip(pasts, in_floats):
    ranks.append(columns.shape[1])
    ratios.append(_singular_value_ratio(_given_state(law, factor)))
    seen = futures @ columns
    reached, with_wanted = len(pivots(seen)), len(pivots(np.hstack([seen, wanted])))
    is_proof = reached == len(futures) or with_wanted > ranks[-1]
    largest = min(hmm.num_states, _largest_rank(emission_rank, ranks[:-1], joint))
    if modulo and not (is_proof and ranks[-1] == largest):
      return None
    if reached == with_wanted:
      return MaskCount(len(ranks), tuple(ranks), tuple(ratios))
    stays = ranks[-2:] == ranks[-1:] * 2 and _is_stationary(chain.start[0], chain.moves)
    if stays or len(ranks) > hmm.num_states - ranks[0]:
      break
  return MaskCount(None, tuple(ranks), tuple(ratios))


def _largest_rank(emission_rank: int, before: list[int], joint: bool) -> int:
  """Upper bound on the rank of J for the next k, by the ranks before it.

  A mask more multiplies the rank by that of W; the columns of each marginal have the same sum, the law of H_1.
  """
  return (before or [1])[-1] * emission_rank if joint else 1 + (len(before) + 1) * (emission_rank - 1)


def _pasts(
  start: np.ndarray,
  transition_matrix: np.ndarray,
  emission_matrix: np.ndarray,
  joint: bool,
  compressed: Callable[[np.ndarray], np.ndarray],
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
  """Yield pi [H] and J [H, n] for k = 1, 2, ..., in numbers of any kind; J is `compressed` to columns of the same span.

  J of k + 1 masks is A^T J, times the columns of W entry by entry. Marginals are A^T J and those of the last mask.
  """
  law, past = start, start[:, None]
  if not joint:
    past = past[:, :0]
  while True:
    if joint:
      columns = (past[:, :, None] * emission_matrix[:, None]).reshape(len(law), -1)
    else:
      columns = np.hstack([past, law[:, None] * emission_matrix])
    columns = compressed(columns)
    yield law, columns
    law, past = transition_matrix.T @ law, transition_matrix.T @ columns


def _given_state(law: np.ndarray, joint_probs: np.ndarray) -> np.ndarray:
  """Probabilities given a state from those with it, [H, n]; zeros where the state cannot occur."""
  return joint_probs / np.where(law == 0, 1, law)[:, None]


def _factor(columns: np.ndarray) -> np.ndarray:
  """L [H, min(n, H)] of columns L Q, Q with orthonormal rows: the same singular values, whatever scales the rows."""
  return np.linalg.qr(columns.T, mode='r').T


def _singular_value_ratio(matrix: np.ndarray) -> float:
  """The smallest singular value of rows [H, n] over the largest, 0 if n < H."""
  values = np.linalg.svd(matrix, compute_uv=False)
  return float(values[-1] / values[0]) if len(matrix) == len(values) else 0.0


def _modulo_prime(integers: np.ndarray) -> np.ndarray:
  return integers % PRIME


def _pivots(columns: np.ndarray) -> list[int]:
  """Columns [H, n] that are independent of those before them, exactly; modulo a prime if as many are as can be."""
  pivots = modular_pivots(columns)
  return pivots if len(pivots) == min(columns.shape) else row_reduced(columns)[1]


def _is_stationary(start: np.ndarray, transition_matrix: np.ndarray) -> bool:
  """True if a law in integers, up to a factor, is stationary for moves in integers, up to a factor."""
  following = start @ transition_matrix
  return bool((start * following.sum() == following * start.sum()).all())
