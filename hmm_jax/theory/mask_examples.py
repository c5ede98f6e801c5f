"""HMMs in `Fraction`s that show what the law of k masked tokens gives, cannot give, and need not give.

All start from their stationary law; docs/findings/theory.md has the statements.
"""

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from hmm_jax.distributions.hmm import HMM


class LumpablePast(NamedTuple):
  """A task in which no number of masks helps a linear head, and a prompt of one row does.

  Attributes:
    hmm: of `Fraction`s.
    task_weights: mu [2, 3].
    prompt: u [1, 3], before the [MASK].
    head: [2, 2], rows are tokens, columns classes; on the law of the [MASK] behind the prompt it gives every label.
  """

  hmm: HMM
  task_weights: np.ndarray
  prompt: np.ndarray
  head: np.ndarray


def lumpable_past() -> LumpablePast:
  """No k helps: given blocks {0, 1} and {2}, which say a and b, the past does not depend on the state in the block.

  Columns 0 and 1 of the transition matrix have equal sums over each block, so the law of all earlier tokens is the same
  for states 0 and 1, and every head has a threshold on P[block | x]. The label, 2 P[0 | x] >= P[1 | x], needs more. The
  prompt says that state 0 came before. Then 54 P[a] <= 49 P[b] is the label of every text: after b the posterior is
  (3, 0, 2) / 5, and after a both say s <= 1/2, with s : 1 the likelihoods of what follows a under states 0 and 1.

  >>> from hmm_jax.theory.masks import masks_needed
  >>> needed = masks_needed(lumpable_past().hmm)
  >>> needed.joint.masks, needed.joint.ranks, needed.future_rank
  (None, (2, 2), 3)
  """
  transition_matrix = np.array([[1, 3, 6], [6, 4, 0], [3, 3, 4]]) * Fraction(1, 10)
  emission_matrix = np.array([[1, 0], [1, 0], [0, 1]]) * Fraction(1)
  hmm = HMM(_uniform(3), transition_matrix, emission_matrix)
  weights, head = np.array([[2, -1, 0], [0, 0, 0]]), np.array([[-54, 0], [49, 0]])
  return LumpablePast(hmm, weights, np.array([[1, 0, 0]]), head)


def twin_pasts() -> HMM:
  """States 0 and 1 have one law of the past for every k, and one mask is enough for every task all the same.

  They say the same and follow every state in the same ratio. But the transition matrix has rank 2, so that texts tell
  no more than two numbers about three states.

  >>> from hmm_jax.theory.masks import masks_needed
  >>> needed = masks_needed(twin_pasts())
  >>> needed.joint.masks, needed.joint.ranks, needed.future_rank
  (1, (2,), 2)
  """
  transition_matrix = np.array([[1, 1, 2], [2, 2, 0], [1, 1, 2]]) * Fraction(1, 4)
  emission_matrix = np.array([[1, 1], [1, 1], [0, 2]]) * Fraction(1, 2)
  return HMM(np.array([1, 1, 1]) * Fraction(1, 3), transition_matrix, emission_matrix)


def sticky_chain(num_states: int, num_tokens: int) -> HMM:
  """A chain .9 I + .1 11^T / H with powers modulo 37 as emissions: marginals of k masks have rank V for every k.

  An eigenvalue of multiplicity H - 1 > V is never observable from V tokens a time; the joint law of two masks is
  quadratic in W and has up to V (V + 1) / 2 independent columns.

  >>> from hmm_jax.theory.masks import masks_needed
  >>> needed = masks_needed(sticky_chain(6, 3))
  >>> needed.joint.ranks, needed.marginals.masks, needed.marginals.ranks
  ((3, 5, 6), None, (3, 3))
  """
  emission_matrix = np.array(
    [[pow(state + 1, token, 37) for token in range(num_tokens)] for state in range(num_states)]
  )
  transition_matrix = np.eye(num_states, dtype=int) * Fraction(9, 10) + Fraction(1, 10 * num_states)
  return HMM(_uniform(num_states), transition_matrix, emission_matrix * (Fraction(1) / emission_matrix.sum(1))[:, None])


def lazy_cycle(num_states: int) -> HMM:
  """A cycle that stays or moves on, of which state 0 says 1 and all others say 0: k masks have rank k + 1.

  So |H| - 1 masks are needed, which is the bound |H| - rank W + 1.

  >>> lazy_cycle(3).transition_matrix.astype(float).tolist()
  [[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.5, 0.0, 0.5]]
  """
  stay = np.eye(num_states, dtype=int)
  says_one = np.arange(num_states) == 0
  emission_matrix = np.stack([~says_one, says_one], axis=1) * Fraction(1)
  return HMM(_uniform(num_states), (stay + np.roll(stay, 1, axis=1)) * Fraction(1, 2), emission_matrix)


def de_bruijn_cycle(num_tokens: int, masks: int) -> HMM:
  """A cycle of |X|^k states that spells every word of k tokens once: k masks have rank |H|, and no fewer do.

  rank M_k <= |X|^k holds for every HMM, so |H| <= |X|^k is needed, and here it is enough. The word is the greedy one
  (Martin 1934).

  Args:
    num_tokens: |X|, at least 1.
    masks: k, at least 1.

  >>> de_bruijn_cycle(2, 3).emission_matrix.argmax(1).tolist()
  [0, 0, 0, 1, 1, 1, 0, 1]
  """
  spelt, seen = [0] * masks, {(0,) * masks}
  while len(seen) < num_tokens**masks:
    words = [(*spelt[len(spelt) - masks + 1 :], token) for token in reversed(range(num_tokens))]
    word = next(word for word in words if word not in seen)
    seen.add(word)
    spelt.append(word[-1])
  # The last k - 1 tokens are the first ones again.
  tokens = np.array(spelt[: num_tokens**masks])
  move = np.roll(np.eye(len(tokens), dtype=int), 1, axis=1) * Fraction(1)
  return HMM(_uniform(len(tokens)), move, (tokens[:, None] == np.arange(num_tokens)) * Fraction(1))


def _uniform(num_states: int) -> np.ndarray:
  return np.full(num_states, Fraction(1, num_states))
