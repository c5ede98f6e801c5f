"""The models of the study: the exact G with an error of a given KL, and BERTs along their pretraining."""

import functools
from typing import Any

import jax
from jax import Array
import numpy as np
import scipy.special

from experiments.pipeline import batched_tuning, pretraining
from experiments.runtime.progress import Reporter
from experiments.studies.degradation.problems import Condition, Problem
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


def with_error(
  s: DegradationSettings, model: NoisyModel, salts: list[np.ndarray], condition: Condition, chosen: list[Problem]
) -> list[Noisy]:
  """The noisy model's parameters with an error of the condition's KL, or all the way where that has less.

  A salt makes the noise of a problem differ from that of others, and not from that of the same HMM at another level.
  """
  zero, one = np.float32(0), np.float32(1)
  field, most, kl_at = {
    'noise': ('scale', _MOST_NOISE, _kl_of_noise),
    'short_context': ('forgetting', 1.0, _kl_of_short_context),
  }[condition.error]
  exact = [Noisy(batched_tuning.float32(problem.hmm), zero, salt, zero) for problem, salt in zip(chosen, salts)]
  tuner, inputs = batched_tuning.tuners(model, s)['head'], np.stack([problem.inputs for problem in chosen])
  full = batched_tuning.stacked([params._replace(**{field: one}) for params in exact])
  found = []
  for problem, params, probs in zip(chosen, exact, batched_tuning.features(tuner, full, inputs).astype(np.float64)):
    level = level_for_kl(functools.partial(kl_at, problem.ideal_after(None), probs), condition.level, most)
    found.append(params._replace(**{field: np.float32(level)}))
  return found


def _kl_of_noise(ideal: np.ndarray, full: np.ndarray, scale: float) -> float:
  """KL of noise of a scale, from predictions of scale 1."""
  tiny = np.finfo(np.float32).tiny
  noisy = ideal * np.exp(scale * np.log(np.maximum(full, tiny) / np.maximum(ideal, tiny)))
  return kl(ideal, noisy / noisy.sum(-1, keepdims=True))


def _kl_of_short_context(ideal: np.ndarray, full: np.ndarray, share: float) -> float:
  """KL of a share of the short context, from predictions of share 1."""
  return kl(ideal, (1 - share) * ideal + share * full)


def pretrained(s: DegradationSettings, problem: Problem, key: Array, reporter: Reporter) -> dict[int, Any]:
  """BERT's parameters at each checkpoint of a pretraining on the problem's text."""
  b, bert = s.bert, s.bert.model.module(s.num_tokens)
  key_text, key_init, key_steps = jax.random.split(key, 3)
  init, train_steps = pretraining.compiled(bert, b, b.checkpoints[-1], sharding.make_mesh())
  state, hmm = init(key_init), batched_tuning.float32(problem.hmm)
  corpus = jax.device_put(sample_corpus(key_text, hmm, b.num_documents, b.document_length), state.step.sharding)
  return dict(pretraining.along(train_steps, state, corpus, key_steps, b.checkpoints, b.steps_per_call, reporter))
