"""Pretraining with checkpoints: the model that tuning freezes, and its distance from the ideal one."""

from collections.abc import Callable, Iterator, Sequence
import dataclasses
import functools
import pathlib
from typing import Any, NamedTuple

import jax
from jax import Array
import jax.numpy as jnp
import numpy as np

from experiments.pipeline import distance
from experiments.records import checkpoints, environment, files, models
from experiments.runtime import distributed, locks, storage
from experiments.runtime.exit_status import Stopped
from experiments.runtime.progress import Reporter
from experiments.settings.fields import require
from experiments.settings.grid import Settings
from experiments.settings.groups import CorpusSettings, MlmSettings, PretrainSettings
from experiments.settings.methods import WITHOUT_BERT
from hmm_jax._support import compilation, nan_guard
from hmm_jax.distributions.hmm import Distribution
from hmm_jax.distributions.sampling import far_start, in_chunks, sample_chunks
from hmm_jax.models import bert as bert_lib, pretraining as pretraining_lib, sharding
from hmm_jax.models.pretraining import params_here, training_calls, TrainState

# A call of the compiled program: some steps.
Call = Callable[[TrainState], tuple[TrainState, Array]]

# In the folder of a pretrained model, a row for each measurement.
_METRICS = 'metrics.jsonl'


class OutOfTime(Exception):
  """The time budget ended before the pretraining; its checkpoint is kept."""


class Pretraining(NamedTuple):
  """A pretraining of BERT: all that decides its bits.

  Attributes:
    bert: what is trained.
    fields: the optimisation and its intervals.
    corpus: the sizes of what is trained on.
    mesh: of the devices that train.
    text: what the corpus is drawn from, or given documents.
    key: decides all that is drawn.
  """

  bert: bert_lib.Bert
  fields: PretrainSettings
  corpus: CorpusSettings
  mesh: jax.sharding.Mesh
  text: Any
  key: Array


class Home(NamedTuple):
  """The folder in which a pretraining leaves its models.

  Attributes:
    run: the pretraining.
    directory: of its checkpoints and its models.
    ideals: what the model is measured against.
    early: the steps before the last whose models are kept.
    elsewhere: the reference of a model that takes the place of this one, if any.
    given: that model, if this process has read it.
  """

  run: Pretraining
  directory: pathlib.Path
  ideals: Any
  early: tuple[int, ...]
  elsewhere: str
  given: Any

  @property
  def model(self) -> bert_lib.BertModel:
    """BERT as it is tuned, measured and kept."""
    return tuned_model(self.run.bert)

  @property
  def process(self) -> Distribution | None:
    """The distribution that is kept beside the model; None for a given corpus."""
    return None if isinstance(self.run.text, np.ndarray) else self.run.text


def planned(settings: Settings, text: Any, key: Array) -> Pretraining:
  """The pretraining that settings describe."""
  return Pretraining(
    bert=settings.bert_module(),
    fields=settings.pretrain,
    corpus=settings.corpus,
    mesh=sharding.make_mesh(*settings.mesh.sizes(jax.device_count())),
    text=text,
    key=key,
  )


def home(settings: Settings, run: Pretraining, directory: pathlib.Path, ideals: Any = None, given: Any = None) -> Home:
  """The home that settings give to a pretraining."""
  early = tuple(step for step in settings.checkpoints if step < settings.pretrain.num_steps)
  return Home(run, directory, ideals, early, settings.pretrained_from, given)


