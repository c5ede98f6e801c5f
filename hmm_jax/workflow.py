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

from collections.abc import Callable, Iterator
import dataclasses
import functools
import math
import numbers
import time
from typing import Any, NamedTuple
import warnings

from flax import linen as nn
import jax
from jax import Array
import jax.numpy as jnp
import numpy as np
import optax

from hmm_jax import defaults
from hmm_jax._support import arguments
from hmm_jax._support.display import helped
from hmm_jax._support.float64 import with_promotion
from hmm_jax.distributions.hmm import Distribution
from hmm_jax.distributions.memory_hmm import MemoryHMM
from hmm_jax.distributions.sampling import far_start, in_chunks, sample_chunks, token_dtype
from hmm_jax.files import tuned as tuned_files
from hmm_jax.files.folders import Path
from hmm_jax.models import bayes_gap, flax_model, pretraining, sharding
from hmm_jax.models.bert import Bert, BertModel
from hmm_jax.models.masking import Corruption, next_token
from hmm_jax.models.model import MaskedLM
from hmm_jax.models.optimizer import scheduled
from hmm_jax.tuning import tasks, tuner as tuner_lib
from hmm_jax.tuning.heads import check_head, Head, Linear, positions_read

# Called with the steps so far and measurements by name: a progress line, or a logger of your own.
Report = Callable[[int, dict[str, float]], None]

# Longer documents are sampled for minutes, or not at all.
_LONGEST_DOCUMENT = 2**24
_AT_A_TIME = dict(batch_size=defaults.INPUTS_AT_A_TIME)


@helped
@dataclasses.dataclass(frozen=True)
class Pretrained:
  """A pretrained model, which unpacks as `model, params`, and its cost.

  Attributes:
    model: `BertModel`, or `FlaxModel` of a module of your own.
    params: its parameters.
    seconds: wall time, with sampling, compiling and reporting.
    tokens: that were read, with repetitions.

  >>> import hmm_jax as hj
  >>> bert = Bert(num_tokens=3, num_layers=1, width=8, num_heads=2, ffn_width=16, max_positions=64, dropout_rate=0.0)
  >>> done = pretrain(hj.processes.mess3(), 0, steps=2, bert=bert)
  >>> model, params = done
  >>> done.tokens, done.num_parameters  # of two batches of 32 chunks of 64 tokens
  (4096, 1252)
  """

  model: MaskedLM
  params: Any = dataclasses.field(repr=False)
  seconds: float
  tokens: int

  def __iter__(self) -> Iterator[Any]:
    return iter((self.model, self.params))

  @property
  def num_parameters(self) -> int:
    return sum(map(np.size, jax.tree.leaves(self.params)))


