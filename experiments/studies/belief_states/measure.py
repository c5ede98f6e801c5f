"""Texts with their exact beliefs; probes of layers and of controls; patches; what a prompt does.

A measurement has a measure, such as R^2, and a reader, which is a layer of a model or a control.
"""

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
from hmm_jax.tuning.token_readers import one_hot_window, tokens_around

# The position that is read: the only [MASK], at an end or anywhere; or a token beside many [MASK]s.
DESIGNS = ('fixed', 'pooled', 'visible')
# A singular value of at most this share of the largest is rounding error.
_LEAST = 1e-6
# By (measure, reader).
Measured = dict[tuple[str, str], Any]


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

  def part(self, *ends: int | None) -> 'Texts':
    """The texts up to the first of `ends`, or from it to the second."""
    return Texts(*(field[slice(*ends)] for field in self))


def draw(s: BeliefSettings, hmm: Distribution, design: str, place: int, key: Array) -> Texts:
  """Texts of one of DESIGNS; `place` is the fixed position, 0 or -1."""
  key_tokens, key_places = jax.random.split(key)
  tokens = np.array(hj.sample_corpus(key_tokens, hmm, s.num_texts + s.num_held_out, s.downstream.length), int)
  order = np.asarray(jax.random.uniform(key_places, tokens.shape))
  positions = np.full(len(tokens), place % tokens.shape[1]) if design == 'fixed' else order.argmax(1)
  is_masked = (order > 1 - s.pretrain.mask_rate) & (design == 'visible')
  np.put_along_axis(is_masked, positions[:, None], design != 'visible', 1)
  inputs = np.where(is_masked, hmm.num_tokens, tokens)
  posterior = hj.forward_backward(hmm, hj.token_likelihoods(hmm, inputs, ~is_masked))
  texts = Texts(inputs, positions, *np.zeros((2, len(inputs), 0)))
  beliefs, without = (_wide(texts.read(x)) for x in (posterior.smoothed_probs, posterior.leave_one_out_probs))
  token_probs = without @ _wide(hmm.joint_emission_matrix)
  if isinstance(hmm, hj.MemoryHMM):
    beliefs = beliefs.reshape(len(inputs), -1, hmm.num_states).sum(-1)
  return texts._replace(beliefs=beliefs, token_probs=token_probs)


def _wide(values: Any) -> np.ndarray:
  return np.asarray(values, np.float64)


def divergence(probs: np.ndarray, others: Any) -> float:
  """The mean KL(probs || others) of rows in nats."""
  return float(scipy.special.rel_entr(probs, _wide(others)).sum(-1).mean())


class Probing(NamedTuple):
  """Texts of a design, the first `num_probed` of which probes are fitted to and scored on, the probes' key, and whether
  the beliefs that they read off the others are recorded."""

  texts: Texts
  num_probed: int
  key: Array
  is_drawn: bool = False

  def scores(self, reader: str, features: np.ndarray, *kinds: str, **options: Any) -> Measured:
    """R^2 of the first kind of probe of features [n, F]; KL of the last one, also as a share of the mean belief's."""
    n, beliefs = self.num_probed, self.texts.beliefs[: self.num_probed]
    probes = [
      hj.probe(features[:n], beliefs, self.key, kind=kind, **options) for kind in kinds or ('affine', 'softmax')
    ]
    first, last = probes[0], probes[-1]
    found = {'r_squared': first.r_squared, 'kl': last.kl, 'share': last.kl / divergence(beliefs, beliefs.mean(0))}
    if self.is_drawn:
      found['points'] = last(features[n:]).round(3).tolist()
    return {(measure, reader): value for measure, value in found.items()}


def controls(probing: Probing, reach: int) -> Measured:
  """How concentrated beliefs are, and scores of the exact G and of readers of `reach` tokens on each side."""
  texts, V = probing.texts, probing.texts.token_probs.shape[1]
  drawn = {('points', 'exact'): texts.beliefs[probing.num_probed :].round(3).tolist()} if probing.is_drawn else {}
  return {
    **drawn,
    ('entropy', 'exact'): float(scipy.special.entr(texts.beliefs).sum(-1).mean()),
    ('largest', 'exact'): float(texts.beliefs.max(-1).mean()),
    ('kl', 'mean belief'): divergence(texts.beliefs, texts.beliefs.mean(0)),
    **probing.scores('exact G', texts.token_probs),
    **probing.scores('window', texts.read(one_hot_window(texts.inputs, V, reach))),
    **probing.scores('table', texts.read(tokens_around(texts.inputs, V, reach)), 'table'),
  }


