"""Pretraining with checkpoints: the model that tuning finds frozen, and its distance from the ideal one."""

from collections.abc import Callable, Iterator
import contextlib
import functools
import math
import pathlib
from typing import Any, NamedTuple

import jax
from jax import Array
import jax.numpy as jnp
import numpy as np

from experiments.records import checkpoints, environment, files
from experiments.runtime import distributed, locks, nan_guard, signals, timing
from experiments.runtime.progress import Reporter
from experiments.settings.fields import require, SettingsError
from experiments.settings.grid import Settings
from experiments.settings.groups import BertSettings, CorpusSettings, MlmSettings, PretrainSettings
from hmm_jax import bayes_gap, bert as bert_lib, compilation, pretrain, sharding
from hmm_jax.hmm import Distribution
from hmm_jax.model import MaskedLM
from hmm_jax.sampling import sample_corpus

# Beside a model: what has trained it, a line for each start.
_ENVIRONMENTS = 'environment.jsonl'

# What the distance from the ideal model is measured on: corrupted chunks, inputs with one [MASK] at their start, and
# documents with one at each position in turn.
Ideals = tuple[bayes_gap.Ideal, bayes_gap.Ideal, bayes_gap.Ideal]


State = pretrain.TrainState


class OutOfTime(Exception):
  """The time budget has ended before the pretraining has; what was done is kept."""


class _Copied(NamedTuple):
  """A copy of a state, which outlives it, and whether every number in it is finite; on the device."""

  state: State
  is_finite: Array


@functools.partial(jax.jit, compiler_options=compilation.ONCE)
def _copy(state: State) -> _Copied:
  return _Copied(jax.tree.map(jnp.copy, state), nan_guard.all_finite(state))


def measure(settings: Settings, model: MaskedLM, params: Any, ideals: Ideals) -> dict[str, float]:
  """The model's distance from the ideal, by the names that records use; in nats, total variation in [0, 1]."""
  corrupted, at_mask, one_at_a_time = (
    bayes_gap.measure_gap(model, params, ideal, batch_size=settings.measure.batch_size) for ideal in ideals
  )
  return {
    'mlm_loss': corrupted.loss,
    'bayes_floor': corrupted.floor,
    'excess_mlm_loss': corrupted.kl,
    'kl_at_mask': at_mask.kl,
    'tv_at_mask': at_mask.total_variation,
    'kl_over_positions': one_at_a_time.kl,
    'tv_over_positions': one_at_a_time.total_variation,
  }


def check(bert: BertSettings, field: str) -> None:
  """Raises SettingsError where this machine lacks the kernel that attention asks for; `field` is that of `bert`."""
  on_gpu = jax.default_backend() == 'gpu'
  require(on_gpu or bert.attention != 'cudnn', f'{field}.attention', bert.attention, "'xla' where there is no GPU")


def check_mesh(s: Settings) -> None:
  """Raises SettingsError where the devices make no such mesh, or it divides no batch or no layer."""
  available, sizes = jax.device_count(), s.mesh.sizes(jax.device_count())
  used, asked = math.prod(sizes), ', '.join(f'{name}={size}' for name, size in zip(sharding.AXES, s.mesh.asked))
  # Where one is -1 or there are several processes, no device is left out.
  is_exact = -1 in s.mesh.asked or jax.process_count() > 1
  valid = f'sizes whose product is {available}, the devices that there are' + ('' if is_exact else ', or less')
  require(used == available if is_exact else used <= available, 'mesh', asked, valid)
  data, fsdp, tensor = sizes
  batch_size = s.pretrain.batch_size
  valid = f'a multiple of {data * fsdp}, which mesh.data times mesh.fsdp is, or a smaller mesh.data'
  require(batch_size % (data * fsdp) == 0, 'pretrain.batch_size', batch_size, valid)
  for name in ('num_heads', 'ffn_width'):
    value = getattr(s.bert, name)
    require(value % tensor == 0, f'bert.{name}', value, f'a multiple of {tensor}, which mesh.tensor is')