@with_promotion
def pretrain(
  hmm: Distribution,
  key: Array | int,
  *,
  steps: int = defaults.NUM_STEPS,
  bert: Bert | None = None,
  model: nn.Module | None = None,
  learning_rate: float | None = None,
  optimizer: optax.GradientTransformation | None = None,
  batch_size: int = defaults.BATCH_SIZE,
  corpus: Array | np.ndarray | None = None,
  document_length: int | None = None,
  chunk_length: int | None = None,
  report: Report | None = None,
  callback: Callable[[int, Any], None] | None = None,
) -> Pretrained:
  """Pretrain a model on text of a distribution by masked language modelling; `model, params = pretrain(...)`.

  A causal one is pretrained by next-token prediction.

  Args:
    hmm: an `HMM`, a `MemoryHMM` or a `Process`.
    key: decides the text, the first parameters and every step; an integer is a seed.
    steps: number of steps; 0 gives the untrained parameters that this key starts from.
    bert: the sizes of a BERT; those of the small scale if None. The model that is returned computes in float32.
    model: any linen module with `embed` and `predict` in its place, as `hmm_jax.models.flax_model.FlaxModel` describes.
    learning_rate: its peak, after 50 steps of warm-up and before a linear decay to 0; 0.002 if None. A BERT is trained
      by Muon, whose matrices have ten times that rate, any other module by AdamW.
    optimizer: of optax, in place of these.
    batch_size: chunks of a step.
    corpus: documents [S, T] of token ids to read in place of a sample.
    document_length: tokens of a sampled document; 10,240 if None. At most of `chunk_length`, every chunk is a text that
      begins at the initial law. Otherwise a chunk begins anywhere.
    chunk_length: tokens that the model reads at once, 64 or those of a document; a document's remainder is dropped.
    report: called after every 50 steps, or the largest number below 50 that divides `steps`, with `train_loss`, the
      mean loss in nats of the steps since the last call, and the distance from the exact G of `hmm` at the [MASK] of
      texts, their first token, or their last for a causal model: `kl_at_mask` in nats and `tv_at_mask`, total
      variation. Nothing is measured if None.
    callback: called before the first step and with each report, with the steps so far and the parameters (numpy).

  Raises:
    ValueError: the distribution or a number is not valid, two arguments decide the same, or `bert` or `model` is for
      another vocabulary or no language model.
    Diverged: a loss is not finite.

  >>> import hmm_jax as hj
  >>> hmm = hj.random_hmm(jax.random.key(0), num_states=3, num_tokens=4)
  >>> bert = Bert(num_tokens=4, num_layers=1, width=8, num_heads=2, ffn_width=16, max_positions=64, dropout_rate=0.0)
  >>> model, params = pretrain(hmm, jax.random.key(1), steps=1, bert=bert)
  >>> hj.token_probs(model, params, jnp.array([[4, 1, 2, 3, 0]])).shape
  (1, 5, 4)
  """
  start = time.perf_counter()
  hmm, key = arguments.process('hmm', hmm), arguments.key(key)
  arguments.given_once(bert=bert, model=model)
  arguments.require(bert is None or isinstance(bert, Bert), 'bert', bert, 'a Bert; `model` takes other modules')
  arguments.given_once(corpus=corpus, document_length=document_length)
  arguments.check_size('steps', steps, least=0)
  arguments.check_functions(report=report, callback=callback)
  network, trained = _network(hmm, bert or model)
  optimizer = _optimizer(trained, optimizer, learning_rate, steps)
  # The first three are those of the suite.
  key_corpus, key_params, key_steps, key_texts = jax.random.split(key, 4)
  chunks = _chunks(key_corpus, hmm, corpus, document_length, chunk_length)
  arguments.check_size('chunk_length', chunks.shape[1], most=trained.max_positions)
  arguments.check_size('batch_size', batch_size, most=len(chunks))
  each = max(size for size in range(1, defaults.STEPS_PER_CALL + 1) if steps % size == 0)
  sizes = dict(batch_size=batch_size, steps_per_call=each, mesh=sharding.make_mesh())
  init, train_steps = _programs(network, optimizer, _corruption(trained), **sizes)
  state = init(key_params)
  if isinstance(trained, flax_model.FlaxModel):
    flax_model.check(trained, pretraining.params_here(state), chunks.shape[1])
  if callback:
    callback(0, jax.device_get(pretraining.params_here(state)))
  measure = _measure(key_texts, hmm, trained, chunks.shape[1]) if report else None
  call = lambda state: train_steps(state, chunks, key_steps)
  calls = pretraining.training_calls(call, state, each, steps)
  for step, state, loss in calls:
    if report and measure:
      report(step, {'train_loss': loss, **measure(pretraining.params_here(state))})
    if callback:
      callback(step, jax.device_get(pretraining.params_here(state)))
  params = jax.block_until_ready(pretraining.params_here(state))
  return Pretrained(trained, params, time.perf_counter() - start, steps * batch_size * chunks.shape[1])


