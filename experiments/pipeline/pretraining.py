"""Pretraining with checkpoints: the model that tuning freezes, and its distance from the ideal one."""

from collections.abc import Callable, Iterator, Sequence
import dataclasses
import functools
import math
import pathlib
import shlex
import sys
from typing import Any

import jax
from jax import Array
import jax.numpy as jnp
import numpy as np

from experiments.own import data
from experiments.pipeline import distance
from experiments.records import checkpoints, environment, files, models
from experiments.runtime import distributed, locks, signals, storage
from experiments.runtime.progress import Reporter
from experiments.settings.fields import require
from experiments.settings.grid import Settings
from experiments.settings.groups import CorpusSettings, MlmSettings
from experiments.settings.trial import trials
from hmm_jax._support import compilation, nan_guard
from hmm_jax.distributions.hmm import Distribution
from hmm_jax.distributions.sampling import in_chunks, sample_chunks
from hmm_jax.models import bert as bert_lib, pretraining as pretraining_lib, sharding
from hmm_jax.models.pretraining import params_here, training_calls, TrainState

# The distribution that the corpus is drawn from, or the documents [S, T] of a given corpus.
Text = Distribution | np.ndarray


class OutOfTime(Exception):
  """The time budget ended before the pretraining; its checkpoint is kept."""


_all_finite = jax.jit(nan_guard.all_finite, compiler_options=compilation.ONCE)


def check_machine(settings: Settings) -> None:
  """Raise SettingsError if BERT cannot be pretrained, this machine has no mesh for it or cannot write to `pretrained`.

  A folder that has every model is only read.
  """
  if settings.has_bert:
    _check_bert(settings)
    check_mesh(settings)
  if settings.pretrained:
    folder = storage.located(settings.pretrained, 'pretrained')
    if any(not models.is_finished(folder / name) for name in _pretraining_ids(settings)):
      storage.check_writable(folder, 'pretrained')


def _check_bert(s: Settings) -> None:
  """Raise SettingsError if BERT cannot be built or holds no text, or a pretraining passes by one of its steps."""
  b, p, chunks = s.bert, s.pretrain, s.corpus.num_chunks
  require(b.width % b.num_heads == 0, 'bert.width', b.width, f'a multiple of bert.num_heads, {b.num_heads}')
  added = max(map(s.num_rows_added, s.used_methods))
  longest = max(s.corpus.chunk_length, s.downstream.num_positions or s.downstream.length + added)
  valid = f'at least {longest}, the larger of corpus.chunk_length and a text with its prompt or further masks'
  require(b.max_positions >= longest, 'bert.max_positions', b.max_positions, valid)
  valid = f'at most {chunks}, the number of chunks in the corpus'
  require(p.batch_size <= chunks, 'pretrain.batch_size', p.batch_size, valid)
  valid = f'below pretrain.num_steps, {p.num_steps}'
  require(p.warmup_steps < p.num_steps, 'pretrain.warmup_steps', p.warmup_steps, valid)
  # Between two calls of the compiled program.
  calls = f'pretrain.steps_per_call, {p.steps_per_call}'
  for name in ('num_steps', 'checkpoint_every', 'measure_every'):
    value = getattr(p, name)
    require(value % p.steps_per_call == 0, f'pretrain.{name}', value, f'a multiple of {calls}')
  passed = tuple(step for step in range(0, p.num_steps + 1, p.steps_per_call) if step in s.checkpoints)
  valid = f'ascending multiples of {calls}, up to pretrain.num_steps, {p.num_steps}'
  require(s.checkpoints == passed, 'checkpoints', s.checkpoints, valid)


def _pretraining_ids(settings: Settings) -> Iterator[str]:
  """The ids of the pretrained models of a grid."""
  for trial in trials(settings):
    if 'bert' in settings.models:
      yield trial.pretraining_id
    if 'other_bert' in settings.models:
      yield trial.other.pretraining_id


def check_mesh(s: Settings) -> None:
  """Raise SettingsError if the devices do not make the mesh, or it does not divide the batch or a layer."""
  available = jax.device_count()
  data, fsdp, tensor = sizes = s.mesh.sizes(available)
  # If a size is -1 or several processes run, the mesh must use every device.
  is_exact = -1 in s.mesh.asked or jax.process_count() > 1
  valid = f'sizes whose product is {available}, the number of devices' + ('' if is_exact else ', or less')
  used = math.prod(sizes)
  require(
    used == available or (used < available and not is_exact), f'mesh ({", ".join(sharding.AXES)})', s.mesh.asked, valid
  )
  for name, value, parts, axes in (
    ('pretrain.batch_size', s.pretrain.batch_size, data * fsdp, 'mesh.data times mesh.fsdp'),
    ('bert.num_heads', s.bert.num_heads, tensor, 'mesh.tensor'),
    ('bert.ffn_width', s.bert.ffn_width, tensor, 'mesh.tensor'),
  ):
    require(value % parts == 0, name, value, f'a multiple of {axes}, {parts}')