def tuned_model(bert: bert_lib.Bert) -> MaskedLM:
  """BERT as it is tuned and measured: half precision is for pretraining alone, since gradients through a prompt vanish
  in it."""
  return bert_lib.BertModel(bert.clone(dtype=jnp.float32, attention='xla'))


@functools.cache
def compiled(
  bert: bert_lib.Bert, settings: MlmSettings, num_steps: int, mesh: jax.sharding.Mesh
) -> tuple[
  Callable[[Array], pretrain.TrainState],
  Callable[[pretrain.TrainState, Array, Array], tuple[pretrain.TrainState, Array]],
]:
  """The compiled initialisation and steps of a pretraining: one for every HMM, since no shape depends on it."""
  s = settings
  optimizer = s.gradient_transformation(num_steps)
  init = jax.jit(
    lambda key: pretrain.init_train_state(key, bert, optimizer),
    out_shardings=pretrain.state_shardings(bert, optimizer, mesh),
    compiler_options=compilation.ONCE,
  )
  sizes = dict(batch_size=s.batch_size, steps_per_call=s.steps_per_call)
  return init, pretrain.make_train_steps(bert, optimizer, s.corruption(bert.num_tokens), mesh=mesh, **sizes)


def _mesh(settings: Settings) -> jax.sharding.Mesh:
  return sharding.make_mesh(*settings.mesh.sizes(jax.device_count()))


def shared_params(
  settings: Settings, hmm: Distribution, ideals: Ideals, key: Array, directory: pathlib.Path, reporter: Reporter
) -> Any:
  """`pretrained_params` of a directory that several runs share, when no other process works on it.

  Raises OutOfTime where the time budget ends before that, and Lost where another process takes the directory over.
  """
  is_past = lambda: reporter.clock.is_past(settings.time_budget)
  with locks.held(directory, f'pretrained model {directory.name}', reporter, gives_up=is_past) as is_held:
    if not is_held:
      raise OutOfTime
    return pretrained_params(settings, hmm, ideals, key, directory, reporter)


def pretrained_params(
  settings: Settings, hmm: Distribution, ideals: Ideals, key: Array, directory: pathlib.Path, reporter: Reporter
) -> Any:
  """The pretrained parameters of `directory`, trained from its newest checkpoint on where they are not finished,
  whatever the mesh that saved it.

  They lie on the first device of this host, each array whole. Raises OutOfTime at a checkpoint past the time budget,
  Diverged at the first loss or state that is not finite, which is never saved, and StorageError where nothing can be.
  Told to stop it raises Stopped, after a checkpoint: the call of the compiled program that runs and the one behind it
  end first, or the compilation and the first call, and a measurement if one is due.
  """
  p, mesh = settings.pretrain, _mesh(settings)
  init, train_steps = compiled(settings.bert_module(), p, p.num_steps, mesh)
  key_corpus, key_params, key_steps = jax.random.split(key, 3)
  with (
    signals.deferred(),
    reporter.clock.phase('pretraining'),
    checkpoints.open_checkpoints(directory / checkpoints.NAME) as saved,
  ):
    shapes = jax.eval_shape(init, key_params)
    like = jax.tree.map(checkpoints.sharded_like, shapes, sharding.state_shardings(mesh, shapes))
    state, metrics = saved.restore(like) or (init(key_params), [])
    for sentence in saved.found:
      reporter.say(sentence)
    _note_environment(settings, directory, int(state.step), reporter)
    if int(state.step) < p.num_steps:
      with reporter.clock.phase('corpus'):
        corpus = jax.device_put(np.asarray(_corpus(key_corpus, hmm, settings.corpus)), sharding.replicated(mesh))
      call = lambda state: train_steps(state, corpus, key_steps)
      state = _train(settings, state, metrics, call, ideals, saved, directory, reporter)
  if int(state.step) < p.num_steps:
    reporter.say(f'the time budget ends at step {int(state.step)} of {p.num_steps} of pretraining')
    raise OutOfTime
  return _params_here(state)