def pretrained_params(home: Home, reporter: Reporter, step: int | None = None) -> Any:
  """The parameters of the model in a home, trained on from its newest checkpoint if there is no model.

  With a `step` before the last, one of `early`, those after it: training leaves the model of each. A model that is
  finished here is written; once there is one, checkpoints are removed. It waits while another
  process works on the directory. The mesh may differ from the one that saved the checkpoint. The parameters lie on the
  first device of this host, each array whole.

  Raises:
    OutOfTime: at a checkpoint past the time budget, or if the wait is longer.
    Lost: another process took the directory over.
    Diverged: at the first loss or state that is not finite, which is never saved.
    StorageError: a checkpoint could not be saved.
    Stopped: after a signal and a checkpoint. The running call of the compiled program ends first, with its compilation
      and a measurement if they are due.
  """
  directory = home.directory
  early = step if step in home.early else None
  with locks.held(directory, reporter, reporter.clock.is_past) as is_held:
    if not is_held:
      raise OutOfTime
    distributed.in_process_0(files.remove_partials)(directory)
    params = _last_params(home, reporter)
    distributed.in_process_0(files.remove)(directory / checkpoints.NAME)
    return params if early is None else _early_params(home, early, reporter)


def _last_params(home: Home, reporter: Reporter) -> Any:
  """The parameters at the end, read, taken from elsewhere, or trained; those that are new here are written."""
  if params := models.load(home.directory, reporter):
    return params
  if home.elsewhere:
    valid = 'one whose copy is in the folder of pretrained models, which --pretrained names with --mode=verify'
    require(home.given, 'pretrained_from', home.elsewhere, valid)
    bert, params, process = home.given
    models.write(home.directory, tuned_model(bert), params, process, f'# {home.elsewhere}')
    return jax.device_put(params, jax.local_devices()[0])
  with reporter.clock.phase('pretraining'):
    state, metrics = _trained(home, reporter)
    if int(state.step) == home.run.fields.num_steps:
      params = params_here(state)
      gap = metrics[-1]['kl_at_mask']
      card = f'# BERT {home.directory.name}\n\nKL(G || BERT) at the [MASK]: {gap:.4f} nats.\n'
      models.write(home.directory, home.model, params, home.process, card)
      return params
  reporter.say(f'time budget reached at pretraining step {int(state.step)} of {home.run.fields.num_steps}')
  raise OutOfTime


def _early_params(home: Home, step: int, reporter: Reporter) -> Any:
  """The parameters after a step before the last, one of `early`, or at the end.

  A model that is corrupt, or was not asked for when the pretraining passed the step, is made by training anew, and with
  it all others that are missing.
  """
  if params := models.load(home.directory, reporter, step):
    return params
  # Checksums are written last.
  missing = [each for each in home.early if not (models.place(home.directory, each) / files.CHECKSUMS).exists()]
  for each, params in params_along(home.run, missing, reporter):
    _write_early(home, each, params)
    if each == step:
      asked = params
  return jax.device_put(asked, jax.local_devices()[0])


def _write_early(home: Home, step: int, params: Any) -> None:
  """Write the model after `step` steps; raise Lost."""
  card = f'# BERT {home.directory.name} after {step} steps\n'
  models.write(home.directory, home.model, params, None, card, step=step)


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


def program(run: Pretraining) -> tuple[Callable[[Array], TrainState], Array, Callable[[], Call]]:
  """The init of a pretraining, its key, and a function that draws the corpus and returns the steps on it."""
  init, train_steps = compiled(run.bert, run.fields, run.fields.num_steps, run.mesh)
  key_corpus, key_params, key_steps = jax.random.split(run.key, 3)

  def on_corpus() -> Call:
    if isinstance(run.text, np.ndarray):
      chunks = in_chunks(run.text, run.corpus.chunk_length)
    else:
      chunks = np.asarray(chunked_corpus(key_corpus, run.text, run.corpus))
    corpus = jax.device_put(chunks, sharding.replicated(run.mesh))
    return lambda state: train_steps(state, corpus, key_steps)

  return init, key_params, on_corpus


@functools.partial(jax.jit, static_argnames='corpus', compiler_options=compilation.ONCE)
def chunked_corpus(key: Array, hmm: Distribution, corpus: CorpusSettings) -> Array:
  """The chunks [S, T] of pretraining."""
  return sample_chunks(key, hmm, **dataclasses.asdict(corpus))