def tuned_model(bert: bert_lib.Bert) -> bert_lib.BertModel:
  """BERT as it is tuned and measured: half precision is only for pretraining, since gradients through a prompt vanish
  in it."""
  return bert_lib.BertModel(bert.clone(dtype=jnp.float32))


@functools.cache
def compiled(
  bert: bert_lib.Bert, settings: MlmSettings, num_steps: int, mesh: jax.sharding.Mesh
) -> tuple[
  Callable[[Array], TrainState],
  Callable[[TrainState, Array, Array], tuple[TrainState, Array]],
]:
  """The compiled initialisation and steps of a pretraining: one for every HMM, since no shape depends on it."""
  return pretraining_lib.make_programs(
    bert,
    settings.gradient_transformation(num_steps),
    settings.corruption(bert.num_tokens, bert.causal),
    batch_size=settings.batch_size,
    steps_per_call=settings.steps_per_call,
    mesh=mesh,
  )


@functools.partial(jax.jit, compiler_options=compilation.ONCE)
def _keys(key: Array) -> tuple[Array, ...]:
  """The keys of the corpus, the initial parameters and the steps."""
  return tuple(jax.random.split(key, 3))


def _mesh(settings: Settings) -> jax.sharding.Mesh:
  return sharding.make_mesh(*settings.mesh.sizes(jax.device_count()))


def program(
  settings: Settings, text: Text, key: Array
) -> tuple[Callable[[Array], TrainState], Array, Callable[[], Callable[[TrainState], tuple[TrainState, Array]]]]:
  """The init of a pretraining, its key, and a function that draws the corpus and returns the steps on it."""
  p, mesh = settings.pretrain, _mesh(settings)
  init, train_steps = compiled(settings.bert_module(), p, p.num_steps, mesh)
  key_corpus, key_params, key_steps = _keys(key)

  def on_corpus() -> Callable[[TrainState], tuple[TrainState, Array]]:
    if isinstance(text, np.ndarray):
      chunks = in_chunks(text, settings.corpus.chunk_length)
    else:
      chunks = np.asarray(chunked_corpus(key_corpus, text, settings.corpus))
    corpus = jax.device_put(chunks, sharding.replicated(mesh))
    return lambda state: train_steps(state, corpus, key_steps)

  return init, key_params, on_corpus


def pretrained_params(
  settings: Settings,
  text: Text,
  ideals: distance.Ideals,
  key: Array,
  directory: pathlib.Path,
  reporter: Reporter,
  step: int | None = None,
) -> Any:
  """The parameters of the model of `directory`, trained on from its newest checkpoint if there is no model.

  With a `step`, one of `settings.checkpoints` before the last, those after it: training leaves the model of each.
  A model that is finished here is written; once there is one, checkpoints are removed unless the settings keep them.
  It waits while another process works on the directory. The mesh may differ from the one that saved the checkpoint. The
  parameters lie on the first device of this host, each array whole.

  Raises:
    OutOfTime: at a checkpoint past the time budget, or if the wait is longer.
    Lost: another process took the directory over.
    Diverged: at the first loss or state that is not finite, which is never saved.
    StorageError: a checkpoint could not be saved.
    Stopped: after a signal and a checkpoint. The running call of the compiled program ends first, with its compilation
      and a measurement if they are due.
  """
  # A finished model is complete, its checksums are written last: to read it needs no lock.
  is_read_only = distributed.broadcast_from_process_0(lambda: storage.is_read_only(directory))
  if is_read_only and (kept := models.load(directory, reporter, step)):
    return kept[1]
  num_steps, clock = settings.pretrain.num_steps, reporter.clock
  is_past = lambda: clock.is_past(settings.time_budget)
  with locks.held(directory, f'pretrained model {directory.name}', reporter, gives_up=is_past) as is_held:
    if not is_held:
      raise OutOfTime
    distributed.broadcast_from_process_0(lambda: files.remove_partials(directory))
    found = models.load(directory, reporter)
    if found:
      note_environment(settings, directory, num_steps, reporter)
    elif settings.pretrained_from:
      bert, params, of_model = data.model(settings.pretrained_from)
      found = tuned_model(bert), jax.device_put(params, jax.local_devices()[0])
      models.write(directory, *found, of_model, f'# {settings.pretrained_from}', settings.pretrained_from)
    else:
      with signals.deferred(), clock.phase('pretraining'):
        state, metrics = _trained(settings, text, ideals, key, directory, reporter)
        if int(state.step) == num_steps:
          locks.check_held(directory)
          found = tuned_model(settings.bert_module()), params_here(state)
          distribution = None if isinstance(text, np.ndarray) else text
          models.write(directory, *found, distribution, _card(settings, directory.name, metrics))
      if not found:
        reporter.say(f'time budget reached at pretraining step {int(state.step)} of {num_steps}')
        raise OutOfTime
    if not settings.keep_checkpoints:
      checkpoints.remove(directory / checkpoints.NAME)
    return found[1] if step is None else _early_params(settings, text, key, directory, step, reporter)


