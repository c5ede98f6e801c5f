"""One trial: settings -> HMM -> corpus -> pretrained model -> tasks -> tuned head and prompt -> records."""

import functools
import io
import pathlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments import checkpoints
from experiments import pretraining
from experiments.progress import Reporter
from experiments.settings import Settings
from hmm_jax import bert as bert_lib
from hmm_jax import model as model_lib
from hmm_jax import pretrain
from hmm_jax import tasks as tasks_lib
from hmm_jax import tuning
from hmm_jax.hmm import chunk_start
from hmm_jax.hmm import HMM
from hmm_jax.hmm import random_hmm
from hmm_jax.hmm import sample_corpus

Array = jax.Array


class Keys(NamedTuple):
  """One PRNG key for each thing a trial draws, all from (seed, num_states, trial)."""

  hmm: Array
  pretraining: Array
  measure: Array
  downstream: Array
  tasks: Array
  tuning: Array


class Downstream(NamedTuple):
  """Inputs [n, T] shared by the tasks of a trial: training, then validation, then test, as `splits` says."""

  inputs: Array
  tasks: list[tasks_lib.Task]
  splits: dict[str, slice]


class Trial(NamedTuple):
  """A point of the grid, and its paths."""

  settings: Settings
  num_states: int
  trial: int
  workdir: pathlib.Path

  @property
  def id(self) -> str:
    return self.settings.trial_id(self.num_states, self.trial)

  @property
  def directory(self) -> pathlib.Path:
    return self.workdir / 'trials' / self.id

  @property
  def records_path(self) -> pathlib.Path:
    return self.directory / 'records.jsonl'

  @property
  def pretrained_directory(self) -> pathlib.Path:
    return self.workdir / 'pretrained' / self.settings.pretraining_id(self.num_states, self.trial)

  def keys(self) -> Keys:
    key = jax.random.key(self.settings.seed)
    for number in (self.num_states, self.trial):
      key = jax.random.fold_in(key, number)
    return Keys(*jax.random.split(key, len(Keys._fields)))

  def wanted(self) -> set[tuple[int, str, str]]:
    """The (task, model, method) triples that the settings ask for; the exact model has nothing to fine-tune."""
    s = self.settings
    pairs = [(model, method) for model in s.models for method in s.methods if (model, method) != ('exact', 'finetune')]
    return {(task, *pair) for task in range(s.tasks_per_trial) for pair in pairs}

  def missing(self) -> set[tuple[int, str, str]]:
    """The wanted triples that have no record yet."""
    done = {(row['task'], row['model'], row['method']) for row in checkpoints.read_json_lines(self.records_path)}
    return self.wanted() - done


def draw_hmm(settings: Settings, num_states: int, key: Array) -> HMM:
  """The HMM of a trial."""
  h = settings.hmm
  return random_hmm(
    key,
    num_states,
    h.num_tokens,
    num_permutations=h.num_permutations or None,
    transition_temperature=h.transition_temperature,
    initial_temperature=h.initial_temperature,
    emission_temperature=h.emission_temperature,
  )


def run(trial: Trial, reporter: Reporter) -> None:
  """Adds the missing records of `trial` to its directory; an interrupted run leaves what it had finished."""
  if not trial.missing():
    return
  settings, keys = trial.settings, trial.keys()
  hmm = draw_hmm(settings, trial.num_states, keys.hmm)
  downstream, documents = _downstream(settings, hmm, keys)
  test_inputs = downstream.inputs[downstream.splits['test']][: settings.measure.num_inputs]
  ideals = _ideals(settings, hmm, test_inputs, documents, keys.measure)
  pretrain_keys = pretraining.Keys(*jax.random.split(keys.pretraining, len(pretraining.Keys._fields)))
  models = {'exact': (model_lib.exact_model(settings.hmm.num_tokens), hmm)}
  if 'bert' in settings.models:
    params = pretraining.pretrained_params(settings, hmm, ideals, pretrain_keys, trial.pretrained_directory, reporter)
    # Half precision is for pretraining alone: in it the gradients through a prompt vanish.
    bert = settings.bert_module().clone(dtype=jnp.float32)
    models['bert'] = bert_lib.masked_lm(bert), jax.device_put(params, jax.devices()[0])
  # Some accelerators round float32 products unless told otherwise.
  with jax.default_matmul_precision('float32'):
    for name in settings.models:
      model, frozen = models[name]
      gap = pretraining.measure(settings, model, frozen, ideals)
      for method in settings.methods:
        tasks = sorted(task for task, *pair in trial.missing() if pair == [name, method])
        if tasks:
          _tune_and_record(trial, model, frozen, method, tasks, downstream, gap, keys.tuning, reporter)


