"""Texts with their exact beliefs; probes of what readers see; patches; what a prompt does.

A reader, such as a layer or a control, is features [n, F] of texts by its name. Measurements are by reader.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax import Array
import numpy as np
from scipy.spatial.distance import cdist
import scipy.special

from experiments.studies.settings import BeliefSettings
import hmm_jax as hj
from hmm_jax.distributions.hmm import Distribution
from hmm_jax.models.model import MaskedLM
from hmm_jax.tuning.optimum import principal_directions
from hmm_jax.tuning.token_readers import tokens_around

# The position that is read: the only [MASK], at an end or anywhere; or a token beside many [MASK]s.
DESIGNS = ('fixed', 'pooled', 'visible')
# Tokens on each side of the position that window and table read.
_REACH = 8
# Of the texts of probes: training, validation, test.
_SPLITS = (0.8, 0.1, 0.1)
# A singular value of at most this share of the largest is rounding error.
_LEAST = 1e-6
# By reader, its fields of a record.
Measured = dict[str, dict[str, Any]]


class Texts(NamedTuple):
  """Texts of a design, one position of each, and what is known of it.

  Attributes:
    inputs: [n, T]; [MASK] is V.
    positions: [n].
    beliefs: [n, C], P[H_i | X], which at a [MASK] is P[H_i | X_{-i}]; with a memory P[M | X].
    token_probs: [n, V], the exact G there.
  """

  inputs: np.ndarray
  positions: np.ndarray
  beliefs: np.ndarray
  token_probs: np.ndarray

  def read(self, values: Any) -> np.ndarray:
    """The rows [n, ...] at the positions of values [n, T, ...]."""
    return values[np.arange(len(values)), self.positions]


def draw(s: BeliefSettings, hmm: Distribution, design: str, place: int, key: Array) -> list[Texts]:
  """Texts of one of DESIGNS for probes, and a tenth as many others, which are patched, prompted and drawn.

  `place` is the fixed position, 0 or -1.
  """
  key_tokens, key_order = jax.random.split(key)
  tokens = np.asarray(hj.sample_corpus(key_tokens, hmm, s.num_texts + s.num_texts // 10, s.downstream.length), int)
  order = np.array(jax.random.uniform(key_order, tokens.shape))
  order[:, place] += design == 'fixed'
  # The position that is read has the largest number.
  is_masked = order < s.pretrain.mask_rate if design == 'visible' else order == order.max(1, keepdims=True)
  inputs, rows = np.where(is_masked, hmm.num_tokens, tokens), (np.arange(len(tokens)), order.argmax(1))
  posterior = hj.forward_backward(hmm, hj.token_likelihoods(hmm, inputs, ~is_masked))
  beliefs, without = (
    np.asarray(p, np.float64)[rows] for p in (posterior.smoothed_probs, posterior.leave_one_out_probs)
  )
  if isinstance(hmm, hj.MemoryHMM):
    beliefs = beliefs.reshape(len(inputs), -1, hmm.num_states).sum(-1)
  fields = inputs, rows[1], beliefs, without @ np.float64(hmm.joint_emission_matrix)
  return [Texts(*part) for part in zip(*(np.split(field, [s.num_texts]) for field in fields))]


def divergence(probs: np.ndarray, others: Any) -> float:
  """The mean KL(probs || others) of rows in nats."""
  return float(scipy.special.rel_entr(probs, np.asarray(others, np.float64)).sum(-1).mean())


def _of_kl(kl: float, probs: np.ndarray) -> dict[str, Any]:
  """A KL in nats, and as a share of that of the best constant answer to probs; nothing if it is infinite."""
  return {'kl': kl, 'share': kl / divergence(probs, probs.mean(0))} if np.isfinite(kl) else {}


def controls(texts: Texts) -> dict[str, np.ndarray]:
  """Readers without a network: the exact G, and the tokens near the position, as one-hot rows and as they are."""
  V = texts.token_probs.shape[1]
  around = texts.read(tokens_around(texts.inputs, V, _REACH))
  return {'exact G': texts.token_probs, 'window': np.eye(V + 2)[around].reshape(len(around), -1), 'table': around}


def layers(model: MaskedLM, params: Any, texts: Texts) -> dict[str, np.ndarray]:
  """The layers of a model as readers, and the last once more, for shuffled beliefs."""
  found = {name: texts.read(values) for name, values in hj.activations(model, params, texts.inputs).items()}
  return {**found, 'shuffled': [*found.values()][-1]}


def scores(read: Callable[[Texts], dict[str, np.ndarray]], texts: list[Texts], key: Array) -> Measured:
  """R^2 of an affine probe of each reader and KL of a softmax probe; a table has both itself.

  At a fixed position also the beliefs of three states that are read off the other texts.
  """
  (probed, _), found = texts, Measured()
  features, others = map(read, texts)
  for reader, rows in features.items():
    affine, law = (
      hj.probe(rows, probed.beliefs, key, kind=kind, splits=_SPLITS, shuffled=reader == 'shuffled')
      for kind in (('table', 'table') if reader == 'table' else ('affine', 'softmax'))
    )
    found[reader] = {'r_squared': affine.r_squared, **_of_kl(law.kl, probed.beliefs)}
    if is_drawn(probed):
      found[reader]['points'] = law(others[reader]).round(3).tolist()
  return found


def is_drawn(texts: Texts) -> bool:
  """True for beliefs over three states at one position, which a triangle shows."""
  return texts.beliefs.shape[1] == 3 and not np.ptp(texts.positions)


def exact(texts: list[Texts]) -> Measured:
  """The mean largest probability of beliefs, and those that are drawn."""
  probed, others = texts
  drawn = {'points': others.beliefs.round(3).tolist()} if is_drawn(others) else {}
  return {'exact': {'largest': float(probed.beliefs.max(-1).mean()), **drawn}}


def prediction(texts: list[Texts], model: MaskedLM, params: Any) -> Measured:
  """KL of predictions to the exact G."""
  _, others = texts
  probs = hj.token_probs(model, params, others.inputs, others.positions[:, None])[:, 0]
  return {'prediction': _of_kl(divergence(others.token_probs, probs), others.token_probs)}


def patches(texts: list[Texts], model: MaskedLM, params: Any, hmm: Distribution, key: Array) -> dict[str, Measured]:
  """KL to the exact prediction from another text's belief after each patch, in nats and as a share of no patch.

  Each text takes the belief of the one before it, at the one position of all. Readers are patches; by layer.
  """
  probed, others = texts
  seen, streams = layers(model, params, probed), hj.activations(model, params, others.inputs)
  expected = np.roll(others.beliefs, 1, 0) @ np.float64(hmm.joint_emission_matrix)
  found, place = dict[str, Measured](), others.positions[:1]
  # A [MASK] has one embedding in all texts.
  for layer in [*streams][1:] or streams:
    x, patched, kl = others.read(streams[layer]), streams[layer].copy(), dict[str, float]()
    for name, change in _changes(probed, seen[layer], others, x, key).items():
      patched[:, place[0]] = x + change
      probs = hj.with_activations(model, params, others.inputs, {layer: patched}, positions=place)[:, 0]
      kl[name] = divergence(expected, probs)
    found[layer] = {name: {'kl': value, 'share': value / kl['none']} for name, value in kl.items()}
  return found


def _changes(seen: Texts, seen_x: np.ndarray, texts: Texts, x: np.ndarray, key: Array) -> dict[str, np.ndarray]:
  """The change of activations x [m, D] by each patch; maps are fitted to seen texts."""
  new, swap = (np.roll(rows, 1, 0) - rows for rows in (texts.beliefs, x))
  weights = lambda features, targets: hj.probe(features, targets, key).fitted[0]
  encoding = weights(seen.beliefs, seen_x)
  along, noise = new @ encoding, np.asarray(jax.random.normal(key, x.shape))
  predicted = seen.token_probs @ weights(seen.token_probs, seen_x)
  belief, tokens, pca = map(_directions, (seen.beliefs @ encoding, predicted, seen_x))
  within = lambda basis: swap @ basis.T @ basis
  size = lambda rows: np.linalg.norm(rows, axis=1, keepdims=True)
  return {
    'none': 0 * swap,
    'full': swap,
    'encoding': along,
    'belief subspace': within(belief),
    'complement': swap - within(belief),
    'random': noise * size(along) / size(noise),
    'PCA': within(pca[: len(belief)]),
    'token subspace': within(tokens),
    'belief, rank of tokens': within(belief[: len(tokens)]),
    'pseudo-inverse': new @ np.linalg.pinv(weights(seen_x, seen.beliefs), rcond=_LEAST),
  }


def _directions(rows: np.ndarray) -> np.ndarray:
  """Orthonormal directions [R, D] that rows [n, D] vary in, the widest first."""
  _, sizes, directions = principal_directions(np.asarray(rows, np.float64))
  return directions[sizes > _LEAST * sizes[0]]


def prompted(texts: list[Texts], model: MaskedLM, params: Any, prompt: Array | np.ndarray) -> Measured:
  """The distance to which a prompt takes activations of the other texts from those that probes are fitted to.

  A distance is the median over texts of that to the nearest. The shift is half the mean l1 distance to the same text
  without the prompt: of beliefs, the total variation.
  """
  (_, others), found = texts, Measured()
  after = others._replace(positions=others.positions + len(prompt))
  seen, plain = (layers(model, params, each) for each in texts)
  for layer, values in hj.activations(model, params, others.inputs, prompt=prompt).items():
    new, old = after.read(values), plain[layer]
    apart, prompted_apart = (float(np.median(cdist(rows, seen[layer]).min(1))) for rows in (old, new))
    shift = float(np.abs(new - old).sum(-1).mean() / 2)
    found[layer] = {'distance': apart, 'distance_prompted': prompted_apart, 'shift': shift}
  return found
