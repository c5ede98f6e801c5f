"""Number of [MASK]s before a text after which a linear head gives every label: Theorem 3.3 for k masks.

The k masks are tokens of a chain that begins at the first of them with the law nu = `initial_probs`. H_1 is the state
of the last mask, pi = nu A^(k-1) its law (rows of A sum to 1 here), and x is the text that follows it. With

  J[h, v] = P[X_{2-k..1} = v, H_1 = h] = pi_h M_k[h, v]  and  lambda_h(x) = P[x | H_1 = h],

the joint law of the masked tokens given x is proportional to J^T lambda(x), and the scores of the classes are
proportional to mu (rho * lambda(x)), where rho = `silent_probs` is the prior by which texts are labelled. So a head b
gives every score iff J b - rho * mu is orthogonal to S, the span of all lambda(x) (`tuning.reachable`). It exists for
every mu and rho iff rank(S J) = dim S, for which rank M_k = |H| suffices. The k marginals, which one pass of a model
gives, are the same with other columns: J[h, (i, v)] = P[X_i = v, H_1 = h].

For a stationary nu the span of M_k grows with k until it stops for good: if any k is enough, |H| - rank W + 1 is.
"""

from collections.abc import Callable, Iterator
import itertools
from typing import NamedTuple

import numpy as np

from hmm_jax._support.float64 import float64, positive_or_one
from hmm_jax._support.rational.algebra import modular_pivots, PRIME, row_reduced
from hmm_jax._support.rational.chain import integer_chain
from hmm_jax.distributions.hmm import HMM
from hmm_jax.tuning.reachable import reachable


class MaskCount(NamedTuple):
  """Least number of masks for one way of reading them, and what each number tried gives.

  Attributes:
    masks: the least k that is enough, proved in exact arithmetic; None if no k up to |H| is, which means that no k is
      where the start is stationary.
    ranks: rank of M_k for k = 1, 2, ..., exactly.
    singular_value_ratios: of M_k, the smallest over the largest, in float64: what noise in G leaves of the rank.
  """

  masks: int | None
  ranks: list[int]
  singular_value_ratios: list[float]


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


def masks_needed(hmm: HMM, proves: bool = True) -> MasksNeeded:
  """Find the least number of [MASK]s before a text whose law gives every score to a linear head, for every task.

  Ranks are decided modulo the prime 2^61 - 1 if they are as large as they can be, which is a proof, and else in exact
  integers, which is slow for many states. A float is an exact rational: rounding alone can raise a rank, with a
  singular value ratio of about 1e-16. Pass `Fraction`s for decimal numbers. For one task use `masks_as_one_token`.

  Args:
    hmm: of floats or `Fraction`s; `initial_probs` is the law of the state of the first mask.
    proves: False leaves out exact integers: a rank that is not proved is then a lower bound, which is too low only if
      the prime divides a minor.

  Raises:
    ArithmeticError: the prime divides a determinant (`tuning.reachable`).

  Source: the theorem of k masks in docs/findings/theory.md; k = 1 is Theorem 3.3 of Wei, Xie and Ma (2021).

  The paper's draw, 30 states and 10 tokens: two masks, or the marginals of four.

  >>> import jax
  >>> from hmm_jax import random_hmm
  >>> needed = masks_needed(random_hmm(jax.random.key(46), 30, 10))
  >>> needed.joint.ranks, needed.marginals.ranks
  ([10, 30], [10, 19, 28, 30])
  """
  futures = reachable(hmm, hmm.num_states - 1).basis
  joint, marginals = (_mask_count(hmm, futures, joint, _modular_basis, proves) for joint in (True, False))
  return MasksNeeded(joint, marginals, len(futures))


