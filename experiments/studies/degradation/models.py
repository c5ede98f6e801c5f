"""The models of the study: the exact G with an error of a given KL, and BERTs along their pretraining."""

import functools
from typing import Any

import jax
from jax import Array
import numpy as np
import scipy.special

from experiments.pipeline import batched_tuning, pretraining
from experiments.runtime.progress import Reporter
from experiments.studies.degradation.problems import Condition, DamagedProblem
from experiments.studies.degradation.settings import DegradationSettings
from hmm_jax.distributions.sampling import sample_corpus
from hmm_jax.models import sharding
from hmm_jax.theory.degradation import level_for_kl, Noisy, NoisyModel

# Noise on log-probabilities beyond which predictions have little left of G.
_MOST_NOISE = 30.0


def kl(ideal_nxV: np.ndarray, probs_nxV: np.ndarray) -> float:
  """The mean KL(G || model) over inputs, in nats."""
  probs = np.maximum(np.float64(probs_nxV), np.finfo(np.float32).tiny)
  return float(scipy.special.rel_entr(ideal_nxV, probs).sum(-1).mean())


def with_error(
  s: DegradationSettings, model: NoisyModel, salts: list[np.ndarray], condition: Condition, chosen: list[DamagedProblem]
) -> list[Noisy]:
  """The noisy model's parameters with an error of the condition's KL, or the largest error if that has less.

  A salt fixes the noise of an HMM: it differs between HMMs, and not between levels on one HMM.
  """
  is_noise = condition.error == 'noise'

  def noisy(problem: DamagedProblem, salt: np.ndarray, level: float) -> Noisy:
    scale, forgetting = (np.asarray(level * is_it, np.float32) for is_it in (is_noise, not is_noise))
    return Noisy(batched_tuning.float32(problem.hmm), scale, salt, forgetting)

  tuner = batched_tuning.tuners(model, s)['head']
  full = batched_tuning.stacked([noisy(problem, salt, 1.0) for problem, salt in zip(chosen, salts)])
  full_probs = batched_tuning.features(tuner, full, np.stack([problem.inputs for problem in chosen]))
  models = []
  for problem, salt, probs in zip(chosen, salts, full_probs.astype(np.float64)):
    kl_at = functools.partial(_kl_at, is_noise, problem.ideal_after(None), probs)
    models.append(noisy(problem, salt, level_for_kl(kl_at, condition.level, _MOST_NOISE if is_noise else 1.0)))
  return models


def _kl_at(is_noise: bool, ideal: np.ndarray, full: np.ndarray, level: float) -> float:
  """The KL at a noise scale, or share of the short context, of `level`, from the predictions `full` at level 1."""
  if not is_noise:
    return kl(ideal, (1 - level) * ideal + level * full)
  tiny = np.finfo(np.float32).tiny
  noisy = ideal * np.exp(level * np.log(np.maximum(full, tiny) / np.maximum(ideal, tiny)))
  return kl(ideal, noisy / noisy.sum(-1, keepdims=True))


def pretrained(s: DegradationSettings, problem: DamagedProblem, key: Array, reporter: Reporter) -> dict[int, Any]:
  """BERT's parameters at each checkpoint of a pretraining on the problem's text."""
  b, bert = s.bert, s.bert.model.module(s.num_tokens)
  key_text, key_init, key_steps = jax.random.split(key, 3)
  init, train_steps = pretraining.compiled(bert, b, b.checkpoints[-1], sharding.make_mesh())
  state, hmm = init(key_init), batched_tuning.float32(problem.hmm)
  corpus = jax.device_put(sample_corpus(key_text, hmm, b.num_documents, b.document_length), state.step.sharding)
  call = lambda state: train_steps(state, corpus, key_steps)
  return dict(pretraining.along(call, state, b.checkpoints, b.steps_per_call, reporter))
