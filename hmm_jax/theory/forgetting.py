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
from typing import Any

import jax
from jax import Array
import numpy as np
from numpy.typing import ArrayLike

from hmm_jax._support import arguments, float64
from hmm_jax.distributions.hmm import HMM
from hmm_jax.distributions.memory_hmm import MemoryHMM, to_hmm
from hmm_jax.models.model import ExactModel


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
  chain = jax.tree.map(float64.float64, to_hmm(hmm) if isinstance(hmm, MemoryHMM) else hmm)
  model, W = ExactModel(chain.num_tokens, causal), chain.emission_matrix
  laws = lambda start: _beliefs(model, chain.starting_from(start), tokens) @ W
  alone, delta = laws(chain.initial_probs), np.zeros(np.shape(tokens))
  for start in np.eye(chain.num_states):
    law = laws(start)
    delta = np.maximum(delta, np.where(law.any(-1), np.abs(law - alone).sum(-1) / 2, 0))
  return delta


@functools.partial(float64.jit, returns_float64=True, static_argnames='model')
def _beliefs(model: ExactModel, hmm: HMM, tokens: Any) -> Array:
  return model.represent(hmm, model.embed(hmm, tokens))
