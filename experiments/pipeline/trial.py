"""One trial: settings -> distribution -> corpus -> pretrained model -> tasks -> tuned head and prompt -> records."""

from collections.abc import Iterator
import contextlib
import dataclasses
import functools
import itertools
import pathlib
from typing import Any, NamedTuple

import jax
from jax import Array

from experiments.pipeline import (
  downstream as downstream_lib,
  optimal_heads,
  pretraining,
  tuning as tuned,
)
from experiments.records import files, folders, results
from experiments.records.environment import differing, environment, is_whole
from experiments.runtime import distributed, locks, memory, signals, storage, timing
from experiments.runtime.progress import Reporter
from experiments.settings.grid import Point, Settings
from experiments.settings.groups import CorpusSettings
from experiments.settings.methods import METHODS
import hmm_jax
from hmm_jax import bayes_gap, compilation, model as model_lib, sharding
from hmm_jax.hmm import chunk_start, Distribution

_jit = functools.partial(jax.jit, compiler_options=compilation.UNFUSED)
_random_hmm = _jit(hmm_jax.random_hmm, static_argnames=('num_states', 'num_tokens', 'num_permutations'))
_random_memory_hmm = _jit(
  hmm_jax.random_memory_hmm,
  static_argnames=('memory_size', 'num_states', 'num_tokens', 'num_cells', 'joint_prior', 'num_permutations'),
)


class Keys(NamedTuple):
  """One PRNG key for each thing a trial draws, all from (seed, point, trial)."""

  distribution: Array
  pretraining: Array
  measure: Array
  downstream: Array
  tasks: Array
  tuning: Array


class Trial(NamedTuple):
  """A point of the grid, and its paths."""

  settings: Settings
  point: Point
  trial: int
  workdir: pathlib.Path

  def __str__(self) -> str:
    return f'{self.point} trial {self.trial}'

  @property
  def id(self) -> str:
    return self.settings.trial_id(self.point, self.trial)

  @property
  def pretraining_id(self) -> str:
    return self.settings.pretraining_id(self.point, self.trial)

  @property
  def directory(self) -> pathlib.Path:
    return self.workdir / 'trials' / self.id

  @property
  def pretrained_directory(self) -> pathlib.Path:
    shared = self.settings.pretrained
    return (storage.located(shared) if shared else self.workdir / 'pretrained') / self.pretraining_id

  @property
  def records_path(self) -> pathlib.Path:
    return self.directory / folders.RECORDS_NAME

  @property
  def environment_path(self) -> pathlib.Path:
    return self.directory / results.ENVIRONMENT_NAME

  @property
  def timing_path(self) -> pathlib.Path:
    return self.directory / timing.FILE_NAME

  @property
  def methods(self) -> tuple[str, ...]:
    return self.settings.grid()[self.point]

  def keys(self) -> Keys:
    key = jax.random.key(self.settings.seed)
    memory = self.point[1:] if self.point.memory_size else ()
    for number in (self.point.num_states, self.trial, *memory):
      key = jax.random.fold_in(key, number)
    return Keys(*jax.random.split(key, len(Keys._fields)))

  def wanted(self) -> set[tuple[int, str, str]]:
    """The (task, model, method) triples that the settings ask for, of methods on models where they make sense."""
    triples = itertools.product(range(self.settings.tasks_per_trial), self.settings.models, self.methods)
    return {(task, model, method) for task, model, method in triples if model in METHODS[method].models}

  def missing(self) -> set[tuple[int, str, str]]:
    """The wanted triples that have no record yet, in process 0's eyes."""
    left = lambda: sorted(self.wanted() - {_triple(record) for record in self.records()})
    return {(task, model, method) for task, model, method in distributed.decide(left)}

  def records(self) -> list[results.Record]:
    """The wanted records that there are, and no other that the trial was once asked for, or that came from nowhere; of
    changed ones none."""
    fits = {method: self.settings.fit_id(method) for method in self.methods}
    known = self.wanted() & {triple for line in folders.environments(self.directory) for triple in _made(line)}
    is_wanted = lambda record: _triple(record) in known and _fit_id(record) == fits[record['method']]
    return [record for record in folders.read(self.directory) if is_wanted(record)]


