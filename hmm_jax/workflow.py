"""From a distribution to a tuned prompt: `pretrain` a BERT on its text, `draw_task`, `tune` a head and a prompt.

```python
from hmm_jax.distributions.processes import mess3

hmm = mess3()
model, params = hj.pretrain(hmm, key, steps=600, report=print)
task = hj.draw_task(hmm, key)
tuned = hj.tune(model, params, hmm, task, prompt_length=10)
exact = hj.tune(hj.ExactModel(hmm.num_tokens), hmm, hmm, task, prompt_length=10)
```

after `import hmm_jax as hj, jax; key = jax.random.key(0)`. Defaults are those of the small scale (`hmm_jax.defaults`).
"""

from collections.abc import Callable
import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
from jax import Array
import jax.numpy as jnp
import numpy as np

from hmm_jax import defaults
from hmm_jax._support import arguments
from hmm_jax._support.float64 import with_promotion
from hmm_jax.distributions.hmm import Distribution
from hmm_jax.distributions.memory_hmm import MemoryHMM
from hmm_jax.distributions.sampling import sample_chunks
from hmm_jax.files import tuned as tuned_files
from hmm_jax.files.folders import Path
from hmm_jax.models import bayes_gap, optimizer, pretraining, sharding
from hmm_jax.models.bert import Bert, BertModel
from hmm_jax.models.masking import Corruption, next_token
from hmm_jax.models.model import MaskedLM
from hmm_jax.tuning import tasks, tuner as tuner_lib
from hmm_jax.tuning.heads import check_head, Head, Linear, positions_read

# Called with the steps so far and measurements by name: a progress line, or a logger of your own.
Report = Callable[[int, dict[str, float]], None]

_AT_A_TIME = dict(batch_size=defaults.INPUTS_AT_A_TIME)


@with_promotion
def pretrain(
  hmm: Distribution,
  key: Array,
  *,
  steps: int = defaults.NUM_STEPS,
  bert: Bert | None = None,
  report: Report | None = None,
) -> tuple[BertModel, Any]:
  """Pretrain a BERT on text of a distribution by masked language modelling; return the model and its parameters.

  A causal one is pretrained by next-token prediction.

  Args:
    hmm: an `HMM` or a `MemoryHMM`.
    key: decides the text, the first parameters and every step.
    steps: number of Muon steps; 0 gives the untrained parameters that this key starts from.
    bert: its sizes; those of the small scale if None. The model that is returned computes in float32.
    report: called after every 50 steps, or the largest number below 50 that divides `steps`, with `train_loss`, the
      mean loss in nats of the steps since the last call, and the distance from the exact G of `hmm` at the [MASK] of
      texts, their first token, or their last for a causal BERT: `kl_at_mask` in nats and `tv_at_mask`, total variation.
      Nothing is measured if None.

  Raises:
    ValueError: the distribution or `steps` is not valid, or `bert` is for another vocabulary.
    Diverged: a loss is not finite.

  >>> import hmm_jax as hj
  >>> hmm = hj.random_hmm(jax.random.key(0), num_states=3, num_tokens=4)
  >>> bert = Bert(num_tokens=4, num_layers=1, width=8, num_heads=2, ffn_width=16, max_positions=64, dropout_rate=0.0)
  >>> model, params = pretrain(hmm, jax.random.key(1), steps=1, bert=bert)
  >>> hj.token_probs(model, params, jnp.array([[4, 1, 2, 3, 0]])).shape
  (1, 5, 4)
  """
  hmm = arguments.distribution(hmm)
  bert = bert or Bert(num_tokens=hmm.num_tokens, **defaults.BERT)
  arguments.check_vocabulary(bert, hmm)
  # The first three are those of the suite.
  key_corpus, key_params, key_steps, key_texts = jax.random.split(key, 4)
  arguments.check_size('steps', steps, least=0)
  steps_per_call = max(size for size in range(1, defaults.STEPS_PER_CALL + 1) if steps % size == 0)
  init, train_steps = _compiled(bert, steps, steps_per_call)
  chunks = sample_chunks(key_corpus, hmm, **defaults.CORPUS)
  model, state = BertModel(bert.clone(dtype=jnp.float32, attention='xla')), init(key_params)
  if report:
    hidden = -1 if bert.causal else 0
    inputs, _ = tasks.draw_texts(key_texts, hmm, defaults.NUM_INPUTS, 0, defaults.LENGTH, hidden)
    ideal = bayes_gap.ideal_at_mask(hmm, np.asarray(inputs), hidden=hidden, **_AT_A_TIME)
  call = lambda state: train_steps(state, chunks, key_steps)
  calls = pretraining.training_calls(call, state, steps_per_call, steps)
  for step, state, loss in calls:
    if report:
      gap = bayes_gap.measure_gap(model, pretraining.params_here(state), ideal, **_AT_A_TIME)
      report(step, {'train_loss': loss, 'kl_at_mask': gap.kl, 'tv_at_mask': gap.total_variation})
  return model, pretraining.params_here(state)


