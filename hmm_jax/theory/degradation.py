"""Ideal conditions made worse by a known amount: a noisy G, a nearly singular W, supports that leak.

The theorems do not apply here; `experiments/studies/degradation.py` measures what is left of them.
"""

import dataclasses
from typing import NamedTuple

import jax
from jax import Array, lax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
import scipy.special

from hmm_jax._support.float64 import float64, positive_or_one
from hmm_jax.distributions.hmm import Distribution, HMM
from hmm_jax.models.model import at_positions, ExactModel, MaskedLM, Positions, prepend, token_probs
from hmm_jax.theory.enumeration import normalised
from hmm_jax.tuning.heads import LinearHead

_TINY = np.finfo(np.float32).tiny
# Noise of this scale leaves little of G.
_LARGEST_SCALE = 30.0


class Noisy(NamedTuple):
  """The parameters of `NoisyModel`.

  Attributes:
    distribution: an `HMM` or a `MemoryHMM`, whose G is made noisy.
    scale: [], the standard deviation of the noise on log-probabilities.
    salt: [] uint32, the seed of the noise.
  """

  distribution: Distribution
  scale: Array | np.ndarray
  salt: Array | np.ndarray


@dataclasses.dataclass(frozen=True)
class NoisyModel(MaskedLM):
  """The exact model with predictions proportional to G exp(scale z); parameters are `Noisy`.

  z is iid standard normal, a fixed function of the whole embedded input, prompt included. So the model is
  deterministic, as a pretrained one is, but has no pattern that a head or prompt could learn: gradients see G alone.
  For small scales KL(G || model) is about scale^2 / 2 times one minus the sum of squares of G.
  """

  num_tokens: int

  name = 'noisy'
  prompt_space = ExactModel.prompt_space

  def embed(self, params: Noisy, tokens: Array) -> Array:
    return self._exact.embed(params.distribution, tokens)

  def predict(self, params: Noisy, embeddings: Array, positions: Positions = None) -> Array:
    ideal = self._exact.predict(params.distribution, embeddings, positions)
    return _noisy(params, ideal, embeddings, positions)

  def predict_prompted(
    self, params: Noisy, prompts: Array, tokens: Array, positions: Positions = None, place: int = 0
  ) -> Array:
    """Override as fast as `ExactModel`'s."""
    ideal = self._exact.predict_prompted(params.distribution, prompts, tokens, positions, place)
    embeddings = prepend(prompts, self.embed(params, tokens), place)
    return _noisy(params, ideal, embeddings, positions)

  @property
  def _exact(self) -> ExactModel:
    return ExactModel(self.num_tokens)


def _noisy(params: Noisy, ideal: Array, embeddings: Array, positions: Positions) -> Array:
  """G [..., Q, V] at `positions` of embeddings [..., T, E], made noisy."""
  noise = at_positions(_noise(params.salt, embeddings, ideal.shape[-1]), positions)
  noisy = ideal * jnp.exp(params.scale * lax.stop_gradient(noise))
  return jnp.divide(noisy, positive_or_one(noisy.sum(-1, keepdims=True)))


def _noise(salt: Array | np.ndarray, embeddings: Array, num_tokens: int) -> Array:
  """Standard normal numbers [..., T, V] decided by the bits of each embedded sequence [..., T, E] and the salt."""
  *batch, length, size = embeddings.shape
  bits = lax.bitcast_convert_type(embeddings.astype(jnp.float32), jnp.uint32)
  bits = bits.reshape(-1, length * size)
  # An odd multiplier for each place, and a mixing of high bits into low ones before it.
  places = jax.random.bits(jax.random.key(0), bits.shape[1:], jnp.uint32) | 1
  mixed = bits ^ (bits >> 15)
  seeds = (mixed * places).sum(-1, dtype=jnp.uint32) ^ salt
  draw = lambda seed: jax.random.normal(jax.random.key(seed), (length, num_tokens))
  return jax.vmap(draw)(seeds).reshape(*batch, length, num_tokens)


def with_smallest_singular_value(hmm: HMM, target: float) -> HMM:
  """The HMM with the emissions of state 1 moved towards those of state 0 until W has this smallest singular value.

  The value falls to 0 continuously on the way, so that every smaller one is attained; scipy raises ValueError for a
  larger one. `hmm` has at most as many states as tokens.
  """
  W = float64(hmm.emission_matrix)

  def moved(share: float) -> np.ndarray:
    rows = W.copy()
    rows[1] = (1 - share) * W[1] + share * W[0]
    return rows

  smallest = lambda share: np.linalg.svd(moved(share), compute_uv=False)[-1]
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


def mean_kl(ideal_nxV: np.ndarray, probs_nxV: np.ndarray) -> float:
  """The mean KL(G || model) over inputs, in nats."""
  return float(scipy.special.rel_entr(ideal_nxV, np.maximum(probs_nxV, _TINY)).sum(-1).mean())


def with_kl(model: NoisyModel, params: Noisy, tokens: np.ndarray, ideal_nxV: np.ndarray, kl: float) -> Noisy:
  """The parameters with a scale of noise at which the mean KL(G || model) is `kl` nats; at most 30.

  Args:
    model: whose first prediction counts.
    params: with scale 1.
    tokens: [n, T].
    ideal_nxV: G at the first token.
    kl: at least 0.
  """
  probs = np.float64(token_probs(model, params, tokens, np.array([0]))[:, 0])
  ratios = np.maximum(probs, _TINY) / np.maximum(ideal_nxV, _TINY)

  def excess(scale: float) -> float:
    return mean_kl(ideal_nxV, normalised(ideal_nxV * ratios**scale)) - kl

  scale = _LARGEST_SCALE
  if kl == 0:
    scale = 0.0
  elif excess(scale) > 0:
    scale = scipy.optimize.brentq(excess, 0.0, scale, xtol=1e-9)
  return params._replace(scale=np.asarray(scale, np.float32))


def weighted_head(head: LinearHead, columns_VxS: np.ndarray, errors_nxV: np.ndarray, ridge: float) -> LinearHead:
  """A theorem's head with the generalised least-squares left inverse of W's columns, for a noisy G.

  The head is M W^+ with the pseudo-inverse W^+, so that M = head W; of all left inverses, W^+_S = (W^T S^-1 W)^-1 W^T
  S^-1 has the least variance under errors of covariance S (Gauss-Markov). Both give the same on the exact G.

  Args:
    head: of `theorem_3_3` or `theorem_3_6`, without bias.
    columns_VxS: W, the columns that the head inverts: all of them, or those of H*.
    errors_nxV: of a model, prediction minus G; S is their second moment plus `ridge` times its mean diagonal, plus the
      square of a rounding error of float32, on the diagonal.
    ridge: positive, since errors sum to 0 and S alone is singular.
  """
  S = errors_nxV.T @ errors_nxV / len(errors_nxV)
  S += (ridge * S.trace() / len(S) + np.finfo(np.float32).eps ** 2) * np.eye(len(S))
  # W^+_S = (R W)^+ R with R^T R = S^-1.
  whiten = np.linalg.inv(np.linalg.cholesky(S))
  left_inverse = np.linalg.pinv(whiten @ columns_VxS) @ whiten
  return LinearHead((head.weights.T @ columns_VxS @ left_inverse).T, head.bias)