def _measure(key: Array, hmm: Distribution, model: MaskedLM, most: int) -> Callable[[Any], dict[str, float]]:
  """The distances of parameters from the exact G at the [MASK] of texts of at most so many tokens."""
  hidden, length = -1 if model.causal else 0, min(defaults.LENGTH, most)
  inputs, _ = tasks.draw_texts(key, hmm, defaults.NUM_INPUTS, 0, length, hidden)
  ideal = bayes_gap.ideal_at_mask(hmm, np.asarray(inputs), hidden=hidden, **_AT_A_TIME)

  def measure(params: Any) -> dict[str, float]:
    gap = bayes_gap.measure_gap(model, params, ideal, **_AT_A_TIME)
    return {'kl_at_mask': gap.kl, 'tv_at_mask': gap.total_variation}

  return measure


def _network(hmm: Distribution, module: nn.Module | None) -> tuple[nn.Module, MaskedLM]:
  """A module as pretraining calls it, and the model that it becomes."""
  module = module or Bert(num_tokens=hmm.num_tokens, **defaults.BERT)
  if isinstance(module, Bert):
    arguments.check_vocabulary(module, hmm)
    return module, BertModel(module.clone(dtype=jnp.float32))
  is_module = isinstance(module, nn.Module) and hasattr(module, 'embed') and hasattr(module, 'predict')
  arguments.require(is_module, 'model', module, 'a flax.linen module, no class, with embed and predict')
  return flax_model.network(module), flax_model.FlaxModel(module, hmm.num_tokens)


