"""Tuning on a frozen model: a head, a prompt with a head, and for comparison a probe and full fine-tuning.

A `Tuner` says what is trained, as pure functions of (trainable, frozen, batch). K tasks train side by side: every
trainable array has a leading axis K, the frozen tree has none. The frozen tree is never donated and never written.
"""

from collections.abc import Callable, Iterator, Sequence
import dataclasses
import functools
from typing import Any, NamedTuple

import jax
from jax import Array, lax
import jax.numpy as jnp
import numpy as np
import optax

from hmm_jax._support import arguments, compilation, nan_guard
from hmm_jax._support.blocks import in_blocks, map_blocks
from hmm_jax.models.model import MaskedLM, representation, token_probs
from hmm_jax.models.optimizer import scheduled
from hmm_jax.tuning.heads import Head, positions_read


@dataclasses.dataclass(frozen=True)
class Prompt:
  """`length` = P trained rows before the input, and their initialisation.

  Attributes:
    length: P.
    scale: iid uniform within `scale` units of the centre of the model's `prompt_space` (U[-0.5, 0.5] in the paper); or
      None for the embeddings of uniformly drawn tokens, as in the released code.
    place: the position of the input that it stands before: 0 is before the text (a prefix), 1 between a first [MASK]
      and the rest, -1 between the rest and a last [MASK] (a suffix).

  >>> import hmm_jax as hj
  >>> hmm = hj.random_hmm(jax.random.key(0), num_states=3, num_tokens=4)
  >>> Prompt(length=2, scale=0.5).init(jax.random.key(1), hj.ExactModel(num_tokens=4), hmm).shape
  (2, 3)
  """

  length: int
  scale: float | None
  place: int = 0

  def init(self, key: Array, model: MaskedLM, frozen: Any) -> Array:
    """A prompt [P, E], drawn as `scale` says."""
    if self.scale is None:
      return model.embed(frozen, jax.random.randint(key, (self.length,), 0, model.num_tokens)).astype(jnp.float32)
    space, shape = model.prompt_space, (self.length, model.embedding_size(frozen))
    return space.center + space.unit * jax.random.uniform(key, shape, minval=-self.scale, maxval=self.scale)


