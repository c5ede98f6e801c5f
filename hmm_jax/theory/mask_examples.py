"""HMMs in `Fraction`s that show what the law of k masked tokens gives, cannot give, and need not give.

All start from a uniform law. docs/findings/theory.md has the statements.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hmm_jax._support.rational.algebra import fraction_rows
from hmm_jax.distributions.hmm import HMM


def lumpable_past() -> HMM:
  """No k helps: given blocks {0, 1} and {2}, which say a and b, the past does not depend on the state in the block.

  Columns 0 and 1 of the transition matrix have equal sums over each block and the start is stationary. So the law of
  all earlier tokens is the same for states 0 and 1, and a head has a threshold on P[block | x] only. The task
  mu = (2, -1, 0) needs more. Behind the prompt u = (1, 0, 0) before the [MASK], which says that state 0 came before,
  "54 P[a] <= 49 P[b]" is the label of every text.

  *Proof.* Behind the prompt P[a] : P[b] is lambda_0 + 3 lambda_1 : 6 lambda_2. A text that starts with b has lambda
  proportional to (3, 0, 2): both hold. One that starts with a has (s + 3, 6 s + 4, 3 s + 3), where s : 1 are the
  likelihoods of what follows under states 0 and 1: both hold iff s <= 1/2.

  >>> from hmm_jax.theory.masks import masks_needed
  >>> needed = masks_needed(lumpable_past())
  >>> needed.joint.masks, needed.joint.ranks, needed.future_rank
  (None, [2, 2, 2], 3)
  """
  return _from_uniform([[1, 3, 6], [6, 4, 0], [3, 3, 4]], [[1, 0], [1, 0], [0, 1]])


def twin_pasts() -> HMM:
  """States 0 and 1 have one law of the past for every k, and one mask is enough for every task all the same.

  They say the same and follow every state equally often. But the transition matrix has rank 2, so that texts tell no
  more than two numbers about three states.

  >>> from hmm_jax.theory.masks import masks_needed
  >>> needed = masks_needed(twin_pasts())
  >>> needed.joint.masks, needed.joint.ranks, needed.future_rank
  (1, [2], 2)
  """
  return _from_uniform([[1, 1, 2], [2, 2, 0], [1, 1, 2]], [[1, 1], [1, 1], [0, 2]])


def sticky_chain(num_states: int, num_tokens: int) -> HMM:
  """The chain .9 I + .1 11^T / H with powers modulo 37 as emissions: k marginals have the rank of one for every k.

  .9 is an eigenvalue of multiplicity H - 1; what is not observable from one token is not from its mean over time.

  Args:
    num_states: H, at most 36.
    num_tokens: V.

  >>> from hmm_jax.theory.masks import masks_needed
  >>> needed = masks_needed(sticky_chain(30, 10))
  >>> needed.joint.ranks, needed.marginals.masks, set(needed.marginals.ranks)
  ([10, 30], None, {10})
  """
  powers = np.arange(1, num_states + 1)[:, None].astype(object) ** np.arange(num_tokens) % 37
  return _from_uniform(1 + 9 * num_states * np.eye(num_states, dtype=int), powers)


def cycle(tokens: Sequence[int], stay: int = 0) -> HMM:
  """A cycle of one state for each token, which it says; a state stays `stay` times as often as it moves.

  If every word of k tokens stands once in the cycle (de Bruijn), k masks have rank |H| = |X|^k and fewer do not, as
  rank M_k <= |X|^k always. If only one state says 1 and stay is 1, k masks have rank k + 1, so that |H| - 1 masks are
  needed, the largest number that can be.

  >>> from hmm_jax.theory.masks import masks_needed
  >>> masks_needed(cycle([0, 0, 0, 1, 1, 1, 0, 1])).joint.ranks
  [2, 4, 8]
  """
  one_hot = np.eye(len(tokens), dtype=int)
  return _from_uniform(stay * one_hot + np.roll(one_hot, 1, axis=1), np.arange(max(tokens) + 1) == np.c_[tokens])


def _from_uniform(transitions: Any, emissions: Any) -> HMM:
  """An HMM of rows that are divided by their sums."""
  return HMM(*map(fraction_rows, (np.ones(len(transitions)), transitions, emissions)))