def masks_as_one_token(hmm: HMM, masks: int, joint: bool = True) -> HMM:
  """The chain from the last of k masks on, with all k tokens as the first one: pi, A, and M_k for the emissions.

  So what is known of one mask holds for k. `theorem_3_3` of it builds the head b = M_k^+ (mu * rho / pi), if M_k has
  rank |H|. `tuning.reachable.linear_score` of it, with what `hmm` reaches, decides exactly if one mu has a head.

  Args:
    hmm: `initial_probs` is the law of the state of the first mask; entries may be `Fraction`s.
    masks: k, at least 1.
    joint: True for the joint law, [H, V^k], columns are words in the order of their digits, the first mask first.
      False for the marginals, [H, k V], the first mask first; rows sum to k.
      The row of a state that cannot be the last mask's is 0.

  Raises:
    ValueError: `masks` is below 1.

  Source: the theorem of k masks in docs/findings/theory.md.

  >>> hmm = HMM(np.array([0.5, 0.5]), np.array([[0, 1.0], [1, 0]]), np.array([[1.0, 0], [0.5, 0.5]]))
  >>> print(masks_as_one_token(hmm, 2).emission_matrix)  # aa, ab, ba, bb; the states alternate
  [[0.5 0.  0.5 0. ]
   [0.5 0.5 0.  0. ]]

  With M_k the exact model's laws are M_k^T p, here of two masks by the chain rule, from V + 1 passes:

  >>> from hmm_jax import ExactModel, token_probs
  >>> from hmm_jax.tuning.tasks import hidden_state_probs
  >>> text, model = [0, 1, 0], ExactModel(2)  # the id 2 is [MASK]
  >>> rows = np.array([[first, 2, *text] for first in (2, 0, 1)])
  >>> either, after_a, after_b = token_probs(model, hmm, rows)
  >>> chained = np.concatenate([either[0, 0] * after_a[1], either[0, 1] * after_b[1]])
  >>> p = hidden_state_probs(hmm.starting_from(masks_as_one_token(hmm, 2).initial_probs), np.array([[2, *text]]))[0]
  >>> bool(np.allclose(p @ masks_as_one_token(hmm, 2).emission_matrix, chained))
  True
  """
  law, columns = next(itertools.islice(_pasts(hmm, joint, np.asarray), masks - 1, None))
  return hmm._replace(initial_probs=law, emission_matrix=columns / positive_or_one(law)[:, None])


def _mask_count(
  hmm: HMM, futures: np.ndarray, joint: bool, basis: Callable[[np.ndarray], np.ndarray], proves: bool = False
) -> MaskCount:
  """The least k with rank(S J) = dim S, by `_modular_basis` unless that proves too little.

  Ranks modulo a prime are lower bounds. One mask more multiplies the rank of J by at most the number of tokens in use;
  to the marginals it adds one less, as their columns have the sum pi. A rank that attains its bound is exact.
  """
  start, moves, likelihoods = integer_chain(hmm)
  integers, num_used = HMM(start, moves, likelihoods.T), np.count_nonzero(likelihoods.any(1))
  ranks, ratios = [1], list[float]()
  pasts = zip(_pasts(integers, joint, basis), _pasts(HMM(*map(float64, hmm)), joint, _factor))
  for (_, columns), (law, factor) in itertools.islice(pasts, hmm.num_states):
    most = ranks[-1] * num_used if joint else ranks[-1] + num_used - 1
    ranks.append(columns.shape[1])
    values = np.linalg.svd(factor / positive_or_one(law)[:, None], compute_uv=False)
    ratios.append(float(values[hmm.num_states - 1 :].sum() / values[0]))
    reached = basis(futures @ columns).shape[1]
    is_proof = ranks[-1] == min(most, hmm.num_states) and reached == min(most, len(futures))
    if proves and not is_proof:
      return _mask_count(hmm, futures, joint, _exact_basis)
    if reached == len(futures):
      return MaskCount(len(ratios), ranks[1:], ratios)
  return MaskCount(None, ranks[1:], ratios)


def _pasts(
  hmm: HMM, joint: bool, compressed: Callable[[np.ndarray], np.ndarray]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
  """Yield pi [H] and J [H, n] for k = 1, 2, ..., in numbers of any kind; J is `compressed` to columns of the same span.

  J of k + 1 masks is A^T J, times the columns of W entry by entry. Marginals are A^T J and those of the last mask.
  """
  # Fractions stay, all else becomes float64.
  law, moves, emission_matrix = (field.astype(np.result_type(field, np.float64)) for field in map(np.asarray, hmm))
  columns = law[:, None] * emission_matrix
  while True:
    columns = compressed(columns)
    yield law, columns
    law, past = law @ moves, moves.T @ columns
    if joint:
      columns = (past[:, :, None] * emission_matrix[:, None]).reshape(len(law), -1)
    else:
      columns = np.hstack([past, law[:, None] * emission_matrix])


def _factor(columns: np.ndarray) -> np.ndarray:
  """L [H, min(n, H)] of columns L Q, Q with orthonormal rows: the same singular values, whatever scales the rows."""
  return np.linalg.qr(columns.T)[1].T


def _modular_basis(columns: np.ndarray) -> np.ndarray:
  """Columns that are independent modulo the prime, reduced."""
  columns = columns % PRIME
  return columns[:, modular_pivots(columns)]


def _exact_basis(columns: np.ndarray) -> np.ndarray:
  """Columns that are independent of those before them."""
  return columns[:, row_reduced(columns)[1]]