def _chunks(key: Array, hmm: Distribution, corpus: Any, document_length: int | None, chunk_length: int | None) -> Any:
  """The chunks [S, T] of a corpus, or of as many tokens as by default."""
  sizes, documents = defaults.CORPUS, None
  if corpus is not None:
    documents = np.asarray(arguments.array('corpus', corpus))
    _, length = arguments.check_shape('corpus', documents, 'documents', 'length')
    arguments.check_ids('corpus', documents, hmm.num_tokens)
  else:
    length = sizes['document_length'] if document_length is None else document_length
    arguments.check_size('document_length', length, most=_LONGEST_DOCUMENT)
  chunk_length = min(sizes['chunk_length'], length) if chunk_length is None else chunk_length
  arguments.check_size('chunk_length', chunk_length, most=length)
  if documents is not None:
    return in_chunks(documents.astype(token_dtype(hmm.num_tokens)), chunk_length)
  if far := far_start(hmm, length, chunk_length):
    warnings.warn(far, stacklevel=4)
  num_documents = -(-sizes['num_documents'] * sizes['document_length'] // length)
  return sample_chunks(key, hmm, num_documents, length, chunk_length)


def _optimizer(model: MaskedLM, given: Any, learning_rate: Any, num_steps: int) -> optax.GradientTransformation:
  """The optimiser that is given, or Muon for a BERT, whose kernels are matrices, and AdamW for any other model."""
  arguments.given_once(learning_rate=learning_rate, optimizer=given)
  arguments.require(
    given is None or hasattr(given, 'update'), 'optimizer', given, 'one of optax, such as optax.adam(1e-3)'
  )
  is_rate = isinstance(learning_rate, numbers.Real) and 0 < float(learning_rate) < math.inf
  valid = 'a number above 0; `optimizer` takes a schedule'
  arguments.require(learning_rate is None or is_rate, 'learning_rate', learning_rate, valid)
  return given or _scheduled(isinstance(model, BertModel), learning_rate, num_steps)


@functools.lru_cache(8)
def _scheduled(for_bert: bool, learning_rate: float | None, num_steps: int) -> optax.GradientTransformation:
  fields = dict(defaults.OPTIMIZER, warmup_steps=defaults.WARMUP_STEPS, num_steps=num_steps)
  factor = 1 if learning_rate is None else learning_rate / fields['learning_rate']
  fields['learning_rate'] *= factor
  fields['muon_learning_rate'] = fields['muon_learning_rate'] * factor if for_bert else None
  return scheduled(**fields)


def _corruption(model: MaskedLM) -> Corruption:
  """The corruption of a masked model's text, or none for a causal one."""
  return next_token(model.num_tokens) if model.causal else Corruption(model.num_tokens, **defaults.CORRUPTION)


# One for every distribution, since no shape depends on it.
_programs = functools.lru_cache(8)(pretraining.make_programs)


@helped
class DownstreamTask(NamedTuple):
  """A classification of texts by the exact posterior, whatever model is tuned for it.

  Attributes:
    task_weights: [C, H], the paper's mu: label = argmax_c task_weights[c] @ P[H_i | X_{-i}] at the masked token i; or
      [C, M], of a memory's first cell; or labels [n] of `inputs`; or a function from the inputs [n, T] and posteriors
      [n, H] to labels [n]. Of a `Process` that function sees row i of `hj.beliefs` [n, S], over the states of T.
    key: decides the texts, where tuning starts and the order of its inputs; an integer is a seed.
    length: tokens of a text, one of which is masked.
    num_train: training texts.
    num_test: test texts.
    hidden: position of the masked token: 0, the first, or -1, the last, as causal models need it.
    inputs: [n, T], in place of texts that are drawn.

  >>> import hmm_jax as hj
  >>> hmm = hj.random_hmm(jax.random.key(0), num_states=3, num_tokens=4)
  >>> task = DownstreamTask(np.eye(3), jax.random.key(1), length=5, num_train=20, num_test=10)  # the likeliest state
  >>> inputs, labels = task.examples(hmm)
  >>> inputs.shape, bool(set(labels.tolist()) <= {0, 1, 2})
  ((30, 5), True)
  >>> def certain(inputs, posteriors):  # surer than half of the texts
  ...   return posteriors.max(1) > np.median(posteriors.max(1))
  >>> DownstreamTask(certain, jax.random.key(1), length=5, num_train=20, num_test=10).examples(hmm)[1].shape
  (30,)
  """

  task_weights: Any
  key: Array | int
  length: int = defaults.LENGTH
  num_train: int = defaults.NUM_TRAIN
  num_test: int = defaults.NUM_TEST
  hidden: int = 0
  inputs: Any = None

  @classmethod
  def from_labels(
    cls, inputs: Any, labels: Any, key: Array | int = 0, *, num_train: int | None = None, hidden: int = 0
  ) -> 'DownstreamTask':
    """A task of texts [n, T] and labels [n], integers from 0; the first `num_train`, 60% if None, are for training.

    Labels may be a function, as in `task_weights`. The token at `hidden` is masked if it is not. Raises ValueError if
    shapes, labels or `num_train` do not fit.

    >>> texts = np.array([[4, 1, 2], [4, 0, 1], [4, 3, 3]])
    >>> DownstreamTask.from_labels(texts, [0, 1, 1], num_train=2).num_test
    1
    """
    inputs = np.asarray(arguments.array('inputs', inputs))
    num_texts, length = arguments.check_shape('inputs', inputs, 'texts', 'length')
    labels = labels if callable(labels) else tasks.checked_labels(labels, num_texts)
    num_train = num_texts * 3 // 5 if num_train is None else num_train
    arguments.check_size('num_train', num_train, most=num_texts - 1)
    return cls(labels, key, length, num_train, num_texts - num_train, hidden, inputs)

  @with_promotion
  def examples(self, hmm: Distribution) -> tuple[np.ndarray, np.ndarray]:
    """Inputs [n, T], drawn from `hmm` unless given, with [MASK] at `hidden`, and labels [n]; training texts first.

    Raises ValueError where `task_weights` do not fit the distribution, labels of your own are one class, and what a
    function raises.
    """
    hmm, weights = arguments.distribution(hmm), self.task_weights
    inputs = _inputs(hmm, self)
    if callable(weights):
      posteriors = tasks.rule_probs(hmm, inputs, hidden=self.hidden)
      labels = tasks.labelled(weights, posteriors, inputs).labels
      tasks.check_classes(labels, self.num_train)
      return inputs, labels
    weights = arguments.array('task_weights', weights)
    if self.inputs is not None and weights.ndim == 1:
      tasks.check_classes(weights, self.num_train)
      return inputs, weights
    width = hmm.memory_size if isinstance(hmm, MemoryHMM) else hmm.joint_initial_probs.shape[-1]
    num_classes, _ = arguments.check_shape('task_weights', weights, 'classes', width)
    arguments.check_size('task_weights: the number of classes', num_classes, 2)
    arguments.check_finite('task_weights', weights)
    return inputs, tasks.labelled(weights, tasks.label_probs(hmm, inputs, hidden=self.hidden)).labels


def _inputs(hmm: Distribution, task: DownstreamTask) -> np.ndarray:
  """The inputs [n, T] of a task, masked."""
  if task.inputs is not None:
    arguments.check_ids('inputs', task.inputs, hmm.num_tokens + 1)
    return np.asarray(tasks.hide(task.inputs, hmm.num_tokens, task.hidden))
  for name in ('length', 'num_train', 'num_test'):
    arguments.check_size(name, getattr(task, name))
  if task.hidden not in (0, -1):
    raise ValueError(f'hidden is {task.hidden}; valid are 0, the first token, and -1, the last')
  key_texts, _ = jax.random.split(arguments.key(task.key))
  inputs, _ = tasks.draw_texts(key_texts, hmm, task.num_train + task.num_test, 0, task.length, task.hidden)
  return np.asarray(inputs)


@with_promotion
def draw_task(
  hmm: Distribution,
  key: Array | int,
  *,
  length: int = defaults.LENGTH,
  num_train: int = defaults.NUM_TRAIN,
  num_test: int = defaults.NUM_TEST,
  hidden: int = 0,
) -> DownstreamTask:
  """Draw mu, six standard normal entries of [2, H], again until the training texts have both labels.

  >>> import jax, hmm_jax as hj
  >>> hmm, key = hj.random_hmm(jax.random.key(0), 3, 4), jax.random.key(1)
  >>> task = hj.draw_task(hmm, key, length=5, num_train=20, num_test=10)
  >>> inputs, labels = task.examples(hmm)
  >>> task.task_weights.shape, inputs.shape, labels.shape
  ((2, 3), (30, 5), (30,))

  Args:
    hmm: an `HMM`, a `MemoryHMM` or a `Process`.
    key: decides mu and all else of the task.
    length: tokens of a text, one of which is masked.
    num_train: training texts.
    num_test: test texts.
    hidden: position of the masked token: 0, the first, or -1, the last, as causal models need it.

  Raises:
    ValueError: 1000 draws gave all training texts one label, or the distribution is not valid.
  """
  hmm, key = arguments.process('hmm', hmm), arguments.key(key)
  key_weights, key_task = jax.random.split(key)
  task = DownstreamTask(np.zeros(0), key_task, length, num_train, num_test, hidden)
  probs = tasks.label_probs(hmm, _inputs(hmm, task), hidden=task.hidden)
  drawn = tasks.draw_task(key_weights, probs, task.num_train, **defaults.TASK_WEIGHTS)
  return task._replace(task_weights=drawn.task_weights)


@helped
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
    tokens, params = arguments.array('tokens', tokens), self.params
    arguments.check_texts(self.tuner.model, params, tokens)
    arguments.check_shape('tokens', tokens, 'texts', 'length')
    arguments.check_ids('positions of the head', positions_read(self.tuner.head, 0, tokens.shape[1]), tokens.shape[1])
    # An accelerator would round products otherwise.
    with jax.default_matmul_precision('float32'):
      inputs = np.asarray(tasks.hide(tokens, self.tuner.model.num_tokens, self.hidden))
      features = tuner_lib.frozen_features(self.tuner, params, inputs, **_AT_A_TIME)
      # A head alone needs no model from here on: its features are computed.
      tuner, frozen = self.tuner.after_features(params)
      (classes,) = np.asarray(tuner_lib.predictions(tuner, self.trainable, frozen, features, **_AT_A_TIME))
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
  task: DownstreamTask | None = None,
  *,
  inputs: Any = None,
  labels: Any = None,
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
    task: from `draw_task`, or of your own mu or labels: `DownstreamTask(mu, key)`, `DownstreamTask(function, key)`.
    inputs: texts of your own with their `labels`, in place of a task, as `DownstreamTask.from_labels` takes them.
    labels: theirs; a function of texts and posteriors without `inputs` is `DownstreamTask(function, 0)`.
    prompt_length: P; 0 tunes only the head.
    head: a linear one at the [MASK] if None.
    schedule: of AdamW.
    report: called after every epoch with the steps so far and its mean `train_loss` in nats.

  Raises:
    ValueError: `task_weights` or the model's vocabulary do not fit `hmm`, the distribution is not valid, the model has
      no room for prompt and text, the head has other classes, or a causal model is to predict a first token, before
      which there is nothing.
    Diverged: a loss is not finite.

  >>> import hmm_jax as hj
  >>> hmm, model = hj.random_hmm(jax.random.key(0), num_states=3, num_tokens=4), hj.ExactModel(num_tokens=4)
  >>> task = draw_task(hmm, jax.random.key(1), length=5, num_train=20, num_test=10)
  >>> tune(model, hmm, hmm, task, prompt_length=2).prompt.shape
  (2, 3)
  """
  hmm, params = arguments.process('hmm', hmm), arguments.model_params(params)
  arguments.check_vocabulary(model, hmm)
  arguments.check_functions(report=report)
  schedule = schedule or tuner_lib.Schedule(**defaults.SCHEDULE)
  arguments.require(isinstance(schedule, tuner_lib.Schedule), 'schedule', schedule, 'a Schedule')
  task = _task(model, task, inputs, labels)
  arguments.check_params(model, params)
  inputs, labels = task.examples(hmm)
  tuner = _tuner(model, task, labels, prompt_length, head)
  _, key_tuning = jax.random.split(arguments.key(task.key))
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


def _task(model: MaskedLM, task: Any, inputs: Any, labels: Any) -> DownstreamTask:
  """The task that is given, or that of labels."""
  arguments.given_once(task=task, labels=labels)
  arguments.given_once(task=task, inputs=inputs)
  hidden = -1 if model.causal else 0
  if callable(labels) and inputs is None:
    return DownstreamTask(labels, 0, hidden=hidden)
  if labels is not None:
    return DownstreamTask.from_labels(inputs, labels, hidden=hidden)
  arguments.require(isinstance(task, DownstreamTask), 'task', task, 'a DownstreamTask, or labels in its place')
  if model.causal and not task.hidden:
    raise ValueError('hidden of the task is 0; valid is -1 for a causal model: draw_task(hmm, key, hidden=-1)')
  return task


def _tuner(model: MaskedLM, task: DownstreamTask, labels: np.ndarray, prompt_length: int, head: Any) -> tuner_lib.Tuner:
  """A head of the classes of a task, behind a prompt that the model has room for."""
  arguments.check_size('length', task.length, most=model.max_positions)
  arguments.check_size('prompt_length', prompt_length, 0, model.max_positions - task.length)
  mu = task.task_weights
  num_classes = len(mu) if np.ndim(mu) == 2 else max(int(labels.max()) + 1, 2)
  head = head or Linear(num_classes, position=task.hidden)
  check_head(head, num_classes, model.num_tokens, task.length)
  prompt = tuner_lib.Prompt(prompt_length, defaults.PROMPT_SCALE) if prompt_length else None
  return tuner_lib.Tuner(model, head, prompt)
