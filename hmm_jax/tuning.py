"""Tuning on a frozen model: head, prompt with head, and for comparison a probe and full fine-tuning.

A `Tuner` is a pair of pure functions of (trainable, frozen, batch). K tasks train side by side: every trainable
array has a leading axis K, the frozen tree has none. The frozen tree is never donated and never written.
"""

from collections.abc import Callable
import dataclasses
import functools
from typing import Any, NamedTuple

import jax
from jax import lax
import jax.numpy as jnp
import numpy as np
import optax

from hmm_jax import optimizer
from hmm_jax import outputs
from hmm_jax.attention_head import SequenceHead
from hmm_jax.heads import init_linear_head
from hmm_jax.heads import linear_scores
from hmm_jax.model import MaskedLM

Array = jax.Array


@dataclasses.dataclass(frozen=True)
class Tuner:
  """What is trained, and how it classifies.

  Two tuners are equal where they train the same, wherever their features come from: they share compiled programs.

  Attributes:
    features: (frozen, inputs [B, T]) -> what `scores` needs of the inputs, leading axis B; computed before training.
    init: (key, frozen) -> trainable of one task.
    scores: (trainable with leading K, frozen, features of B inputs) -> class scores [K, B, C].
    reads_frozen: whether `init`, `scores` and `attend` look at `frozen`; where not, it may be anything, such as ().
    project: trainable -> the nearest one that is allowed, applied after every step.
    attend: (trainable with leading K, frozen, features) -> attention weights [K, B, P + T]; None if it has none.
  """

  features: Callable[[Any, Array], Any] = dataclasses.field(compare=False)
  init: Callable[[Array, Any], Any]
  scores: Callable[[Any, Any, Any], Array]
  reads_frozen: bool
  project: Callable[[Any], Any]
  attend: Callable[[Any, Any, Any], Array] | None = None


class Schedule(NamedTuple):
  """The optimisation of a tuner.

  Attributes:
    learning_rate: peak.
    num_epochs: passes over the training inputs; each drops its last partial batch.
    batch_size: B.
    warmup_steps: of the linear warm-up; the decay ends at the last step.
    weight_decay: of AdamW.
    clip_norm: largest norm of a task's gradient.
  """

  learning_rate: float
  num_epochs: int
  batch_size: int
  warmup_steps: int
  weight_decay: float
  clip_norm: float


class TuneState(NamedTuple):
  """Attributes: trainable (leading axis K), opt_state (leading axis K), step [] int32."""

  trainable: Any
  opt_state: Any
  step: Array


_scores_of_tasks = jax.vmap(linear_scores, (0, None))


def _keep(trainable):
  return trainable


def _score_features(trainable, frozen, features):
  del frozen
  return _scores_of_tasks(trainable['head'], features)


@functools.cache
def _init_head(num_features: int, num_classes: int):
  # Cached, as what a tuner is made of is elsewhere, so that tuners of the same parts are equal.
  return lambda key, frozen: {'head': init_linear_head(key, num_features, num_classes)}


def head_tuner(model: MaskedLM, num_classes: int) -> Tuner:
  """A linear head on the token probabilities predicted at the [MASK], b^T G_1(x) (Theorem 3.3)."""
  return Tuner(
    features=lambda frozen, inputs: outputs.token_probs(model, frozen, inputs)[:, 0],
    init=_init_head(model.num_tokens, num_classes),
    scores=_score_features,
    reads_frozen=False,
    project=_keep,
  )


@functools.cache
def probe_tuner(model: MaskedLM, num_classes: int) -> Tuner:
  """A linear head on the model's representation at the [MASK], rather than on the probabilities it predicts."""

  def features(frozen, inputs):
    return outputs.representation(model, frozen, inputs)[:, 0]

  def init(key, frozen):
    num_features = jax.eval_shape(features, frozen, jax.ShapeDtypeStruct((1, 1), jnp.int32)).shape[-1]
    return {'head': init_linear_head(key, num_features, num_classes)}

  return Tuner(features=features, init=init, scores=_score_features, reads_frozen=True, project=_keep)


def prepend(prompt: Array, embeddings: Array) -> Array:
  """The prompt [P, E] before each embedded sequence [B, T, E]; the paper's (3.2)."""
  return jnp.concatenate([jnp.broadcast_to(prompt, embeddings.shape[:1] + prompt.shape), embeddings], axis=1)


def uniform_prompt(key: Array, model: MaskedLM, frozen: Any, length: int, scale: float) -> Array:
  """A prompt [P, E] iid uniform within `scale` units of the model's `prompt_center`; U[-0.5, 0.5] in the paper."""
  shape = (length, model.embedding_size(frozen))
  return model.prompt_center + model.prompt_unit * jax.random.uniform(key, shape, minval=-scale, maxval=scale)