def _fit_id(record: results.Record) -> str:
  """Records of before there were other fits than schedules lack the field."""
  return record.get('fit_id', '')


def _triple(record: results.Record) -> tuple[int, str, str]:
  return record['task'], record['model'], record['method']


def _made(line: dict[str, Any]) -> set[tuple[int, str, str]]:
  """The triples whose records came from a line of the environment; none where it does not say so."""
  try:
    return {(task, line['model'], line['method']) for task in line['tasks']}
  except (KeyError, TypeError):
    return set()


def draw_distribution(settings: Settings, point: Point, key: Array) -> hmm_jax.HMM | hmm_jax.MemoryHMM:
  """The HMM or memory-augmented HMM of a trial."""
  drawn, memory = dataclasses.asdict(settings.hmm), settings.memory
  drawn['num_permutations'] = drawn['num_permutations'] or None
  if not point.memory_size:
    return _random_hmm(key, point.num_states, **drawn)
  if memory.joint_permutations:
    drawn['num_permutations'] = point.joint_states
  drawn.update(num_cells=point.num_cells, joint_prior=memory.joint_prior)
  return _random_memory_hmm(key, point.memory_size, point.num_states, **drawn)


def precisely() -> contextlib.AbstractContextManager[None]:
  """How a trial is computed: some accelerators round float32 products unless told otherwise."""
  return jax.default_matmul_precision('float32')


def draw(trial: Trial) -> tuple[hmm_jax.HMM | hmm_jax.MemoryHMM, downstream_lib.Downstream]:
  """The distribution of a trial, and its inputs and tasks; needs no model."""
  settings, point, keys = trial.settings, trial.point, trial.keys()
  # What is committed to a device takes what is computed from it there.
  key = jax.device_put(keys.distribution, sharding.exact_device())
  distribution = draw_distribution(settings, point, key)
  return distribution, downstream_lib.draw(settings, point, trial.methods, distribution, keys.downstream, keys.tasks)


def run(trial: Trial, reporter: Reporter) -> None:
  """Adds the missing records of `trial` to its directory; an interrupted run leaves what it had finished.

  Raises OutOfTime where pretraining does, and Lost where another process has taken the trial over. Where what is there
  was made in another environment, which may compute other bits, it says which.
  """
  missing = trial.missing()
  if not missing:
    return
  settings, keys = trial.settings, trial.keys()
  clock = reporter.clock
  for sentence in distributed.decide(lambda: folders.set_aside_torn(trial.timing_path)):
    reporter.say(sentence)
  for different in distributed.decide(lambda: _made_elsewhere(trial)):
    reporter.say(f'records of trial {trial.id} were made with {different}')
  with _timed(trial, clock), precisely():
    distribution, downstream = draw(trial)
    with clock.phase('measuring'):
      ideals = _ideals(settings, distribution, downstream, keys.measure)
    models: dict[str, tuple[model_lib.MaskedLM, Any]] = {
      'exact': (model_lib.ExactModel(settings.hmm.num_tokens), distribution)
    }
    in_float64 = {'exact': functools.partial(optimal_heads.exact_probs, distribution)}
    if 'bert' in settings.models:
      params = _pretrained(trial, distribution, ideals, reporter)
      models['bert'] = pretraining.tuned_model(settings.bert_module()), params
    for name in settings.models:
      model, frozen = models[name]
      signals.check()
      with clock.phase('measuring'):
        gap = pretraining.measure(settings, model, frozen, ideals)
      for method in trial.methods:
        tasks = sorted(task for task, *pair in missing if pair == [name, method])
        if tasks:
          with clock.phase('tuning'):
            what = settings, trial.point, model, frozen, method, tasks, downstream, keys.tuning, reporter
            outcome = tuned.tune(*what, in_float64.get(name))
          _add_records(trial, model.name, method, outcome, gap)