@functools.cache
def _compiled(bert: Bert, num_steps: int, steps_per_call: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
  """The compiled initialisation and steps: one for every distribution, since no shape depends on it."""
  muon = optimizer.muon(warmup_steps=defaults.WARMUP_STEPS, num_steps=num_steps, **defaults.OPTIMIZER)
  corruption = next_token(bert.num_tokens) if bert.causal else Corruption(bert.num_tokens, **defaults.CORRUPTION)
  return pretraining.make_programs(
    bert, muon, corruption, batch_size=defaults.BATCH_SIZE, steps_per_call=steps_per_call, mesh=sharding.make_mesh()
  )


class DownstreamTask(NamedTuple):
  """A classification of texts by the exact posterior, whatever model is tuned for it.

  Attributes:
    task_weights: [C, H], the paper's mu: label = argmax_c task_weights[c] @ P[H_i | X_{-i}] at the masked token i; or
      [C, M], of a memory's first cell.
    key: decides the texts, where tuning starts and the order of its inputs.
    length: tokens of a text, one of which is masked.
    num_train: training texts.
    num_test: test texts.
    hidden: position of the masked token: 0, the first, or -1, the last, as causal models need it.

  >>> import hmm_jax as hj
  >>> hmm = hj.random_hmm(jax.random.key(0), num_states=3, num_tokens=4)
  >>> task = DownstreamTask(np.eye(3), jax.random.key(1), length=5, num_train=20, num_test=10)  # the likeliest state
  >>> inputs, labels = task.examples(hmm)
  >>> inputs.shape, bool(set(labels.tolist()) <= {0, 1, 2})
  ((30, 5), True)
  """

  task_weights: Array | np.ndarray
  key: Array
  length: int = defaults.LENGTH
  num_train: int = defaults.NUM_TRAIN
  num_test: int = defaults.NUM_TEST
  hidden: int = 0

  @with_promotion
  def examples(self, hmm: Distribution) -> tuple[np.ndarray, np.ndarray]:
    """Inputs [n, T] from `hmm` with [MASK] at `hidden`, and their labels [n]; training texts first.

    Raises ValueError where `task_weights` do not fit the distribution.
    """
    hmm, weights = arguments.distribution(hmm), arguments.array('task_weights', self.task_weights)
    width = hmm.memory_size if isinstance(hmm, MemoryHMM) else hmm.joint_initial_probs.shape[-1]
    if weights.ndim != 2 or len(weights) < 2 or weights.shape[1] != width:
      raise ValueError(f'task_weights have shape {weights.shape}; valid is [classes, {width}], 2 classes or more')
    arguments.check_finite('task_weights', weights)
    inputs, probs = _inputs_and_probs(hmm, self)
    return inputs, tasks.labelled(self.task_weights, probs).labels


def _inputs_and_probs(hmm: Distribution, task: DownstreamTask) -> tuple[np.ndarray, np.ndarray]:
  """The inputs of a task and the posterior of its labels: P[H_i | X_{-i}] [n, H], or that of a first cell [n, M]."""
  for name in ('length', 'num_train', 'num_test'):
    arguments.check_size(name, getattr(task, name))
  if task.hidden not in (0, -1):
    raise ValueError(f'hidden is {task.hidden}; valid are 0, the first token, and -1, the last')
  key_texts, _ = jax.random.split(task.key)
  inputs, _ = tasks.draw_texts(key_texts, hmm, task.num_train + task.num_test, 0, task.length, task.hidden)
  return np.asarray(inputs), tasks.label_probs(hmm, inputs, hidden=task.hidden)


@with_promotion
def draw_task(hmm: Distribution, key: Array, **sizes: int) -> DownstreamTask:
  """Draw mu, six standard normal entries of [2, H], again until the training texts have both labels.

  >>> import jax, hmm_jax as hj
  >>> hmm, key = hj.random_hmm(jax.random.key(0), 3, 4), jax.random.key(1)
  >>> task = hj.draw_task(hmm, key, length=5, num_train=20, num_test=10)
  >>> inputs, labels = task.examples(hmm)
  >>> task.task_weights.shape, inputs.shape, labels.shape
  ((2, 3), (30, 5), (30,))

  Args:
    hmm: an `HMM` or a `MemoryHMM`.
    key: decides mu and all else of the task.
    **sizes: `length`, `num_train`, `num_test` and `hidden` of `DownstreamTask`.

  Raises:
    ValueError: 1000 draws gave all training texts one label, or the distribution is not valid.
  """
  key_weights, key_task = jax.random.split(key)
  task = DownstreamTask(np.zeros(0), key_task, **sizes)
  _, probs = _inputs_and_probs(arguments.distribution(hmm), task)
  drawn = tasks.draw_task(key_weights, probs, task.num_train, **defaults.TASK_WEIGHTS)
  return task._replace(task_weights=drawn.task_weights)


@dataclasses.dataclass(frozen=True)
class Tuned:
  """A head, and the prompt before it, tuned on a frozen model.

  Attributes:
    trainable: `head` and, unless there is none, `prompt`, each with a leading axis of one task.
    accuracy: the share of test texts that are classified correctly.
    tuner: what was trained.
    params: the model's parameters.
    hidden: position of the token that is masked, 0 or -1.

  >>> import hmm_jax as hj
  >>> hmm, model = hj.random_hmm(jax.random.key(0), num_states=3, num_tokens=4), hj.ExactModel(num_tokens=4)
  >>> task = draw_task(hmm, jax.random.key(1), length=5, num_train=20, num_test=10)
  >>> tuned = tune(model, hmm, hmm, task, prompt_length=2)
  >>> tuned.predict(np.tile([4, 1, 2, 3, 0], (6, 1))).shape
  (6,)
  """

  trainable: dict[str, Any] = dataclasses.field(repr=False)
  accuracy: float
  tuner: tuner_lib.Tuner = dataclasses.field(repr=False)
  params: Any = dataclasses.field(repr=False)
  hidden: int = 0

  @property
  def head(self) -> Any:
    """The parameters of the head, such as a `LinearHead`."""
    return jax.tree.map(lambda x: x[0], self.trainable['head'])

  @property
  def prompt(self) -> np.ndarray:
    """[P, E]. Raises KeyError if none was tuned."""
    return self.trainable['prompt'][0]

  @with_promotion
  def predict(self, tokens: Array | np.ndarray) -> np.ndarray:
    """The class [n] of each text [n, T], whose token at `hidden` is masked if it is not.

    Raises ValueError at an id that is neither in the vocabulary nor [MASK].
    """
    assert self.tuner.model is not None
    tokens, params = arguments.array('tokens', tokens), arguments.model_params(self.params)
    trainable = arguments.tree('trainable', self.trainable)
    arguments.check_texts(self.tuner.model, params, tokens)
    if tokens.ndim != 2:
      raise ValueError(f'tokens have shape {tokens.shape}; valid is [texts, length]')
    arguments.check_ids('positions of the head', positions_read(self.tuner.head, 0, tokens.shape[1]), tokens.shape[1])
    # An accelerator would round products otherwise.
    with jax.default_matmul_precision('float32'):
      inputs = np.asarray(tasks.hide(tokens, self.tuner.model.num_tokens, self.hidden))
      features = tuner_lib.frozen_features(self.tuner, params, inputs, **_AT_A_TIME)
      # A head alone needs no model from here on: its features are computed.
      tuner, frozen = self.tuner.after_features(params)
      (classes,) = np.asarray(tuner_lib.predictions(tuner, trainable, frozen, features, **_AT_A_TIME))
      return classes

  def save(self, directory: Path) -> None:
    """Write the prompt and the head to a new folder, with the frozen model in its folder `model`.

    On a masked BERT the prompt is a PEFT adapter: `PeftModel.from_pretrained(model, directory)`, where `model` is that
    of the folder `model` in transformers. Its output has P rows in front, and a linear head of the first token reads
    the probabilities of row P.

    Raises:
      ValueError: the model or the head is of a class of your own, or the folder is not empty; nothing is left then.
      OSError: the folder cannot be written.

    >>> import tempfile, hmm_jax as hj
    >>> hmm, model = hj.random_hmm(jax.random.key(0), num_states=3, num_tokens=4), hj.ExactModel(num_tokens=4)
    >>> task = draw_task(hmm, jax.random.key(1), length=5, num_train=20, num_test=10)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...   tune(model, hmm, hmm, task, prompt_length=2).save(f'{folder}/tuned')
    ...   load_tuned(f'{folder}/tuned').prompt.shape
    (2, 3)
    """
    trainable = jax.tree.map(lambda x: x[0], self.trainable)
    tuned_files.save_tuned(directory, self.tuner, self.params, trainable, self.accuracy, self.hidden)


def load_tuned(directory: Path) -> Tuned:
  """Read a folder of `Tuned.save`; the predictions are the same.

  Raises:
    ValueError: a file is damaged or lacks parts.
    OSError: there is no such folder or file.

  >>> load_tuned('tuned')
  Traceback (most recent call last):
  FileNotFoundError: [Errno 2] No such file or directory: 'tuned/model/config.json'
  """
  tuner, params, trainable, accuracy, hidden = tuned_files.load_tuned(directory)
  return Tuned(jax.tree.map(lambda x: x[None], trainable), accuracy, tuner, params, hidden)


@with_promotion
def tune(
  model: MaskedLM,
  params: Any,
  hmm: Distribution,
  task: DownstreamTask,
  *,
  prompt_length: int = defaults.PROMPT_LENGTH,
  head: Head | None = None,
  schedule: tuner_lib.Schedule | None = None,
  report: Report | None = None,
) -> Tuned:
  """Tune a head, with a prompt before the text, on a frozen model, by the paper's schedule unless given another.

  Args:
    model: such as what `pretrain` returns, `ExactModel`, or a `MaskedLM` of your own.
    params: its parameters; of an `ExactModel` the distribution.
    hmm: what the task's texts are drawn from.
    task: from `draw_task`, or of your own mu: `DownstreamTask(mu, key)`.
    prompt_length: P; 0 tunes only the head.
    head: a linear one at the [MASK] if None.
    schedule: of AdamW.
    report: called after every epoch with the steps so far and its mean `train_loss` in nats.

  Raises:
    ValueError: `task_weights` or the model's vocabulary do not fit `hmm`, the distribution is not valid, or a causal
      model is to predict a first token, before which there is nothing.
    Diverged: a loss is not finite.

  >>> import hmm_jax as hj
  >>> hmm, model = hj.random_hmm(jax.random.key(0), num_states=3, num_tokens=4), hj.ExactModel(num_tokens=4)
  >>> task = draw_task(hmm, jax.random.key(1), length=5, num_train=20, num_test=10)
  >>> tune(model, hmm, hmm, task, prompt_length=2).prompt.shape
  (2, 3)
  """
  hmm, params = arguments.distribution(hmm), arguments.model_params(params)
  arguments.check_vocabulary(model, hmm)
  arguments.check_size('prompt_length', prompt_length, 0)
  if model.causal and not task.hidden:
    raise ValueError('hidden of the task is 0; valid is -1 for a causal model: draw_task(hmm, key, hidden=-1)')
  arguments.check_params(model, params)
  inputs, labels = task.examples(hmm)
  schedule = schedule or tuner_lib.Schedule(**defaults.SCHEDULE)
  prompt = tuner_lib.Prompt(prompt_length, defaults.PROMPT_SCALE) if prompt_length else None
  head = head or Linear(len(task.task_weights), position=task.hidden)
  check_head(head, len(task.task_weights), model.num_tokens, task.length)
  tuner = tuner_lib.Tuner(model, head, prompt)
  _, key_tuning = jax.random.split(task.key)
  # An accelerator would round products otherwise.
  with jax.default_matmul_precision('float32'):
    shown, taught = inputs[: task.num_train], labels[None, : task.num_train]
    features = tuner_lib.frozen_features(tuner, params, shown, **_AT_A_TIME)
    examples = tuner_lib.Examples(features, taught, np.zeros(1, np.int32), ['the task'])
    for state, losses in tuner_lib.fit(jax.random.split(key_tuning), tuner, schedule, params, examples):
      if report and losses is not None:
        report(int(state.step), {'train_loss': float(losses[0])})
  tuned = Tuned(jax.device_get(state.trainable), math.nan, tuner, params, task.hidden)
  is_right = tuned.predict(inputs[task.num_train :]) == labels[task.num_train :]
  return dataclasses.replace(tuned, accuracy=float(is_right.mean()))