def _downstream(settings: Settings, hmm: HMM, keys: Keys) -> tuple[Downstream, Array]:
  """The tasks of a trial, and further documents of the same length for measuring the model."""
  d = settings.downstream
  ends = [int(end) for end in np.cumsum([0, d.num_train, d.num_validation, d.num_test])]
  documents = sample_corpus(keys.downstream, hmm, ends[-1] + settings.measure.num_documents, d.length)
  inputs = tasks_lib.mask_first(documents[: ends[-1]], hmm.num_tokens)
  state_probs = tasks_lib.first_state_probs(hmm, inputs)
  draw = functools.partial(
    tasks_lib.draw_task,
    state_probs=state_probs,
    num_train=d.num_train,
    num_nonzero=d.num_nonzero,
    num_classes=d.num_classes,
    with_replacement=d.with_replacement,
  )
  tasks = [draw(jax.random.fold_in(keys.tasks, task)) for task in range(settings.tasks_per_trial)]
  names = ('train', 'validation', 'test')
  splits = {name: slice(start, end) for name, start, end in zip(names, ends, ends[1:])}
  return Downstream(inputs, tasks, splits), documents[ends[-1] :]


def _ideals(settings: Settings, hmm: HMM, test_inputs: Array, documents: Array, key: Array) -> pretraining.Ideals:
  corpus, key_corrupt = settings.corpus, jax.random.fold_in(key, 1)
  at_chunk = chunk_start(hmm, corpus.chunk_length, corpus.chunks_per_document)
  chunks = sample_corpus(key, at_chunk, settings.measure.num_chunks, corpus.chunk_length)
  make = lambda hmm, at_chunk, chunks, test_inputs, documents: pretraining.Ideals(
    corrupted=pretrain.ideal_under_corruption(key_corrupt, at_chunk, settings.corruption(), chunks),
    at_mask=pretrain.ideal_at_mask(hmm, test_inputs),
    one_at_a_time=pretrain.ideal_one_at_a_time(hmm, documents),
  )
  return jax.jit(make)(hmm, at_chunk, chunks, test_inputs, documents)


@functools.cache
def _prompt_init(model: model_lib.MaskedLM, init: str, length: int, scale: float):
  # Cached, so that the tuner, and with it the compiled steps, is the same object in every trial.
  if init == 'vocabulary':
    return lambda key, frozen: tuning.vocabulary_prompt(key, model, frozen, length)
  return lambda key, frozen: tuning.uniform_prompt(key, model, frozen, length, scale)


def _tuner(settings: Settings, model: model_lib.MaskedLM, method: str) -> tuning.Tuner:
  num_classes = settings.downstream.num_classes
  if method == 'prompt':
    p = settings.prompt
    return tuning.prompt_tuner(model, num_classes, _prompt_init(model, p.init, p.length, p.init_scale))
  makers = {'head': tuning.head_tuner, 'probe': tuning.probe_tuner, 'finetune': tuning.finetune_tuner}
  return makers[method](model, num_classes)


