"""The models of the study: the exact G with an error of a given KL, and BERTs along their pretraining."""

from collections.abc import Callable
from typing import Any

import jax
from jax import Array
import numpy as np
import scipy.special

from experiments.pipeline import batched_tuning, pretraining
from experiments.runtime.progress import Reporter
from experiments.studies.degradation.problems import Problem
from experiments.studies.degradation.settings import DegradationSettings
from hmm_jax import sharding
from hmm_jax.sampling import sample_corpus
from hmm_jax.theory.problems.degradation import level_for_kl, Noisy, NoisyModel

# Noise on log-probabilities beyond which predictions have little left of G.
_MOST_NOISE = 30.0


def kl(ideal_nxV: np.ndarray, probs_nxV: np.ndarray) -> float:
  """The mean KL(G || model) over inputs, in nats."""
  probs = np.maximum(np.float64(probs_nxV), np.finfo(np.float32).tiny)
  return float(scipy.special.rel_entr(ideal_nxV, probs).sum(-1).mean())


def noisy_model(s: DegradationSettings) -> NoisyModel:
  return NoisyModel(s.num_tokens, s.reach)


def with_error(
  s: DegradationSettings, chosen: list[Problem], salts: list[np.ndarray], error: str, level: float
) -> list[Noisy]:
  """The noisy model's parameters with 'noise' or 'short_context' of KL `level`, or all the way where that has less.

  A salt tells the noise of a problem from that of others, and not from that of the same HMM at another level.
  """
  is_noise = error == 'noise'
  noisy = lambda problem, salt, level: Noisy(
    batched_tuning.float32(problem.hmm),
    np.asarray(level * is_noise, np.float32),
    salt,
    np.asarray(level * (not is_noise), np.float32),
  )
  tuner = batched_tuning.tuners(noisy_model(s), s)['head']
  whole = batched_tuning.stacked([noisy(problem, salt, 1.0) for problem, salt in zip(chosen, salts)])
  seen = batched_tuning.features(tuner, whole, np.stack([problem.inputs for problem in chosen]))
  kl_at = _kl_of_noise if is_noise else _kl_of_mixture
  levels = [
    level_for_kl(kl_at(problem.ideal, np.asarray(probs, np.float64)), level, _MOST_NOISE if is_noise else 1.0)
    for problem, probs in zip(chosen, seen)
  ]
  return [noisy(problem, salt, level) for problem, salt, level in zip(chosen, salts, levels)]


def _kl_of_noise(ideal: np.ndarray, with_unit_noise: np.ndarray) -> Callable[[float], float]:
  """KL against the scale of the noise, which is told from predictions with noise of scale 1."""
  tiny = np.finfo(np.float32).tiny
  noise = np.log(np.maximum(with_unit_noise, tiny) / np.maximum(ideal, tiny))

  def kl_at(scale: float) -> float:
    probs = ideal * np.exp(scale * noise)
    return kl(ideal, probs / probs.sum(-1, keepdims=True))

  return kl_at


def _kl_of_mixture(ideal: np.ndarray, with_short_context: np.ndarray) -> Callable[[float], float]:
  """KL against the share of the short context."""
  return lambda share: kl(ideal, (1 - share) * ideal + share * with_short_context)


def pretrained(s: DegradationSettings, problem: Problem, key: Array, reporter: Reporter) -> dict[int, Any]:
  """BERT's parameters at each checkpoint of a pretraining on the problem's text."""
  b, bert = s.bert, s.bert.model.module(s.num_tokens)
  key_text, key_init, key_steps = jax.random.split(key, 3)
  init, train_steps = pretraining.compiled(bert, b, b.checkpoints[-1], sharding.make_mesh())
  state, hmm = init(key_init), batched_tuning.float32(problem.hmm)
  corpus = jax.device_put(sample_corpus(key_text, hmm, b.num_documents, b.document_length), state.step.sharding)
  return dict(pretraining.along(train_steps, state, corpus, key_steps, b.checkpoints, b.steps_per_call, reporter))
