"""Ideal conditions made worse by a known amount: a noisy G, a nearly singular W, supports that leak.

The theorems say nothing here; what is left of them is measured (`experiments/theory/degradation.py`).
"""

import dataclasses
from typing import NamedTuple

import jax
from jax import Array, lax
import jax.numpy as jnp
import numpy as np
import scipy.optimize

from hmm_jax.float64 import positive_or_one
from hmm_jax.hmm import Distribution, HMM
from hmm_jax.model import at_positions, ExactModel, Positions, prepend


class Noisy(NamedTuple):
  """The parameters of `NoisyModel`.

  Attributes:
    distribution: an `HMM` or a `MemoryHMM`, whose G is made noisy.
    scale: [], the standard deviation of the noise on log-probabilities.
    salt: [] uint32; another one is other noise.
  """

  distribution: Distribution
  scale: Array | np.ndarray
  salt: Array | np.ndarray


@dataclasses.dataclass(frozen=True)
class NoisyModel:
  """The exact model with predictions proportional to G * exp(scale * z), z iid standard normal; parameters are `Noisy`.

  The noise is a fixed function of the whole embedded input, prompt included, so that the model is as deterministic as
  a pretrained one, and without any pattern that a head or prompt could learn. Gradients see G alone. For small scales
  KL(G || model) is about scale^2 / 2 times one minus the sum of squares of G.
  """

  num_tokens: int

  name = 'noisy'
  prompt_space = ExactModel.prompt_space

  def embed(self, params: Noisy, tokens: Array) -> Array:
    return ExactModel(self.num_tokens).embed(params.distribution, tokens)

  def predict(self, params: Noisy, embeddings: Array, positions: Positions = None) -> Array:
    probs = ExactModel(self.num_tokens).predict(params.distribution, embeddings, positions)
    return _noisy(params, probs, embeddings, positions)

  def predict_prompted(self, params: Noisy, prompts: Array, tokens: Array, positions: Positions = None) -> Array:
    probs = ExactModel(self.num_tokens).predict_prompted(params.distribution, prompts, tokens, positions)
    return _noisy(params, probs, prepend(prompts, self.embed(params, tokens)), positions)

  def represent(self, params: Noisy, embeddings: Array, positions: Positions = None) -> Array:
    return ExactModel(self.num_tokens).represent(params.distribution, embeddings, positions)

  def embedding_size(self, params: Noisy) -> int:
    return ExactModel(self.num_tokens).embedding_size(params.distribution)


def _noisy(params: Noisy, probs: Array, embeddings: Array, positions: Positions) -> Array:
  """Token probabilities [..., Q, V] at `positions` of embeddings [..., T, E], made noisy."""
  noise = lax.stop_gradient(_noise(params.salt, embeddings, probs.shape[-1]))
  noisy = probs * jnp.exp(params.scale * at_positions(noise, positions))
  return noisy / positive_or_one(noisy.sum(-1, keepdims=True))


def _noise(salt: Array | np.ndarray, embeddings: Array, num_tokens: int) -> Array:
  """Standard normal numbers [..., T, V] decided by the bits of each embedded sequence [..., T, E] and the salt."""
  bits = lax.bitcast_convert_type(embeddings.astype(jnp.float32), jnp.uint32)
  bits = bits.reshape(bits.shape[:-2] + (-1,))
  # An odd multiplier for each place, and a mixing of high bits into low ones before it.
  places = jax.random.bits(jax.random.key(0), bits.shape[-1:], jnp.uint32) | 1
  hashed = ((bits ^ (bits >> 15)) * places).sum(-1, dtype=jnp.uint32) ^ salt
  keys, shape = jax.vmap(jax.random.key)(hashed.reshape(-1)), (embeddings.shape[-2], num_tokens)
  return jax.vmap(lambda key: jax.random.normal(key, shape))(keys).reshape(*hashed.shape, *shape)


def with_smallest_singular_value(hmm: HMM, target: float) -> HMM:
  """The HMM with the emissions of state 1 moved towards those of state 0 until W has this smallest singular value.

  The value falls to 0 continuously on the way, so that every one below the present one is met.

  Raises:
    ValueError: `target` is not between 0 and the present smallest singular value.
  """
  W = np.asarray(hmm.emission_matrix, np.float64)

  def moved(share: float) -> np.ndarray:
    rows = W.copy()
    rows[1] = (1 - share) * W[1] + share * W[0]
    return rows

  smallest = lambda share: np.linalg.svd(moved(share), compute_uv=False)[-1]
  if not 0 < target <= smallest(0.0) or W.shape[0] > W.shape[1]:
    raise ValueError(f'target is {target}; valid is above 0 and at most {smallest(0.0):.3g}, what W has')
  share = scipy.optimize.brentq(lambda share: smallest(share) - target, 0.0, 1.0, xtol=1e-15)
  return hmm._replace(emission_matrix=moved(share))


def leaking(hmm: HMM, states: np.ndarray, into: np.ndarray, share: float) -> HMM:
  """The HMM whose `states` (B) move with probability `share` into states outside `into` (H*), uniformly.

  Assumption 3.5 holds at share 0; above, its supports hold up to a threshold of share / (H - |H*|).
  """
  outside = np.setdiff1d(np.arange(hmm.num_states), into)
  transition_matrix = np.array(hmm.transition_matrix, np.float64)
  transition_matrix[states] *= 1 - share
  transition_matrix[np.ix_(states, outside)] += share / len(outside)
  return hmm._replace(transition_matrix=transition_matrix)