def _tune_and_record(
  trial: Trial,
  model: model_lib.MaskedLM,
  frozen: Any,
  method: str,
  tasks: list[int],
  downstream: Downstream,
  gap: dict[str, float],
  key: Array,
  reporter: Reporter,
) -> None:
  settings = trial.settings
  tuner = _tuner(settings, model, method)
  batch_size = settings.measure.batch_size
  features = tuning.frozen_features(tuner, frozen, downstream.inputs, batch_size=batch_size)
  labels = jnp.stack([downstream.tasks[task].labels for task in tasks])
  train, test = downstream.splits['train'], downstream.splits['test']
  name = f'{method} on {model.name}'
  schedule = settings.tuning(method).schedule
  trainable, losses = _tune(tuner, schedule, frozen, features[train], labels[:, train], tasks, key, name, reporter)
  correct = tuning.predictions(tuner, trainable, frozen, features, batch_size=batch_size) == labels
  accuracies = {split: correct[:, where].mean(-1) for split, where in downstream.splits.items()}
  majority = tasks_lib.majority_accuracy(labels[:, train], labels[:, test])
  rows = []
  for index, task in enumerate(tasks):
    rows.append(
      {
        'experiment': settings.experiment,
        'scale': settings.scale,
        'num_states': trial.num_states,
        'memory_size': 0,
        'trial': trial.trial,
        'task': task,
        'seed': settings.seed,
        'model': model.name,
        'method': method,
        'accuracy': float(accuracies['test'][index]),
        'validation_accuracy': float(accuracies['validation'][index]),
        'train_accuracy': float(accuracies['train'][index]),
        'train_loss': float(losses[index]),
        'majority_accuracy': float(majority[index]),
        'label_noise_ceiling': 1.0,
        'redraws': downstream.tasks[task].redraws,
        'smallest_margin': downstream.tasks[task].smallest_margin,
        **gap,
        'trial_id': trial.id,
        'pretraining_id': settings.pretraining_id(trial.num_states, trial.trial),
      }
    )
    _save_tuned(trial, model.name, method, task, trainable, index)
  _add_records(trial, rows)
  reporter.say(f'{name}: accuracy {100 * float(accuracies["test"].mean()):.1f}% over {len(tasks)} tasks')


def _tune(
  tuner: tuning.Tuner,
  schedule: tuning.Schedule,
  frozen: Any,
  features: Array,
  labels: Array,
  tasks: list[int],
  key: Array,
  name: str,
  reporter: Reporter,
) -> tuple[Any, Array]:
  key_init, key_order = jax.random.split(key)
  state = tuning.init_tuning(key_init, tuner, schedule, frozen, tasks=jnp.array(tasks), num_inputs=features.shape[0])
  # Committed to its device from the first call on, as it is after it, so that the epoch compiles once.
  state = jax.device_put(state, jax.devices()[0])
  losses = jnp.zeros(len(tasks))
  with reporter.track(name, schedule.num_epochs) as advance:
    for epoch in range(schedule.num_epochs):
      state, losses = tuning.tune_epoch(state, key_order, tuner, schedule, frozen, features, labels)
      advance(epoch + 1, f'loss {float(losses.mean()):.3f}')
  return state.trainable, losses


def _save_tuned(trial: Trial, model: str, method: str, task: int, trainable: Any, index: int) -> None:
  """The tuned arrays alone, entry `index` of the leading axis, as npz with the tree's paths for names."""
  leaves = jax.tree_util.tree_leaves_with_path(trainable)
  arrays = {jax.tree_util.keystr(path, simple=True, separator='/'): np.asarray(x[index]) for path, x in leaves}
  buffer = io.BytesIO()
  np.savez(buffer, **arrays)
  checkpoints.write_whole(trial.directory / 'tuned' / f'{model}-{method}-task{task}.npz', buffer.getvalue())


def _add_records(trial: Trial, rows: list[dict[str, Any]]) -> None:
  rows = checkpoints.read_json_lines(trial.records_path) + rows
  rows.sort(key=lambda row: (row['task'], row['model'], row['method']))
  checkpoints.write_json_lines(trial.records_path, rows)
