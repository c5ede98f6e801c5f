"""A prefix moves an exact prediction by at most what the text does not forget of its first state.

Let u be a prefix of any length, tokens or rows in [0, 1]^H, and x a text. The unnormalised law of the state after it
is alpha = (A^T D_{x_n}) ... (A^T D_{x_1}) pi_u, where D_x is the diagonal matrix of a token's likelihoods and rows of
A sum to 1. It is linear in pi_u, the law of the first state given u. With G^h the prediction of the chain that begins
in state h, hence

  G(u, x) = sum_h w_h G^h(x),  w_h proportional to pi_u(h) P[x | H_1 = h],

a convex combination over the starts h that can make x. So the total variation between G(u, x) and G(x) is at most
delta(x) = max_h TV(G^h(x), G(x)), and the score b^T G of a head moves by at most delta(x) times the largest minus the
smallest entry of b. Tokens after a masked one multiply alpha by their message and change no step.
"""

import functools

import numpy as np
from numpy.typing import ArrayLike

from hmm_jax._support import arguments
from hmm_jax._support.blocks import even_size, in_blocks
from hmm_jax._support.float64 import float64, positive_or_one
from hmm_jax.distributions.hmm import HMM
from hmm_jax.distributions.memory_hmm import MemoryHMM, to_hmm

# Numbers of the messages of a block of texts.
_ENTRIES = 2**24


@arguments.converted
def prefix_bound(hmm: HMM | MemoryHMM, tokens: ArrayLike, *, causal: bool = True) -> np.ndarray:
  """delta [n, T]: the most that any prefix moves the exact prediction of each token of texts [n, T], total variation.

  delta_i = max_h TV(P[X_i | x, H_1 = h], P[X_i | x]), x the tokens before i, with `causal` False all others; over the
  starts h that can make x, 0 if there is none. Column i of a causal one is what is left after i tokens. In float64; a
  start whose probabilities underflow counts as impossible.

  Args:
    hmm: the chain; of a memory its joint states.
    tokens: [MASK], the id V, is not seen.
    causal: whether a prediction sees only the tokens before it.

  >>> hmm = HMM(np.array([0.5, 0.5]), np.array([[0, 1.0], [1, 0]]), np.array([[1, 0], [0.5, 0.5]]))
  >>> prefix_bound(hmm, [[1, 0, 0]]).tolist()  # only state 1 makes token 1
  [[0.25, 0.0, 0.0]]
  """
  arguments.check_ids('tokens', tokens, hmm.num_tokens + 1)
  chain = to_hmm(hmm) if isinstance(hmm, MemoryHMM) else hmm
  texts = np.asarray(tokens)
  size = even_size(len(texts), chain.num_states**2, _ENTRIES)
  return in_blocks(functools.partial(_of_block, chain, causal), texts, size)


def _of_block(hmm: HMM, causal: bool, tokens: np.ndarray) -> np.ndarray:
  pi, A, W = map(float64, (hmm.initial_probs, hmm.transition_matrix, hmm.emission_matrix))
  likelihoods_TxBxH = np.column_stack([W, np.ones(len(W))]).T[tokens.T]
  after = [np.ones_like(likelihoods_TxBxH[0])]
  for row in likelihoods_TxBxH[:0:-1]:
    after.append(after[-1] if causal else _scaled((row * after[-1]) @ A.T))
  # The chain itself, and one start in each state.
  alpha_BxSxH = np.broadcast_to(np.vstack([pi, np.eye(len(pi))]), (len(tokens), len(pi) + 1, len(pi)))
  delta = []
  for row, beta in zip(likelihoods_TxBxH, reversed(after)):
    state_probs = _scaled(alpha_BxSxH * beta[:, None])
    laws = state_probs @ W
    moved = np.abs(laws[:, 1:] - laws[:, :1]).sum(-1) / 2
    delta.append(np.where(state_probs[:, 1:].any(-1), moved, 0).max(-1))
    alpha_BxSxH = _scaled((alpha_BxSxH * row[:, None]) @ A)
  return np.stack(delta, axis=1)


def _scaled(weights: np.ndarray) -> np.ndarray:
  """The weights divided by their sum over the last axis; zeros stay."""
  return weights / positive_or_one(weights.sum(-1, keepdims=True))