@dataclasses.dataclass(frozen=True)
class Tuner:
  """The trained parts on a model, and their scores. Tuners with equal fields are equal and share compiled programs.

  A linear head is b^T G_1(x) of Theorem 3.3, with a prompt that of Theorem 3.6. An attention head is that of Theorems
  4.3 and 4.6. At most one of `prompt`, `probes` and `finetunes` is set.

  Attributes:
    model: exact or pretrained; None once the head's features are computed (`after_features`).
    head: on the model's output.
    prompt: trained with the head; None for none.
    probes: True if the head reads the model's representation rather than the probabilities it predicts.
    finetunes: True if a copy of the model's own parameters is trained with the head, without a prompt.

  >>> import hmm_jax as hj
  >>> hmm = hj.random_hmm(jax.random.key(0), num_states=3, num_tokens=4)
  >>> tuner = Tuner(hj.ExactModel(num_tokens=4), hj.Linear(num_classes=2), Prompt(length=2, scale=0.5))
  >>> trainable = tuner.init(jax.random.key(1), hmm, np.zeros((6, 5), np.int32))
  >>> trainable['prompt'].shape, trainable['head'].weights.shape
  ((2, 3), (4, 2))
  """

  model: MaskedLM | None
  head: Head
  prompt: Prompt | None = None
  probes: bool = False
  finetunes: bool = False

  def __post_init__(self) -> None:
    if (self.prompt is not None) + self.probes + self.finetunes > 1:
      raise ValueError('more than one of prompt, probes and finetunes is set; valid is at most one')

  @property
  def trains_head_alone(self) -> bool:
    return self.prompt is None and not self.finetunes

  def after_features(self, frozen: Any) -> tuple['Tuner', Any]:
    """The tuner and the frozen tree that tuning needs once the features are computed.

    If only the head is trained, both drop the model, so that all models share compiled programs.
    """
    return (dataclasses.replace(self, model=None), ()) if self.trains_head_alone else (self, frozen)

  def features(self, frozen: Any, inputs: Array) -> Any:
    """The input of `scores` for inputs [B, T], leading axis B: the head's input, if nothing before it is trained."""
    if not self.trains_head_alone:
      return inputs
    assert self.model is not None
    output = representation if self.probes else token_probs
    positions = positions_read(self.head, 0, inputs.shape[-1])
    if positions is not None:
      # The shape that `bayes_gap` uses, to share its program.
      positions = np.broadcast_to(positions, (len(inputs), len(positions)))
    return self.head.read(output(self.model, frozen, inputs, positions), inputs)

  def init(self, key: Array, frozen: Any, features: Any) -> dict[str, Any]:
    """The trainable of one task: its `head`, and its `prompt` or its `params`."""
    if self.trains_head_alone:
      # A linear head's features are [n, F], and it needs no length.
      *_, length, num_features = jax.tree.leaves(features)[0].shape
      return {'head': self.head.init(key, num_features, 0, length)}
    assert self.model is not None
    num_tokens, length = self.model.num_tokens, features.shape[-1]
    if self.prompt is None:
      return {'params': frozen, 'head': self.head.init(key, num_tokens, 0, length)}
    key_prompt, key_head = jax.random.split(key)
    prompt = self.prompt.init(key_prompt, self.model, frozen)
    head = self.head.init(key_head, num_tokens, self.prompt.length, length)
    return self.project({'prompt': prompt, 'head': head})

  def project(self, trainable: dict[str, Any]) -> dict[str, Any]:
    """The nearest trainable that is allowed; applied after every step."""
    if self.prompt is None or self.model is None:
      return trainable
    return {**trainable, 'prompt': self.model.prompt_space.project(trainable['prompt'])}

  def scores(self, trainable: Any, frozen: Any, features: Any) -> Array:
    """Class scores [K, B, C] by trainables with leading K."""
    return self._task_outputs(self.head.scores, trainable, frozen, features)

  def attend(self, trainable: Any, frozen: Any, features: Any) -> Array:
    """Attention weights [K, B, P + T]; raises ValueError for a head without attention."""
    return self._task_outputs(self.head.attend, trainable, frozen, features)

  def read(self, trainable: Any, frozen: Any, features: Any) -> Any:
    """The input of each task's head, behind its own prompt or parameters; leading axes K and B."""
    return self._task_outputs(lambda _, read: read, trainable, frozen, features)

  def _task_outputs(self, function: Callable[..., Any], trainable: Any, frozen: Any, features: Any) -> Any:
    """A function of the parameters and the input of each task's head."""
    if self.trains_head_alone:
      return jax.vmap(function, (0, None))(trainable['head'], features)
    model, tokens = self.model, features
    assert model is not None
    if self.prompt is None:
      positions = positions_read(self.head, 0, tokens.shape[-1])
      predict = lambda params: model.predict(params, model.embed(params, tokens), positions)
      outputs = jax.vmap(predict)(trainable['params'])
    else:
      # The prompt's own length: a theorem's construction may differ from the trained one.
      length, size = trainable['prompt'].shape[-2], tokens.shape[-1]
      place = arguments.position('place', self.prompt.place, size)
      positions, places = positions_read(self.head, length, size), {}
      if place:
        # Heads see a prompt first, wherever it stands.
        order = np.r_[place : place + length, :place, place + length : length + size]
        positions, places = order if positions is None else order[positions], {'place': place}
      outputs = model.predict_prompted(frozen, trainable['prompt'], tokens, positions, **places)
    return jax.vmap(lambda head, outputs: function(head, self.head.read(outputs, tokens)))(trainable['head'], outputs)


class Schedule(NamedTuple):
  """The optimisation of a tuner.

  Attributes:
    learning_rate: peak.
    num_epochs: passes over the training inputs; each drops its last partial batch.
    batch_size: B.
    warmup_steps: of the linear warm-up; the decay ends at the last step.
    weight_decay: of AdamW.
    clip_norm: largest norm of a task's gradient.

  >>> schedule = Schedule(0.01, num_epochs=5, batch_size=4, warmup_steps=2, weight_decay=0.0, clip_norm=1.0)
  >>> schedule.steps_per_epoch(num_inputs=18)
  4
  """

  learning_rate: float
  num_epochs: int
  batch_size: int
  warmup_steps: int
  weight_decay: float
  clip_norm: float

  def steps_per_epoch(self, num_inputs: int) -> int:
    return num_inputs // self.batch_size

  def optimizer(self, num_inputs: int) -> optax.GradientTransformation:
    num_steps = self.num_epochs * self.steps_per_epoch(num_inputs)
    return scheduled(
      self.learning_rate, self.warmup_steps, num_steps, weight_decay=self.weight_decay, clip_norm=self.clip_norm
    )


class TuneState(NamedTuple):
  """The state of tuning K tasks: trainable and opt_state with leading axis K, step [] int32."""

  trainable: Any
  opt_state: Any
  step: Array


def frozen_features(tuner: Tuner, frozen: Any, inputs: np.ndarray, *, batch_size: int) -> Any:
  """The head's input for inputs [n, T], `batch_size` at a time, as numpy arrays; the inputs if a prompt is trained.

  Raises ValueError if there are no inputs.

  >>> import hmm_jax as hj
  >>> hmm = hj.random_hmm(jax.random.key(0), num_states=3, num_tokens=4)
  >>> tuner = Tuner(hj.ExactModel(num_tokens=4), hj.Linear(num_classes=2))
  >>> frozen_features(tuner, hmm, np.tile([4, 1, 2, 3, 0], (6, 1)), batch_size=6).shape  # G at the [MASK]
  (6, 4)
  """
  return in_blocks(functools.partial(tuner.features, frozen), inputs, batch_size)


