"""What a trial is called, where it lies, what of it is on record, and how records and tuned arrays are added."""

from collections.abc import Iterator
import contextlib
import io
import itertools
import pathlib
from typing import Any, NamedTuple

import jax
from jax import Array
import numpy as np

from experiments.records import files, folders, manifests, results
from experiments.records.environment import differing, environment, is_whole
from experiments.runtime import distributed, locks, memory, signals, storage, timing
from experiments.runtime.progress import Reporter
from experiments.settings.grid import Point, Settings
from experiments.settings.methods import METHODS


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
    return {(task, model, method) for task, model, method in distributed.broadcast_from_process_0(left)}

  def records(self) -> list[results.Record]:
    """The wanted records that there are, and no other that the trial was once asked for, or that came from nowhere; of
    changed ones none."""
    fits = {method: self.settings.fit_id(method) for method in self.methods}
    known = self.wanted() & {triple for line in folders.environments(self.directory) for triple in _made(line)}
    is_wanted = lambda record: _triple(record) in known and _fit_id(record) == fits[record['method']]
    return [record for record in folders.read(self.directory) if is_wanted(record)]


# Every trial by its name.
Grid = dict[str, Trial]


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


class Tuned(NamedTuple):
  """A tuned task: its number, what was trained (numpy arrays), and the fields that its record gets."""

  task: int
  trainable: Any
  measured: dict[str, Any]


@contextlib.contextmanager
def session(trial: Trial, reporter: Reporter) -> Iterator[None]:
  """A run of a trial: says what is damaged or was made elsewhere, and adds what each phase took, and the peak of memory
  so far, to the trial's directory, unless the process is killed."""
  for sentence in distributed.broadcast_from_process_0(lambda: folders.set_aside_torn(trial.timing_path)):
    reporter.say(sentence)
  for different in distributed.broadcast_from_process_0(lambda: made_elsewhere(trial)):
    reporter.say(f'records of trial {trial.id} were made with {different}')
  before = reporter.clock.spent()
  try:
    yield
  finally:
    spent = timing.difference(reporter.clock.spent(), before)
    # What cannot be written here can be nowhere, and the first that could not says so.
    with contextlib.suppress(OSError):
      if not locks.lost_to(trial.directory):
        files.append_json_line(trial.timing_path, {'trial_id': trial.id, **spent, 'peak_bytes': memory.peak()})


def pending(trial: Trial, missing: set[tuple[int, str, str]]) -> Iterator[tuple[str, dict[str, list[int]]]]:
  """Each model of the settings with the tasks that are missing on it, by method; raises Stopped between two models
  where the run is told to stop."""
  for model in trial.settings.models:
    signals.check()
    tasks = {method: sorted(task for task, *pair in missing if pair == [model, method]) for method in trial.methods}
    yield model, {method: found for method, found in tasks.items() if found}


def made_elsewhere(trial: Trial) -> list[str]:
  """Where what is on record came from other environments than this one, which may compute other bits."""
  return differing(filter(is_whole, folders.environments(trial.directory)), environment(jax.devices()))


def add(trial: Trial, model: str, method: str, outcome: list[Tuned], gap: dict[str, float]) -> None:
  """Adds what one method reached on one model to the records of a trial, its arrays first; raises Lost."""
  locks.check(trial.directory)
  made, fit_id = {(one.task, model, method) for one in outcome}, trial.settings.fit_id(method)
  is_made = lambda row: _triple(row) in made and _fit_id(row) == fit_id
  rows, arrays = [row for row in folders.read_unverified(trial.directory) if not is_made(row)], {}
  # First, so that a kill before the records leaves a line too many and never one too few; the last line holds.
  which = {'trial_id': trial.id, 'model': model, 'method': method, 'tasks': [one.task for one in outcome]}
  which |= {'fit_id': fit_id}
  files.append_json_line(trial.environment_path, {**which, **environment(jax.devices())})
  for one in outcome:
    name = '-'.join([model, method, *([fit_id] if fit_id else []), f'task{one.task}.npz'])
    arrays[name] = save_arrays(trial.directory / folders.ARRAYS / name, one.trainable)
    row = {'schema_version': results.SCHEMA_VERSION, **trial.point._asdict(), 'trial': trial.trial, 'task': one.task}
    row |= {'model': model, 'method': method, **one.measured, **gap}
    rows.append(row | {'trial_id': trial.id, 'pretraining_id': trial.pretraining_id, 'fit_id': fit_id})
  folders.write(trial.directory, sorted(rows, key=_triple), arrays)


def save_arrays(path: pathlib.Path, trainable: Any) -> manifests.Entry:
  """The tuned arrays alone, as npz with the tree's paths for names; the entry of what was written."""
  buffer = io.BytesIO()
  np.savez(buffer, **by_name(trainable))
  files.write_whole(path, buffer.getvalue())
  return manifests.entry_of(buffer.getvalue())


def by_name(trainable: Any) -> dict[str, Any]:
  """The leaves of a tree by their paths."""
  leaves = jax.tree_util.tree_leaves_with_path(trainable)
  return {jax.tree_util.keystr(where, simple=True, separator='/'): leaf for where, leaf in leaves}