def _made_elsewhere(trial: Trial) -> list[str]:
  return differing(filter(is_whole, folders.environments(trial.directory)), environment(jax.devices()))


def _pretrained(trial: Trial, distribution: Distribution, ideals: pretraining.Ideals, reporter: Reporter) -> Any:
  """The parameters of the trial's model, when no other process works on it."""
  where, settings = trial.pretrained_directory, trial.settings
  is_past = lambda: reporter.clock.is_past(settings.time_budget)
  with locks.held(where, f'pretrained model {where.name}', reporter, gives_up=is_past) as is_held:
    if not is_held:
      raise pretraining.OutOfTime
    key = trial.keys().pretraining
    return pretraining.pretrained_params(settings, distribution, ideals, key, where, reporter)


@contextlib.contextmanager
def _timed(trial: Trial, clock: timing.Clock) -> Iterator[None]:
  """Adds to the trial's directory what each phase took, and the peak of memory so far, unless the process is killed."""
  before = clock.spent()
  try:
    yield
  finally:
    spent = timing.difference(clock.spent(), before)
    # What cannot be written here can be nowhere, and the first that could not says so.
    with contextlib.suppress(OSError):
      if not locks.lost_to(trial.directory):
        files.append_json_line(trial.timing_path, {'trial_id': trial.id, **spent, 'peak_bytes': memory.peak()})


def _ideals(
  settings: Settings, distribution: Distribution, downstream: downstream_lib.Downstream, key: Array
) -> pretraining.Ideals:
  measure = settings.measure
  at_chunk, chunks = _chunks(key, distribution, measure.num_chunks, settings.corpus)
  test_inputs = downstream.inputs[downstream.splits['test']][: measure.num_inputs]
  key_corrupt = jax.random.fold_in(key, 1)
  return (
    bayes_gap.ideal_under_corruption(key_corrupt, at_chunk, settings.corruption(), chunks),
    bayes_gap.ideal_at_mask(distribution, test_inputs, batch_size=measure.batch_size),
    bayes_gap.ideal_one_at_a_time(distribution, downstream.documents, batch_size=measure.batch_size),
  )


@functools.partial(jax.jit, static_argnames=('num_chunks', 'corpus'), compiler_options=compilation.ONCE)
def _chunks(
  key: Array, distribution: Distribution, num_chunks: int, corpus: CorpusSettings
) -> tuple[Distribution, Array]:
  """The distribution as seen from a chunk's start, and chunks from there."""
  at_chunk = chunk_start(distribution, corpus.chunk_length, corpus.chunks_per_document)
  return at_chunk, hmm_jax.sample_corpus(key, at_chunk, num_chunks, corpus.chunk_length)


def _add_records(trial: Trial, model: str, method: str, outcome: list[tuned.Tuned], gap: dict[str, float]) -> None:
  locks.check(trial.directory)
  made, fit_id = {(one.task, model, method) for one in outcome}, trial.settings.fit_id(method)
  is_made = lambda row: _triple(row) in made and _fit_id(row) == fit_id
  rows, arrays = [row for row in folders.alone(trial.directory) if not is_made(row)], {}
  # First, so that a kill before the records leaves a line too many and never one too few; the last line holds.
  which = {'trial_id': trial.id, 'model': model, 'method': method, 'tasks': [one.task for one in outcome]}
  which |= {'fit_id': fit_id}
  files.append_json_line(trial.environment_path, {**which, **environment(jax.devices())})
  for one in outcome:
    name = '-'.join([model, method, *([fit_id] if fit_id else []), f'task{one.task}.npz'])
    arrays[name] = tuned.save_arrays(trial.directory / folders.ARRAYS / name, one.trainable)
    row = {'schema_version': results.SCHEMA_VERSION, **trial.point._asdict(), 'trial': trial.trial, 'task': one.task}
    row |= {'model': model, 'method': method, **one.measured, **gap}
    rows.append(row | {'trial_id': trial.id, 'pretraining_id': trial.pretraining_id, 'fit_id': fit_id})
  folders.write(trial.directory, sorted(rows, key=_triple), arrays)