def vocabulary_prompt(key: Array, model: MaskedLM, frozen: Any, length: int) -> Array:
  """A prompt [P, E] of the embeddings of uniformly drawn tokens, as in the released code."""
  return model.embed(frozen, jax.random.randint(key, (length,), 0, model.num_tokens)).astype(jnp.float32)


@functools.cache
def prompt_tuner(model: MaskedLM, num_classes: int, init_prompt: Callable[[Array, Any], Array]) -> Tuner:
  """Head tuning with a prompt before the input, both trained (Theorem 3.6).

  Args:
    model: exact or pretrained.
    num_classes: C.
    init_prompt: (key, frozen) -> prompt [P, E]: `uniform_prompt` or `vocabulary_prompt` with the rest bound, or
      any function that returns a given array.
  """

  def init(key, frozen):
    key_prompt, key_head = jax.random.split(key)
    prompt = model.project_prompt(init_prompt(key_prompt, frozen))
    return {'prompt': prompt, 'head': init_linear_head(key_head, model.num_tokens, num_classes)}

  def scores(trainable, frozen, inputs):
    embeddings_KxBxTxE = jax.vmap(prepend, (0, None))(trainable['prompt'], model.embed(frozen, inputs))
    mask_position = trainable['prompt'].shape[1]
    probs_KxBxV = model.predict(frozen, embeddings_KxBxTxE)[:, :, mask_position]
    return jax.vmap(linear_scores)(trainable['head'], probs_KxBxV)

  return Tuner(
    features=lambda frozen, inputs: inputs,
    init=init,
    scores=scores,
    reads_frozen=True,
    project=lambda trainable: {**trainable, 'prompt': model.project_prompt(trainable['prompt'])},
  )


@functools.cache
def _attention_parts(head: SequenceHead, length: int) -> dict[str, Callable]:
  def over_tasks(function, *names):
    apply = lambda trainable, features: function(trainable['head'], *(features[name] for name in names))
    return lambda trainable, frozen, features: jax.vmap(apply, (0, None))(trainable, features)

  return {
    'init': lambda key, frozen: {'head': head.init(key, 0, length)},
    'scores': over_tasks(head.scores, 'token_probs', 'tokens'),
    'attend': over_tasks(head.attend, 'token_probs'),
  }


def attention_tuner(model: MaskedLM, head: SequenceHead, length: int) -> Tuner:
  """An attention head on the token probabilities predicted at all `length` positions (Theorem 4.3)."""

  def features(frozen, inputs):
    return {'token_probs': outputs.token_probs(model, frozen, inputs), 'tokens': inputs}

  return Tuner(features=features, reads_frozen=False, project=_keep, **_attention_parts(head, length))


@functools.cache
def prompt_attention_tuner(
  model: MaskedLM, head: SequenceHead, length: int, init_prompt: Callable[[Array, Any], Array]
) -> Tuner:
  """An attention head over prompt and input, both trained (Theorem 4.6); `init_prompt` as in `prompt_tuner`."""

  def init(key, frozen):
    key_prompt, key_head = jax.random.split(key)
    prompt = model.project_prompt(init_prompt(key_prompt, frozen))
    return {'prompt': prompt, 'head': head.init(key_head, prompt.shape[0], length)}

  def token_probs(trainable, frozen, inputs):
    embeddings_KxBxLxE = jax.vmap(prepend, (0, None))(trainable['prompt'], model.embed(frozen, inputs))
    return model.predict(frozen, embeddings_KxBxLxE)

  def scores(trainable, frozen, inputs):
    probs_KxBxLxV = token_probs(trainable, frozen, inputs)
    return jax.vmap(head.scores, (0, 0, None))(trainable['head'], probs_KxBxLxV, inputs)

  return Tuner(
    features=lambda frozen, inputs: inputs,
    init=init,
    scores=scores,
    reads_frozen=True,
    project=lambda trainable: {**trainable, 'prompt': model.project_prompt(trainable['prompt'])},
    attend=lambda trainable, frozen, inputs: jax.vmap(head.attend)(
      trainable['head'], token_probs(trainable, frozen, inputs)
    ),
  )


@functools.cache
def finetune_tuner(model: MaskedLM, num_classes: int) -> Tuner:
  """Full fine-tuning: the head of `head_tuner` and a copy of the model's own parameters, both trained."""

  def scores_of_one(trainable, inputs):
    params = trainable['params']
    probs = model.predict(params, model.embed(params, inputs))[:, 0]
    return linear_scores(trainable['head'], probs)

  return Tuner(
    features=lambda frozen, inputs: inputs,
    init=lambda key, frozen: {'params': frozen, 'head': init_linear_head(key, model.num_tokens, num_classes)},
    scores=lambda trainable, frozen, inputs: jax.vmap(scores_of_one, (0, None))(trainable, inputs),
    reads_frozen=True,
    project=_keep,
  )


def _steps_per_epoch(schedule: Schedule, num_inputs: int) -> int:
  return num_inputs // schedule.batch_size


