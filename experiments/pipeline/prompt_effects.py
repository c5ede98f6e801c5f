"""Distances by which prompts move predictions at the [MASK]: tuned ones, text, random ones, and any prefix at all."""

import functools
from typing import Any

import jax
from jax import Array
import jax.numpy as jnp
import numpy as np

from experiments.pipeline.job import Fitted, Job, stacked
import hmm_jax
from hmm_jax._support.blocks import in_blocks
from hmm_jax.models.shifted import Shifted
from hmm_jax.theory.forgetting import prefix_bound
from hmm_jax.tuning.tuner import Tuner


def measured(job: Job, read: Any, fits: list[Fitted]) -> list[dict[str, Any]]:
  """The fields of each tuned prompt, as means over test inputs, in total variation; none unless the settings say so.

  `tv_moved` is the distance between the predictions at the [MASK] with the prompt and without. `tv_moved_by_text` and
  `tv_moved_by_random` are those of `measure.prompts` prompts, of text from the same process and as tuning starts;
  no shift is a text. Beside a prompt before the text stand `tv_movable`, the most that any moves the exact prediction,
  and if the last token is hidden `forgetting`, the same after 0, 1, ..., T - 1 tokens.
  """
  measure, params = job.settings.measure, job.frozen.params
  if not measure.prompts:
    return [{} for _ in fits]
  inputs = job.inputs[job.downstream.splits['test']][: measure.num_inputs]
  position = job.settings.downstream.hidden_position % inputs.shape[1]

  def moved(prompts: Any) -> np.ndarray:
    by = functools.partial(_moved, job.tuner, position, params, jnp.asarray(prompts, jnp.float32))
    return in_blocks(by, inputs, measure.batch_size)

  text, random = _references(job)
  delta = _bounds(job, inputs)
  same = {
    'tv_moved_by_text': None if text is None else _mean(moved(text)),
    'tv_moved_by_random': _mean(moved(random)),
    'tv_movable': delta[position] if delta else None,
    'forgetting': delta if job.settings.downstream.hidden == 'last' else None,
  }
  return [{'tv_moved': _mean(by_prompt), **same} for by_prompt in moved(stacked(fits)['prompt']).T]


def _references(job: Job) -> tuple[Array | None, Array]:
  """Prompts [n, P, E] of text from the process, None if the prompt is a shift; and as tuning starts."""
  prompt, model, params, count = job.tuner.prompt, job.tuner.model, job.frozen.params, job.settings.measure.prompts
  key_text, key_random = jax.random.split(jax.random.fold_in(job.trial.keys().measure, 2))
  random = jnp.stack([prompt.init(key, model, params) for key in jax.random.split(key_random, count)])
  if isinstance(model, Shifted):
    return None, random
  text = hmm_jax.sample_corpus(key_text, job.frozen.distribution, count, prompt.length)
  return model.embed(params, text.astype(jnp.int32)), random


def _bounds(job: Job, inputs: np.ndarray) -> list[float] | None:
  """`prefix_bound` at each position, its mean over inputs [n, T]; None if the prompt is not before the text."""
  if job.tuner.prompt.place:
    return None
  is_last = job.settings.downstream.hidden == 'last'
  return prefix_bound(job.frozen.distribution, inputs, causal=is_last).mean(0).tolist()


def _mean(moved: np.ndarray) -> float | None:
  """The mean over pairs of a prompt and a text that are possible; None if none is."""
  possible = moved[~np.isnan(moved)]
  return float(possible.mean()) if possible.size else None


@functools.partial(jax.jit, static_argnums=(0, 1))
def _moved(tuner: Tuner, position: int, params: Any, prompts: Array, inputs: Array) -> Array:
  """Total variation [n, K] at a position of inputs [n, T] with each of prompts [K, P, E]; NaN for impossible ones."""
  model, prompt = tuner.model, tuner.prompt
  assert model is not None and prompt is not None
  place = prompt.place % inputs.shape[1]
  read = position if position < place else position + prompt.length
  embeddings = model.embed(params, inputs)
  before = model.predict(params, embeddings, np.array([position]))[:, 0]
  after = model.predict_prompted(params, prompts, inputs, np.array([read]), place)[:, :, 0]
  distances = jnp.abs(after - before).sum(-1) / 2
  is_possible = after.sum(-1) > 0
  return jnp.where(is_possible, distances, jnp.nan).T