def _early_params(
  settings: Settings, text: Text, key: Array, directory: pathlib.Path, step: int, reporter: Reporter
) -> Any:
  """The parameters after one of `settings.checkpoints` before the last.

  A model that is corrupt, or was not asked for when the pretraining passed the step, is made by training anew, and with
  it all others that are missing.
  """
  if found := models.load(directory, reporter, step):
    return found[1]
  early = [each for each in settings.checkpoints if each < settings.pretrain.num_steps]
  missing = [each for each in early if each == step or not models.is_finished(directory, each)]
  for each, params in params_along(settings, text, key, missing, reporter):
    _write_early(settings, directory, each, params)
    if each == step:
      asked = params
  return jax.device_put(asked, jax.local_devices()[0])


def _write_early(settings: Settings, directory: pathlib.Path, step: int, params: Any) -> None:
  """Write the model after `step` steps; raise Lost."""
  locks.check_held(directory)
  card = f'# BERT {directory.name} after {step} steps\n'
  models.write(directory, tuned_model(settings.bert_module()), params, None, card, step=step)


def _trained(
  settings: Settings, text: Text, ideals: distance.Ideals, key: Array, directory: pathlib.Path, reporter: Reporter
) -> tuple[TrainState, list[dict[str, float]]]:
  """The state at which `train` ends, and its metrics; from the newest checkpoint on."""
  mesh = _mesh(settings)
  init, key_params, on_corpus = program(settings, text, key)
  with checkpoints.open_checkpoints(directory / checkpoints.NAME, reporter) as saved:
    shapes = jax.eval_shape(init, key_params)
    like = jax.tree.map(checkpoints.sharded_like, shapes, sharding.state_shardings(mesh, shapes))
    state, metrics = saved.restore(like) or (init(key_params), [])
    note_environment(settings, directory, int(state.step), reporter)
    if int(state.step) < settings.pretrain.num_steps:
      with reporter.clock.phase('corpus'):
        call = on_corpus()
      state = train(settings, state, metrics, call, ideals, saved, directory, reporter)
  return state, metrics


def _card(settings: Settings, name: str, metrics: list[dict[str, float]]) -> str:
  """The model card of a pretraining."""
  text, gap = settings.corpus_file or 'documents of the process in `distribution.json`', metrics[-1]['kl_at_mask']
  steps, command = settings.pretrain.num_steps, shlex.join(sys.orig_argv)
  return f'# BERT {name}\n\n{steps} steps on {text}. KL(G || BERT) at the [MASK]: {gap:.4f} nats.\n\n    {command}\n'


def initial_params(settings: Settings, hmm: Distribution, key: Array) -> Any:
  """The initial parameters of the pretraining of this key, on the device of `pretrained_params`."""
  init, key_params, _ = program(settings, hmm, key)
  return params_here(init(key_params))


def params_along(
  settings: Settings, text: Text, key: Array, steps: Sequence[int], reporter: Reporter
) -> Iterator[tuple[int, Any]]:
  """The parameters after each of `steps`, ascending multiples of `steps_per_call`, of the pretraining of this key.

  They equal those of `pretrained_params` at these steps; nothing is measured or saved.
  """
  init, key_params, on_corpus = program(settings, text, key)
  yield from along(on_corpus(), init(key_params), steps, settings.pretrain.steps_per_call, reporter)