def params_along(
  settings: Settings, hmm: Distribution, key: Array, steps: tuple[int, ...], reporter: Reporter
) -> Iterator[tuple[int, Any]]:
  """The parameters after each of `steps`, ascending multiples of `steps_per_call`, of the pretraining of this key.

  They are what `pretrained_params` has at these steps; nothing is measured, and nothing is kept on a disk.
  """
  p, mesh = settings.pretrain, _mesh(settings)
  init, train_steps = compiled(settings.bert_module(), p, p.num_steps, mesh)
  key_corpus, key_params, key_steps = jax.random.split(key, 3)
  corpus = jax.device_put(np.asarray(_corpus(key_corpus, hmm, settings.corpus)), sharding.replicated(mesh))
  yield from along(train_steps, init(key_params), corpus, key_steps, steps, p.steps_per_call, reporter)


def along(
  train_steps: Callable[..., tuple[State, Array]],
  state: State,
  corpus: Array,
  key: Array,
  steps: tuple[int, ...],
  steps_per_call: int,
  reporter: Reporter,
) -> Iterator[tuple[int, Any]]:
  """The parameters, numpy's, after each of `steps`, ascending multiples of `steps_per_call`, from a state at step 0."""
  with reporter.track('pretraining', steps[-1]) as advance:
    for done in range(0, steps[-1] + 1, steps_per_call):
      if done:
        with jax.default_matmul_precision('default'):
          state, losses = train_steps(state, corpus, key)
        nan_guard.check_losses(losses, done, steps[-1])
        advance(done, f'loss {float(losses.mean()):.3f}')
      if done in steps:
        yield done, jax.device_get(_params_here(state))


def _params_here(state: State) -> Any:
  """The parameters whole, on the first device of this host."""
  params, everywhere = state.params, state.step.sharding
  if not all(leaf.is_fully_replicated for leaf in jax.tree.leaves(params)):
    params = jax.jit(_same, out_shardings=everywhere, compiler_options=compilation.ONCE)(params)
  return jax.tree.map(lambda leaf: leaf.addressable_data(0), params)


def _same(tree: Any) -> Any:
  return tree


def _train(
  settings: Settings,
  state: State,
  metrics: list[dict[str, float]],
  call: Callable[[State], tuple[State, Array]],
  ideals: Ideals,
  saved: checkpoints.Checkpoints,
  directory: pathlib.Path,
  reporter: Reporter,
) -> State:
  """Trains on from a state and its metrics, and on the way measures, reports and saves checkpoints."""
  p, clock, start = settings.pretrain, reporter.clock, int(state.step)
  model = tuned_model(settings.bert_module())

  def measure_state(state: State, **loss: float) -> None:
    with clock.phase('measuring'):
      measured = measure(settings, model, _params_here(state), ideals)
    nan_guard.check_values(f'after step {int(state.step)} of pretraining', measured)
    metrics.append({'step': int(state.step), **loss, **measured})
    files.write_json_lines(directory / 'metrics.jsonl', metrics)

  def finish(step: int, losses: Array, copied: _Copied | None) -> None:
    nan_guard.check_losses(losses, step, p.num_steps)
    tokens = (step - start) * p.batch_size * settings.corpus.chunk_length
    note = f'loss {np.mean(losses):.3f}, '
    speed = tokens / (clock.spent()['pretraining'] - before)[1]
    note += f'{speed:,.0f} tokens/s'
    if metrics[-1]['step'] == step:
      _log_speed(board, directory, metrics[-1], speed)
      note += f', KL at [MASK] {metrics[-1]["kl_at_mask"]:.3f}'
    if copied is not None:
      nan_guard.check_state(copied.is_finite, step)
      locks.check(directory)
      saved.save(step, copied.state, metrics)
    advance(step, note)

  if not metrics:
    measure_state(state)
  before = clock.spent()['pretraining']
  is_over = lambda: distributed.broadcast_from_process_0(lambda: clock.is_past(settings.time_budget))
  with reporter.track('pretraining', p.num_steps, start) as advance, _board(settings, directory) as board:

    def measured(state: State, losses: Array) -> None:
      nan_guard.check_losses(losses, int(state.step), p.num_steps)
      measure_state(state, train_loss=float(np.mean(losses)))

    return _call_ahead(p, state, call, measured, finish, is_over, lambda: bool(signals.all_stopping()))


