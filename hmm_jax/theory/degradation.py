"""Ideal conditions made worse by a known amount: a noisy G, a nearly singular W, supports that leak.

The theorems do not apply here; `experiments/studies/degradation.py` measures what is left of them.
"""

import dataclasses
import functools
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
from hmm_jax.tuning.heads import LinearHead

_TINY = np.finfo(np.float32).tiny


class Noisy(NamedTuple):
  """The parameters of `NoisyModel`.

  Attributes:
    distribution: an `HMM` or a `MemoryHMM`, whose G is made noisy.
    scale: [], the standard deviation of the noise on log-probabilities.
    salt: [] uint32, the seed of the noise.
    forgetting: [], f from 0 to 1, the weight of Q, which sees the nearest positions alone.
  """

  distribution: Distribution
  scale: Array | np.ndarray
  salt: Array | np.ndarray
  forgetting: Array | np.ndarray


@dataclasses.dataclass(frozen=True)
class NoisyModel(MaskedLM):
  """The exact model with predictions proportional to ((1 - f) G + f Q) exp(scale z); parameters are `Noisy`.

  z is iid standard normal, a fixed function of the whole embedded input, prompt included. So the model is
  deterministic, as a pretrained one is, but has no pattern that a head or prompt could learn: gradients see the mixture
  alone. For small scales KL(G || model) is about scale^2 / 2 times one minus the sum of squares of G.

  Q is G given the nearest positions alone, Q_i = P[X_i | X_j with 0 < |j - i| <= reach], and f is `forgetting`: a
  structured error, like that of an early checkpoint, which learns short contexts first.
  """

  num_tokens: int
  reach: int

  name = 'noisy'
  prompt_space = ExactModel.prompt_space

  def embed(self, params: Noisy, tokens: Array) -> Array:
    return self._exact.embed(params.distribution, tokens)

  def predict(self, params: Noisy, embeddings: Array, positions: Positions = None) -> Array:
    ideal = self._exact.predict(params.distribution, embeddings, positions)
    return _noisy(params, ideal, self._nearby(params, embeddings, positions), embeddings, positions)

  def predict_prompted(
    self, params: Noisy, prompts: Array, tokens: Array, positions: Positions = None, place: int = 0
  ) -> Array:
    """Override as fast as `ExactModel`'s if `positions` is the numpy array [P], the first text position."""
    embeddings = prepend(prompts, self.embed(params, tokens), place)
    first = prompts.shape[-2]
    if place or not isinstance(positions, np.ndarray) or positions.tolist() != [first]:
      return self.predict(params, embeddings, positions)
    predict = functools.partial(self._exact.predict_prompted, params.distribution)
    is_near = np.arange(first) >= first - self.reach
    nearby = predict(jnp.where(is_near[:, None], prompts, 1), tokens[:, : 1 + self.reach], positions)
    return _noisy(params, predict(prompts, tokens, positions), nearby, embeddings, positions)

  @property
  def _exact(self) -> ExactModel:
    return ExactModel(self.num_tokens)

  def _nearby(self, params: Noisy, embeddings: Array, positions: Positions) -> Array:
    """Q [..., Q, V] at `positions` of embeddings [..., T, E]."""
    times = jnp.arange(embeddings.shape[-2])
    read = times if positions is None else positions
    is_near_QxT = jnp.abs(read[..., None] - times) <= self.reach
    alone = jnp.where(is_near_QxT[..., None], embeddings[..., None, :, :], 1)
    probs_QxTxV = self._exact.predict(params.distribution, alone)
    read = jnp.broadcast_to(read, probs_QxTxV.shape[:-2])
    return at_positions(probs_QxTxV, read[..., None])[..., 0, :]


def _noisy(params: Noisy, ideal: Array, nearby: Array, embeddings: Array, positions: Positions) -> Array:
  """G and Q [..., Q, V] at `positions` of embeddings [..., T, E], mixed and made noisy."""
  probs = (1 - params.forgetting) * ideal + params.forgetting * nearby
  noise = lax.stop_gradient(_noise(params.salt, embeddings, ideal.shape[-1]))
  noisy = probs * jnp.exp(params.scale * at_positions(noise, positions))
  return jnp.divide(noisy, positive_or_one(noisy.sum(-1, keepdims=True)))


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


def with_kl(model: NoisyModel, whole: Noisy, tokens: np.ndarray, ideal_nxV: np.ndarray, kl: float) -> Noisy:
  """A share of an error, at which the mean KL(G || model) is `kl` nats, or the largest share if that has less.

  Args:
    model: whose first prediction counts.
    whole: its parameters with noise of scale 1 or a forgetting of 1, the other 0. The largest share of noise is 30,
      which leaves little of G; that of forgetting is 1.
    tokens: [n, T].
    ideal_nxV: G at the first token.
    kl: at least 0.
  """
  probs = np.float64(token_probs(model, whole, tokens, np.array([0]))[:, 0])
  ratios = np.maximum(probs, _TINY) / np.maximum(ideal_nxV, _TINY)

  def excess(share: float) -> float:
    if whole.forgetting:
      return mean_kl(ideal_nxV, (1 - share) * ideal_nxV + share * probs) - kl
    noisy = ideal_nxV * ratios**share
    return mean_kl(ideal_nxV, noisy / noisy.sum(-1, keepdims=True)) - kl

  share = 1.0 if whole.forgetting else 30.0
  if kl == 0:
    share = 0.0
  elif excess(share) > 0:
    share = scipy.optimize.brentq(excess, 0.0, share, xtol=1e-9)
  scale, forgetting = (np.asarray(share * size, np.float32) for size in (whole.scale, whole.forgetting))
  return whole._replace(scale=scale, forgetting=forgetting)


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