def layers(probing: Probing, model: MaskedLM, params: Any) -> Measured:
  """The scores of every layer, and of the last for shuffled beliefs; KL of predictions to G on other texts."""
  found, rest = Measured(), probing.texts.part(probing.num_probed, None)
  for layer, values in hj.activations(model, params, probing.texts.inputs).items():
    features = probing.texts.read(values)
    found |= probing.scores(layer, features)
  probs = hj.token_probs(model, params, rest.inputs, rest.positions[:, None])[:, 0]
  kl = divergence(rest.token_probs, probs)
  found['share', 'prediction'] = kl / divergence(rest.token_probs, rest.token_probs.mean(0))
  return found | {('kl', 'prediction'): kl} | probing.scores('shuffled', features, shuffled=True)


def patches(probing: Probing, model: MaskedLM, params: Any, hmm: Distribution) -> Measured:
  """KL of predictions to the exact one from another text's belief, as a share of that of no patch.

  The measure is the patch. The texts that probes do not read take each the belief of the one before it, at the one
  position of all.
  """
  fitted, texts = probing.texts.part(probing.num_probed), probing.texts.part(probing.num_probed, None)
  place, found = texts.positions[:1], Measured()
  expected = np.roll(texts.beliefs, 1, 0) @ _wide(hmm.joint_emission_matrix)
  streams = hj.activations(model, params, probing.texts.inputs)
  # A [MASK] has one embedding in all texts.
  for layer in [*streams][1:] or streams:
    values = probing.texts.read(streams[layer])
    for name, change in _changes(
      fitted, values[: probing.num_probed], texts, values[probing.num_probed :], probing.key
    ).items():
      patched = streams[layer][probing.num_probed :]
      patched[:, place[0]] = values[probing.num_probed :] + change
      probs = hj.with_activations(model, params, texts.inputs, {layer: patched}, positions=place)[:, 0]
      found[name, layer] = divergence(expected, probs) / found.get(('none', layer), 1)
  return found


def _changes(fitted: Texts, fitted_x: np.ndarray, texts: Texts, x: np.ndarray, key: Array) -> dict[str, np.ndarray]:
  """What each patch adds to the activations x [m, D]; maps are fitted to other texts. No patch comes first."""
  swap, new = np.roll(x, 1, 0) - x, np.roll(texts.beliefs, 1, 0) - texts.beliefs
  weights = lambda features, targets: hj.probe(features, targets, key).fitted[0]
  encoding = weights(fitted.beliefs, fitted_x)
  along, noise = new @ encoding, np.asarray(jax.random.normal(key, x.shape))
  predicted = fitted.token_probs @ weights(fitted.token_probs, fitted_x)
  belief, tokens, pca = map(_directions, (fitted.beliefs @ encoding, predicted, fitted_x))
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
    'pseudo-inverse': new @ np.linalg.pinv(weights(fitted_x, fitted.beliefs), rcond=_LEAST),
  }


def _directions(rows: np.ndarray) -> np.ndarray:
  """Orthonormal directions [R, D] that rows [n, D] vary in, the widest first."""
  _, sizes, directions = principal_directions(_wide(rows))
  return directions[sizes > _LEAST * sizes[0]]


def prompted(probing: Probing, model: MaskedLM, params: Any, hmm: Distribution, s: BeliefSettings) -> Measured:
  """How far a prompt, tuned for a task, takes activations of other texts from those that probes are fitted to.

  A distance is the median over texts of that to the nearest. Where the activation is a belief: its total variation from
  that without the prompt, and the mass on the states that the label weighs.
  """
  texts, n, place, found = probing.texts, probing.num_probed, probing.texts.positions[0], Measured()
  sizes = dict(length=s.downstream.length, num_train=s.downstream.num_train, num_test=s.downstream.num_test)
  task = hj.draw_task(hmm, probing.key, **sizes)
  tuned = hj.tune(model, params, hmm, task, prompt_length=s.prompt.length, schedule=s.schedule('prompt'))
  changed = hj.activations(model, params, texts.inputs[n:], prompt=tuned.prompt)
  for layer, values in hj.activations(model, params, texts.inputs).items():
    (seen, other), new = np.split(texts.read(values), [n]), changed[layer][:, s.prompt.length + place]
    distance = lambda rows, seen=seen: np.median(cdist(rows, seen).min(1))
    measured = {'distance': distance(other), 'distance, prompted': distance(new), 'accuracy': tuned.accuracy}
    if layer == 'beliefs':
      mass = lambda rows: rows[:, np.asarray(task.task_weights).any(0)].sum(-1).mean()
      moved = np.abs(new - other).sum(-1).mean() / 2
      measured |= {'total variation': moved, 'mass': mass(other), 'mass, prompted': mass(new)}
    found |= {(measure, layer): float(value) for measure, value in measured.items()}
  return found
