"""Tuning on many problems of one shape at once, each with a frozen model of its own: one compiled program for all."""

from collections.abc import Iterator
import dataclasses
import functools
from typing import Any

import jax
import numpy as np

from experiments.progress import Reporter
from hmm_jax import compilation
from hmm_jax import tuning
from hmm_jax.heads import Linear
from hmm_jax.model import MaskedLM

Array = jax.Array


def tuners(model: MaskedLM, prompt_length: int, prompt_scale: float) -> dict[str, tuning.Tuner]:
  """The head, and the prompt with its head, that are trained; binary labels."""
  head = tuning.Tuner(model, Linear(2))
  return {'head': head, 'prompt': dataclasses.replace(head, prompt=tuning.Prompt(prompt_length, prompt_scale))}


def stacked(trees: list[Any]) -> Any:
  """Trees of one structure as one, with a leading axis."""
  return jax.tree.map(lambda *leaves: np.stack(leaves), *jax.device_get(trees))


@functools.partial(jax.jit, static_argnames='model')
def predicted_at_mask(model: MaskedLM, frozen: Any, inputs: Array, prompts: Array) -> Array:
  """What the model predicts at the [MASK] behind the prompt, [problems, n, V].

  Args:
    model: one for all.
    frozen: its parameters, leading axis problem.
    inputs: [problems, n, T], the first token [MASK].
    prompts: [problems, P, E]; P = 0 for none.
  """

  def of_one(frozen, inputs, prompt):
    embeddings = tuning.prepend(prompt, model.embed(frozen, inputs))
    return model.predict(frozen, embeddings)[:, prompt.shape[0]]

  return jax.vmap(of_one)(frozen, inputs, prompts)


def predicted_without_prompt(model: MaskedLM, frozen: Any, inputs: np.ndarray) -> np.ndarray:
  """`predicted_at_mask` of no prompt, [problems, n, V]."""
  first = jax.tree.map(lambda leaf: leaf[0], frozen)
  no_prompts = np.zeros((len(inputs), 0, model.embedding_size(first)), np.float32)
  return np.asarray(predicted_at_mask(model, frozen, inputs, no_prompts))


def accuracies(head: Any, token_probs: Array | np.ndarray, labels: Array | np.ndarray) -> np.ndarray:
  """The share of each problem's inputs that get their label, [problems].

  Args:
    head: a `LinearHead` with leading axis problem.
    token_probs: [problems, n, V].
    labels: [problems, n].
  """
  scores = np.asarray(token_probs) @ np.asarray(head.weights) + np.asarray(head.bias)[:, None]
  return (scores.argmax(-1) == np.asarray(labels)).mean(-1)


def train(
  tuner: tuning.Tuner,
  schedule: tuning.Schedule,
  frozen: Any,
  features: Array | np.ndarray,
  labels: Array | np.ndarray,
  key: Array,
  reporter: Reporter,
  name: str,
) -> Iterator[Any]:
  """Yields the trainables of all problems, leading axis problem, at the start and after every epoch.

  Args:
    tuner: what is trained.
    schedule: of every problem.
    frozen: the model's parameters, leading axis problem.
    features: [problems, n, ...], what `tuner.features` gives.
    labels: [problems, n].
    key: of the start and the order, the same for all problems.
    reporter: follows the epochs.
    name: what it calls them.
  """
  states = _init(key, tuner, schedule, frozen, features)
  of_one_task = lambda trainable: jax.tree.map(lambda leaf: np.asarray(leaf[:, 0]), trainable)
  key_order = jax.random.fold_in(key, 1)
  yield of_one_task(states.trainable)
  with reporter.track(name, schedule.num_epochs) as advance:
    for epoch in range(schedule.num_epochs):
      states, losses = _epoch(states, key_order, tuner, schedule, frozen, features, labels[:, None])
      advance(epoch + 1, f'loss {float(losses.mean()):.3f}')
      yield of_one_task(states.trainable)


@functools.partial(jax.jit, static_argnames=('tuner', 'schedule'), compiler_options=compilation.ONCE)
def _init(key, tuner, schedule, frozen, features):
  task = np.zeros(1, np.int32)
  return jax.vmap(lambda *data: tuning.init_tuning(key, tuner, schedule, *data, task))(frozen, features)


@functools.partial(jax.jit, static_argnames=('tuner', 'schedule'))
def _epoch(states, key, tuner, schedule, frozen, features, labels):
  epoch = lambda state, *data: tuning.tune_epoch(state, key, tuner, schedule, *data)
  return jax.vmap(epoch)(states, frozen, features, labels)