def _call_ahead(
  p: PretrainSettings,
  state: State,
  call: Callable[[State], tuple[State, Array]],
  measured: Callable[[State, Array], None],
  finish: Callable[[int, Array, _Copied | None], None],
  is_over: Callable[[], bool],
  is_stopping: Callable[[], bool],
) -> State:
  """The last state, or that of the first checkpoint at which it `is_over`, or of a call after which it `is_stopping`.

  A call is finished while the next one runs: its losses are read, and a checkpoint is made of a copy, since the state
  itself is donated. Measuring comes first: it would wait for the same device.
  """
  step, waiting = int(state.step), None
  while step < p.num_steps:
    try:
      with jax.default_matmul_precision('default'):
        state, losses = call(state)
    except FloatingPointError as error:
      # The checkpoint of the call before is still to be made.
      if waiting:
        finish(*waiting)
      raise nan_guard.in_call(error, step + 1, step + p.steps_per_call) from error
    if waiting:
      finish(*waiting)
    step += p.steps_per_call
    if step % p.measure_every == 0 or step == p.num_steps:
      measured(state, losses)
    is_last = is_stopping()
    is_kept = is_last or step % p.checkpoint_every == 0 or step == p.num_steps
    waiting = step, losses, _copy(state) if is_kept else None
    if is_last or (is_kept and is_over()):
      break
  if waiting:
    finish(*waiting)
  return state


def _note_environment(settings: Settings, directory: pathlib.Path, done: int, reporter: Reporter) -> None:
  """Records what trains the model from step `done` on; says where that differs from what has trained it so far.

  Files of lines beside the model that are damaged are renamed, and that is said.
  """
  mesh = _mesh(settings)
  here = environment.environment(mesh.devices.flat)

  def look() -> list[str]:
    said, rows = list[str](), dict[str, list[dict[str, Any]]]()
    for name in (_ENVIRONMENTS, timing.FILE_NAME):
      try:
        rows[name] = files.read_json_lines(directory / name)
      except SettingsError:
        said.append(f'{directory / name} is damaged: renamed to {files.rename_corrupt(directory / name).name}')
    before = rows.get(_ENVIRONMENTS, [])
    if done < settings.pretrain.num_steps:
      now = {'from_step': done, 'mesh': dict(mesh.shape), **here}
      files.write_json_lines(directory / _ENVIRONMENTS, [*before, now])
    return [*said, *(f'{directory.name} was pretrained with {one}' for one in environment.differing(before, here))]

  for sentence in distributed.broadcast_from_process_0(look):
    reporter.say(sentence)


@functools.partial(jax.jit, static_argnames='corpus', compiler_options=compilation.ONCE)
def _corpus(key: Array, hmm: Distribution, corpus: CorpusSettings) -> Array:
  """The chunks [S, T] that pretraining meets."""
  documents = sample_corpus(key, hmm, corpus.num_documents, corpus.document_length)
  whole_chunks = documents[:, : corpus.chunks_per_document * corpus.chunk_length]
  return whole_chunks.reshape(corpus.num_chunks, corpus.chunk_length)


def _board(settings: Settings, directory: pathlib.Path) -> contextlib.AbstractContextManager[Any]:
  """TensorBoard's writer if it is asked for, or else None."""
  if not (settings.tensorboard and distributed.is_writer()):
    return contextlib.nullcontext()
  import tensorboardX  # An optional extra.

  return tensorboardX.SummaryWriter(str(directory / 'tensorboard'))


def _log_speed(board: Any, directory: pathlib.Path, metrics: dict[str, float], tokens_per_second: float) -> None:
  """Tokens per second as JSON lines, apart from the metrics, which no machine changes; both for TensorBoard."""
  speed = {'step': metrics['step'], 'tokens_per_second': round(tokens_per_second, 1)}
  files.append_json_line(directory / timing.FILE_NAME, speed)
  for name, value in ({**metrics, 'tokens_per_second': tokens_per_second} if board else {}).items():
    board.add_scalar(name, value, metrics['step'])