@functools.partial(jax.jit, static_argnames=('tuner', 'schedule'), compiler_options=compilation.ONCE)
def init_tuning(key: Array, tuner: Tuner, schedule: Schedule, frozen: Any, features: Any, tasks: Array) -> TuneState:
  """A fresh trainable for each task number in `tasks` [K]; task k starts from fold_in(key, k).

  Only the shapes of `features` matter.

  >>> import hmm_jax as hj
  >>> tuner, schedule = Tuner(None, hj.Linear(num_classes=2)), Schedule(0.01, 5, 4, 2, 0.0, 1.0)
  >>> state = init_tuning(jax.random.key(0), tuner, schedule, (), np.eye(4, dtype=np.float32), jnp.arange(1))
  >>> state.trainable['head'].weights.shape  # of one task
  (1, 4, 2)
  """
  keys = jax.vmap(jax.random.fold_in, (None, 0))(key, tasks)
  trainable = jax.vmap(lambda key: tuner.init(key, frozen, features))(keys)
  optimizer_ = schedule.optimizer(len(jax.tree.leaves(features)[0]))
  return TuneState(trainable, jax.vmap(optimizer_.init)(trainable), jnp.zeros((), jnp.int32))


@functools.partial(compilation.quick, static_argnames=('tuner', 'schedule'), donate_argnames='state')
def tune_epoch(
  state: TuneState, key: Array, tuner: Tuner, schedule: Schedule, frozen: Any, features: Any, labels: Array
) -> tuple[TuneState, Array]:
  """One pass over the training inputs for K tasks at once.

  Every task sees the inputs in the same order, a permutation drawn from (key, epoch).

  Args:
    state: donated.
    key: PRNG key of the order.
    tuner: what is trained.
    schedule: optimiser settings, batch size and epochs.
    frozen: the model's parameters, read only; with the tuner, whole or from `after_features`.
    features: with leading axis n, from `frozen_features`.
    labels: [K, n] int32.

  Returns:
    The new state, and the mean cross-entropy of each task over the epoch in nats, [K].

  >>> import hmm_jax as hj
  >>> tuner, schedule = Tuner(None, hj.Linear(num_classes=2)), Schedule(0.01, 5, 4, 2, 0.0, 1.0)
  >>> features, labels = np.eye(4, dtype=np.float32), np.array([[0, 0, 1, 1]])
  >>> state = init_tuning(jax.random.key(0), tuner, schedule, (), features, jnp.arange(1))
  >>> state, losses = tune_epoch(state, jax.random.key(1), tuner, schedule, (), features, labels)
  >>> int(state.step), losses.shape
  (1, (1,))
  """
  num_inputs = len(jax.tree.leaves(features)[0])
  arguments.check_shape('labels', labels, len(jax.tree.leaves(state.trainable)[0]), num_inputs)
  steps = schedule.steps_per_epoch(num_inputs)
  if not steps:
    raise ValueError(f'batch_size is {schedule.batch_size}; valid is at most the number of inputs, {num_inputs}')
  optimizer_ = schedule.optimizer(num_inputs)
  order = jax.random.permutation(jax.random.fold_in(key, state.step // steps), num_inputs)
  batches = order[: steps * schedule.batch_size].reshape(steps, schedule.batch_size)

  def loss_fn(trainable: Any, batch: Array) -> tuple[Array, Array]:
    scores = tuner.scores(trainable, frozen, jax.tree.map(lambda x: x[batch], features))
    losses = optax.softmax_cross_entropy_with_integer_labels(scores, labels[:, batch]).mean(-1)
    return losses.sum(), losses

  def step(state: TuneState, batch: Array) -> tuple[TuneState, Array]:
    grads, losses = jax.grad(loss_fn, has_aux=True)(state.trainable, batch)
    updates, opt_state = jax.vmap(optimizer_.update)(grads, state.opt_state, state.trainable)
    trainable = tuner.project(optax.apply_updates(state.trainable, updates))
    return TuneState(trainable, opt_state, state.step + 1), losses

  state, losses = lax.scan(step, state, batches)
  return state, losses.mean(0)


class Examples(NamedTuple):
  """The training inputs of K tasks.

  Attributes:
    features: with leading axis n, from `frozen_features`.
    labels: [K, n].
    tasks: [K], their numbers, which with the key decide their starts.
    names: of the tasks in the message of Diverged.
  """

  features: Any
  labels: Array | np.ndarray
  tasks: np.ndarray
  names: Sequence[str]


def fit(
  keys: Array | tuple[Array, Array], tuner: Tuner, schedule: Schedule, frozen: Any, examples: Examples
) -> Iterator[tuple[TuneState, Array | None]]:
  """Yield a fresh state with None, then the state and its losses after each epoch of a schedule, on the model's device.

  A state is donated to the next epoch.

  Args:
    keys: of the start and of the order of the inputs.
    tuner: what is trained.
    schedule: optimiser settings, batch size and epochs.
    frozen: the model's parameters, whole.
    examples: the training inputs and their labels by task.

  Raises:
    Diverged: at the first epoch in which a loss is not finite.

  >>> import hmm_jax as hj
  >>> tuner, schedule = Tuner(None, hj.Linear(num_classes=2)), Schedule(0.01, 5, 4, 2, 0.0, 1.0)
  >>> examples = Examples(np.eye(4, dtype=np.float32), np.array([[0, 0, 1, 1]]), np.arange(1), ['the task'])
  >>> states = fit(jax.random.split(jax.random.key(0)), tuner, schedule, (), examples)
  >>> [int(state.step) for state, losses in states]
  [0, 1, 2, 3, 4, 5]
  """
  key_init, key_order = keys
  # A model may have no parameters, or numpy's.
  sharding = next(x.sharding for x in jax.tree.leaves((frozen, key_init)) if isinstance(x, Array))
  tuner, frozen = tuner.after_features(frozen)
  features, labels = jax.device_put(examples[:2], sharding)
  # Committed to its device before the first epoch, as it is after it, so that the epoch compiles once.
  state = jax.device_put(init_tuning(key_init, tuner, schedule, frozen, features, examples.tasks), sharding)
  yield state, None
  for done in range(1, schedule.num_epochs + 1):
    state, losses = tune_epoch(state, key_order, tuner, schedule, frozen, features, labels)
    nan_guard.check_each(losses, examples.names, f'in epoch {done} the loss of')
    yield state, losses


@functools.partial(compilation.quick, static_argnames=('tuner', 'batch_size'))
def predictions(tuner: Tuner, trainable: Any, frozen: Any, features: Any, *, batch_size: int) -> Array:
  """The class each task predicts for each input, [K, n] int32; `batch_size` inputs at a time.

  >>> import hmm_jax as hj
  >>> from hmm_jax.tuning.heads import LinearHead
  >>> trainable = {'head': LinearHead(np.eye(2, dtype=np.float32)[None], np.zeros((1, 2), np.float32))}
  >>> tuner, features = Tuner(None, hj.Linear(num_classes=2)), np.array([[0.75, 0.25], [0.25, 0.75]], np.float32)
  >>> predictions(tuner, trainable, (), features, batch_size=2).tolist()
  [[0, 1]]
  """
  return _by_task(lambda block: tuner.scores(trainable, frozen, block).argmax(-1), features, batch_size)


@functools.partial(compilation.quick, static_argnames=('tuner', 'batch_size'))
def attention(tuner: Tuner, trainable: Any, frozen: Any, features: Any, *, batch_size: int) -> Array:
  """The attention weights of each task on each input, [K, n, P + T]; `batch_size` inputs at a time.

  Raises ValueError for a tuner without an attention head.
  """
  return _by_task(functools.partial(tuner.attend, trainable, frozen), features, batch_size)


@functools.partial(compilation.quick, static_argnames=('tuner', 'batch_size'))
def inputs_of_heads(tuner: Tuner, trainable: Any, frozen: Any, features: Any, *, batch_size: int) -> Array:
  """Inputs [K, n, F] of the linear head of each task for each input; `batch_size` inputs at a time.

  Behind a trained prompt, these are the predicted token probabilities at the [MASK], for a new head.

  >>> import hmm_jax as hj
  >>> hmm, tuner = hj.random_hmm(jax.random.key(0), num_states=3, num_tokens=4), Tuner(
  ...   hj.ExactModel(num_tokens=4), hj.Linear(num_classes=2), Prompt(length=2, scale=0.5)
  ... )
  >>> inputs = np.tile([4, 1, 2, 3, 0], (6, 1))
  >>> trainable = jax.tree.map(lambda x: x[None], tuner.init(jax.random.key(1), hmm, inputs))
  >>> inputs_of_heads(tuner, trainable, hmm, inputs, batch_size=6).shape
  (1, 6, 4)
  """
  return _by_task(functools.partial(tuner.read, trainable, frozen), features, batch_size)


def _by_task(function: Callable[[Any], Array], features: Any, batch_size: int) -> Array:
  """[K, n, ...] of a function from a block of B inputs to [K, B, ...]."""
  inputs_first = lambda block: jnp.moveaxis(function(block), 0, 1)
  return jnp.moveaxis(map_blocks(inputs_first, features, batch_size), 1, 0)