def along(
  call: Callable[[TrainState], tuple[TrainState, Array]],
  state: TrainState,
  steps: Sequence[int],
  steps_per_call: int,
  reporter: Reporter,
) -> Iterator[tuple[int, Any]]:
  """The parameters, numpy's, after each of `steps`, ascending multiples of `steps_per_call`, from a state at step 0."""
  if 0 in steps:
    yield 0, jax.device_get(params_here(state))
  calls = training_calls(call, state, steps_per_call, steps[-1])
  with reporter.track('pretraining', steps[-1]) as advance:
    for done, state, loss in calls:
      advance(done, f'loss {loss:.3f}')
      if done in steps:
        yield done, jax.device_get(params_here(state))


def train(
  settings: Settings,
  state: TrainState,
  metrics: list[dict[str, float]],
  call: Callable[[TrainState], tuple[TrainState, Array]],
  ideals: distance.Ideals,
  saved: checkpoints.Checkpoints,
  directory: pathlib.Path,
  reporter: Reporter,
) -> TrainState:
  """Train on from a state and its metrics, while measuring, reporting and saving checkpoints.

  Returns the last state, or that of the first checkpoint past the time budget, or of the call in which a signal came.
  """
  p, clock, start = settings.pretrain, reporter.clock, int(state.step)

  def measure_state(state: TrainState, **loss: float) -> None:
    with clock.phase('measuring'):
      metrics.append(metrics_at(settings, state, ideals, **loss))
    _write_metrics(directory, metrics)

  if not metrics:
    measure_state(state)
  before, calls = clock.spent()['pretraining'], training_calls(call, state, p.steps_per_call, p.num_steps)
  with reporter.track('pretraining', p.num_steps, start) as advance:
    for step, state, loss in calls:
      tokens = (step - start) * p.batch_size * settings.corpus.chunk_length
      speed = tokens / (clock.spent()['pretraining'] - before)[1]
      # Only for progress: metrics must not depend on the machine.
      note = f'loss {loss:.3f}, {speed:,.0f} tokens/s'
      if step % p.measure_every == 0 or step == p.num_steps:
        measure_state(state, train_loss=loss)
        note += f', KL at [MASK] {metrics[-1]["kl_at_mask"]:.3f}'
      is_stopping = bool(signals.all_stopping())
      is_kept = is_stopping or step % p.checkpoint_every == 0 or step in (*settings.checkpoints, p.num_steps)
      if is_kept:
        if not _all_finite(state):
          raise nan_guard.Diverged(f'pretraining: a parameter or moment is not finite after step {step}, not saved')
        locks.check_held(directory)
        # First the model: a checkpoint says that training has passed the step.
        if step in settings.checkpoints and step < p.num_steps:
          _write_early(settings, directory, step, params_here(state))
        # The device waits meanwhile, some seconds for a model of the paper's size.
        saved.save(step, state, metrics)
      advance(step, note)
      if is_stopping or (is_kept and clock.is_past(settings.time_budget)):
        break
  return state


@distributed.in_process_0
def _write_metrics(directory: pathlib.Path, metrics: list[dict[str, float]]) -> None:
  locks.check_held(directory)
  files.write_json_lines(directory / 'metrics.jsonl', metrics)


def metrics_at(settings: Settings, state: TrainState, ideals: distance.Ideals, **loss: float) -> dict[str, float]:
  """The row of metrics of a state; raises Diverged if one is not finite."""
  model, step = tuned_model(settings.bert_module()), int(state.step)
  measured = distance.measure(settings, model, params_here(state), ideals)
  nan_guard.check_values(f'after pretraining step {step}:', measured)
  return {'step': step, **loss, **measured}


@distributed.in_process_0
def note_environment(settings: Settings, directory: pathlib.Path, done: int, reporter: Reporter) -> None:
  """Record the environment that trains from step `done` on; report its differences from those before."""
  mesh, path = _mesh(settings), directory / 'environment.jsonl'
  current = environment.environment(mesh.devices.flat)
  before = files.intact_json_lines(path)
  if done < settings.pretrain.num_steps:
    files.append_json_line(path, {'from_step': done, 'mesh': dict(mesh.shape), **current})
  for difference in environment.differing(before, current):
    reporter.say(f'{directory.name} was pretrained in another environment: {difference}')


@functools.partial(jax.jit, static_argnames='corpus', compiler_options=compilation.ONCE)
def chunked_corpus(key: Array, hmm: Distribution, corpus: CorpusSettings) -> Array:
  """The chunks [S, T] of pretraining."""
  return sample_chunks(key, hmm, **dataclasses.asdict(corpus))