def _optimizer(schedule: Schedule, num_inputs: int) -> optax.GradientTransformation:
  num_steps = schedule.num_epochs * _steps_per_epoch(schedule, num_inputs)
  return optimizer.adamw(
    schedule.learning_rate,
    schedule.warmup_steps,
    num_steps,
    weight_decay=schedule.weight_decay,
    clip_norm=schedule.clip_norm,
  )


def _map_batches(function: Callable[[Any], Any], inputs: Any, batch_size: int) -> Any:
  """`function` of blocks of `batch_size` inputs, concatenated; the last block repeats the first inputs."""
  count = jax.tree.leaves(inputs)[0].shape[0]
  blocks = -(-count // batch_size)
  blocked = jax.tree.map(lambda x: jnp.resize(x, (blocks, batch_size, *x.shape[1:])), inputs)
  outputs = lax.map(function, blocked)
  return jax.tree.map(lambda x: x.reshape(blocks * batch_size, *x.shape[2:])[:count], outputs)


def frozen_features(tuner: Tuner, frozen: Any, inputs: np.ndarray, *, batch_size: int) -> Any:
  """`tuner.features` of inputs [n, T], `batch_size` at a time; numpy arrays."""
  return outputs.in_blocks(functools.partial(tuner.features, frozen), inputs, batch_size)


@functools.partial(jax.jit, static_argnames=('tuner', 'schedule', 'num_inputs'))
def init_tuning(
  key: Array, tuner: Tuner, schedule: Schedule, frozen: Any, *, tasks: Array, num_inputs: int
) -> TuneState:
  """A fresh trainable for each task number in `tasks` [K]; task k starts from fold_in(key, k)."""
  keys = jax.vmap(jax.random.fold_in, (None, 0))(key, tasks)
  trainable = jax.vmap(tuner.init, (0, None))(keys, frozen)
  return TuneState(trainable, jax.vmap(_optimizer(schedule, num_inputs).init)(trainable), jnp.zeros((), jnp.int32))


@functools.partial(jax.jit, static_argnames=('tuner', 'schedule'), donate_argnames='state')
def tune_epoch(
  state: TuneState, key: Array, tuner: Tuner, schedule: Schedule, frozen: Any, features: Any, labels: Array
) -> tuple[TuneState, Array]:
  """One pass over the training inputs for K tasks at once.

  Every task meets the inputs in the same order, a permutation drawn from (key, epoch).

  Args:
    state: donated.
    key: PRNG key of the order.
    tuner: what is trained.
    schedule: how.
    frozen: the model's parameters, read only.
    features: with leading axis n, from `frozen_features`.
    labels: [K, n] int32.

  Returns:
    The new state, and the mean cross-entropy of each task over the epoch in nats, [K].
  """
  num_inputs = labels.shape[1]
  steps = _steps_per_epoch(schedule, num_inputs)
  optimizer_ = _optimizer(schedule, num_inputs)
  order = jax.random.permutation(jax.random.fold_in(key, state.step // steps), num_inputs)
  batches = order[: steps * schedule.batch_size].reshape(steps, schedule.batch_size)

  def loss_fn(trainable, batch):
    scores = tuner.scores(trainable, frozen, jax.tree.map(lambda x: x[batch], features))
    losses = optax.softmax_cross_entropy_with_integer_labels(scores, labels[:, batch]).mean(-1)
    return losses.sum(), losses

  def step(state, batch):
    grads, losses = jax.grad(loss_fn, has_aux=True)(state.trainable, batch)
    updates, opt_state = jax.vmap(optimizer_.update)(grads, state.opt_state, state.trainable)
    trainable = tuner.project(optax.apply_updates(state.trainable, updates))
    return TuneState(trainable, opt_state, state.step + 1), losses

  state, losses = lax.scan(step, state, batches)
  return state, losses.mean(0)


@functools.partial(jax.jit, static_argnames=('tuner', 'batch_size'))
def predictions(tuner: Tuner, trainable: Any, frozen: Any, features: Any, *, batch_size: int) -> Array:
  """The class each task predicts for each input, [K, n] int32; `batch_size` inputs at a time."""
  classify = lambda block: tuner.scores(trainable, frozen, block).argmax(-1).T
  return _map_batches(classify, features, batch_size).T


@functools.partial(jax.jit, static_argnames=('tuner', 'batch_size'))
def attention(tuner: Tuner, trainable: Any, frozen: Any, features: Any, *, batch_size: int) -> Array:
  """The attention weights of each task on each input, [K, n, P + T]; `batch_size` inputs at a time.

  Raises ValueError for a tuner without an attention head.
  """
  attend = tuner.attend
  if attend is None:
    raise ValueError('the tuner has no attention head; valid are attention_tuner and prompt_attention_tuner')
  inputs_first = lambda block: jnp.moveaxis(attend(trainable, frozen, block), 0, 1)
  return jnp.moveaxis(_map_batches(inputs_first, features, batch_size), 1, 0)