def initial_params(run: Pretraining) -> Any:
  """The parameters that a pretraining starts from, on the device of `pretrained_params`."""
  init, key_params, _ = program(run)
  return params_here(init(key_params))


def params_along(run: Pretraining, steps: Sequence[int], reporter: Reporter) -> Iterator[tuple[int, Any]]:
  """The parameters after each of `steps`, ascending multiples of `steps_per_call`, of a pretraining.

  They equal those of `pretrained_params` at these steps; nothing is measured or saved.
  """
  init, key_params, on_corpus = program(run)
  yield from along(on_corpus(), init(key_params), steps, run.fields.steps_per_call, reporter)


def along(
  call: Call, state: TrainState, steps: Sequence[int], steps_per_call: int, reporter: Reporter
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


def _trained(home: Home, reporter: Reporter) -> tuple[TrainState, list[dict[str, float]]]:
  """The state at which `train` ends, and its metrics; from the newest checkpoint on."""
  run = home.run
  init, key_params, on_corpus = program(run)
  shapes = jax.eval_shape(init, key_params)
  like = jax.tree.map(lambda x, place: x.update(sharding=place), shapes, sharding.state_shardings(run.mesh, shapes))
  rows = distributed.in_process_0(files.intact_json_lines)(home.directory / _METRICS, reporter)
  if not rows:
    # Metrics that are lost are measured anew from the start.
    distributed.in_process_0(files.remove)(home.directory / checkpoints.NAME)
  saved: TrainState | None = checkpoints.restore(home.directory / checkpoints.NAME, like, reporter)
  state = saved or init(key_params)
  # None may run ahead of the state.
  metrics = [row for row in rows if saved and row['step'] <= int(state.step)]
  if int(state.step) < run.fields.num_steps:
    _keep_environment(home.directory, run.mesh)
    with reporter.clock.phase('corpus'):
      call = on_corpus()
    if home.process:
      reporter.say(far_start(run.text, run.corpus.document_length, run.corpus.chunk_length))
    state = train(home, state, metrics, call, reporter)
  return state, metrics


def train(home: Home, state: TrainState, metrics: list[dict[str, float]], call: Call, reporter: Reporter) -> TrainState:
  """Train on from a state and its metrics, while measuring, reporting and saving checkpoints.

  Returns the last state, or that of the first checkpoint past the time budget. Raises Stopped after a checkpoint.
  """
  p, start = home.run.fields, int(state.step)
  if not metrics:
    _measure(home, state, metrics, reporter)
  calls = training_calls(call, state, p.steps_per_call, p.num_steps)
  with reporter.track('pretraining', p.num_steps, start) as advance:
    for step, state, loss in calls:
      note = f'loss {loss:.3f}'
      if step % p.measure_every == 0 or step == p.num_steps:
        _measure(home, state, metrics, reporter, train_loss=loss)
        note += f', KL at [MASK] {metrics[-1]["kl_at_mask"]:.3f}'
      is_kept = step % p.checkpoint_every == 0 or step in (*home.early, p.num_steps)
      try:
        advance(step, note)
      except Stopped:
        is_kept = True
        raise
      finally:
        if is_kept:
          _save(home, step, state)
      if is_kept and distributed.in_process_0(reporter.clock.is_past)():
        break
  return state


def _measure(home: Home, state: TrainState, metrics: list[dict[str, float]], reporter: Reporter, **loss: float) -> None:
  """Add the row of a state to the metrics; raise Diverged if a number is not finite."""
  step = int(state.step)
  with reporter.clock.phase('measuring'):
    measured = distance.measure(home.model, params_here(state), home.ideals)
  nan_guard.check_values(f'after pretraining step {step}:', measured)
  metrics.append({'step': step, **loss, **measured})
  _write_metrics(home.directory, metrics)


@distributed.in_process_0
def _write_metrics(directory: pathlib.Path, metrics: list[dict[str, float]]) -> None:
  locks.check_held(directory)
  files.write_json_lines(directory / _METRICS, metrics)


def _save(home: Home, step: int, state: TrainState) -> None:
  """Save a checkpoint, and before it the model of an early step: a checkpoint says that training has passed the step.

  Raises Lost, Diverged and StorageError. The device waits meanwhile, some seconds for a model of the paper's size.
  """
  if not _all_finite(state):
    raise nan_guard.Diverged(f'pretraining: a parameter or moment is not finite after step {step}, not saved')
  distributed.in_process_0(locks.check_held)(home.directory)
  if step in home.early:
    _write_early(home, step, params_here(state))
  checkpoints.save(home.directory / checkpoints.NAME, step, state)


_all_finite = jax.jit(nan_guard.all_finite, compiler_options=compilation.ONCE)


@distributed.in_process_0
def _keep_environment(directory: pathlib.Path, mesh: jax.sharding.Mesh) -> None:
  """Keep the environment that trains, and its mesh."""
  current = environment.environment(*mesh.devices.flat)
  environment.keep(directory, {'mesh': dict(mesh.shape), **current})


def check_machine(settings: Settings) -> None:
  """Raise SettingsError unless BERT can be pretrained, on this machine, and written to `pretrained`."""
  if not set(settings.models).issubset(WITHOUT_BERT):
    _check_bert(settings)
    _check_mesh(settings)
    if settings.pretrained:
      storage.check_writable(storage.located(settings.pretrained, 'pretrained'), 'pretrained')


def _check_bert(s: Settings) -> None:
  """Raise SettingsError if BERT cannot be built or holds no text, or a pretraining passes by one of its steps."""
  p, chunks, each = s.pretrain, s.corpus.num_chunks, s.pretrain.steps_per_call
  s.require('bert.width', s.bert.width % s.bert.num_heads == 0, f'a multiple of bert.num_heads, {s.bert.num_heads}')
  added = max(map(s.num_rows_added, s.used_methods))
  longest = max(s.corpus.chunk_length, s.downstream.num_positions or s.downstream.length + added)
  valid = f'at least {longest}, the larger of corpus.chunk_length and a text with its prompt or further masks'
  s.require('bert.max_positions', s.bert.max_positions >= longest, valid)
  s.require('pretrain.batch_size', p.batch_size <= chunks, f'at most {chunks}, the number of chunks in the corpus')
  s.require('pretrain.warmup_steps', p.warmup_steps < p.num_steps, f'below pretrain.num_steps, {p.num_steps}')
  # Between two calls of the compiled program.
  for name in ('num_steps', 'checkpoint_every', 'measure_every'):
    s.require(f'pretrain.{name}', getattr(p, name) % each == 0, f'a multiple of pretrain.steps_per_call, {each}')
  passed = set(range(0, p.num_steps + 1, each)).intersection(s.checkpoints)
  valid = f'ascending multiples of pretrain.steps_per_call, {each}, up to pretrain.num_steps, {p.num_steps}'
  s.require('checkpoints', s.checkpoints == tuple(sorted(passed)), valid)


def _check_mesh(s: Settings) -> None:
  """Raise SettingsError if the devices do not make the mesh, or it does not divide the batch or a layer."""
  most = jax.device_count()
  data, tensor = sizes = s.mesh.sizes(most)
  # If mesh.data is -1 or several processes run, the mesh must use every device.
  least = most if s.mesh.data < 0 or jax.process_count() > 1 else 1
  valid = f'sizes whose product is from {least} to {most}, the number of devices'
  require(least <= data * tensor <= most, f'mesh ({", ".join(sharding.AXES)})', sizes, valid)
  s.require('pretrain.batch_size', s.pretrain.batch_size % data == 0, f'a multiple of mesh.data, {data}')
  for name in ('num_heads', 'ffn_width'):
    s.require(f'bert.{name}', getattr(s.bert, name) % tensor == 0, f'a multiple of mesh.tensor, {tensor}')
