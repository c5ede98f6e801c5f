"""Trials: names, paths, records on file, and adding records and tuned arrays."""

from collections.abc import Iterator, Mapping
import contextlib
import functools
import hashlib
import io
import itertools
import pathlib
from typing import Any, NamedTuple

import jax
from jax import Array
import numpy as np

from experiments.records import environment as environments, files, results
from experiments.records.results import Record
from experiments.runtime import distributed, locks, signals, storage, timing
from experiments.runtime.progress import Reporter
from experiments.settings import own_code
from experiments.settings.grid import Point, Settings
from experiments.settings.methods import METHODS
from hmm_jax._support import compilation

# The field of a record that has the SHA-256 of its tuned arrays.
_ARRAYS = 'arrays_sha256'


class Name(NamedTuple):
  """The name of a record within its trial."""

  task: int
  model: str
  method: str


class Keys(NamedTuple):
  """One PRNG key for each thing a trial draws, all from (seed, point, trial)."""

  distribution: Array
  pretraining: Array
  measure: Array
  downstream: Array
  tasks: Array
  tuning: Array


@functools.partial(jax.jit, compiler_options=compilation.ONCE)
def _keys(seed: int, *numbers: int) -> Keys:
  key = functools.reduce(jax.random.fold_in, numbers, jax.random.key(seed))
  return Keys(*jax.random.split(key, len(Keys._fields)))


class Trial(NamedTuple):
  """A point of the grid, and its paths."""

  settings: Settings
  point: Point
  trial: int
  workdir: pathlib.Path

  def __str__(self) -> str:
    process = self.settings.distribution.rpartition('-')[0]
    return f'{process} {self.point} trial {self.trial}'.lstrip()

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
  def timing_path(self) -> pathlib.Path:
    return self.directory / timing.FILE_NAME

  @property
  def methods(self) -> tuple[str, ...]:
    return self.settings.grid()[self.point]

  def keys(self) -> Keys:
    memory = self.point[1:] if self.point.memory_size else ()
    # JAX's seeds have 32 bits.
    return _keys(np.uint32(self.settings.seed % 2**32), self.point.num_states, self.trial, *memory)

  def paths(self) -> dict[Name, pathlib.Path]:
    """The file of each requested record, in order; a method has records only on models where it makes sense.

    Tuned arrays lie beside it, with suffix .npz.
    """
    directory, settings, found = self.directory, self.settings, {}
    digests = own_code.digests(settings)
    fit_ids = {pair: settings.fit_id(*pair, digests) for pair in itertools.product(self.methods, settings.tuned_models)}
    names = itertools.product(range(settings.tasks_per_trial), sorted(settings.tuned_models), sorted(self.methods))
    for name in itertools.starmap(Name, names):
      if name.model in METHODS[name.method].models:
        fit_id = fit_ids[name.method, name.model]
        found[name] = directory / f'{name.model}-{name.method}-{fit_id}-task{name.task}.json'
    return found

  def records(self) -> list[Record]:
    """The requested records that exist and parse, by task, model and method; other files are ignored."""
    found, trial_id = [], self.id
    for name, path in self.paths().items():
      # Nothing is renamed here: the reader may not hold the lock.
      with contextlib.suppress(OSError, files.Corrupt):
        record = _read(path, name, trial_id)
        # The checksum of the arrays belongs to the file, not to the results.
        del record[_ARRAYS]
        found.append(record)
    return found

  def missing(self) -> set[Name]:
    """The requested names without a record that parses."""
    return self.paths().keys() - {Name(*(record[field] for field in Name._fields)) for record in self.records()}

  def absent(self) -> list[Name]:
    """The requested names without a file; no file is opened."""
    return [name for name, path in self.paths().items() if not path.exists()]


# Every trial by its name.
Grid = dict[str, Trial]


def _read(path: pathlib.Path, name: Name, trial_id: str) -> Record:
  """A record. Raises FileNotFoundError where there is none, and Corrupt where it is not what was written, or of
  another trial."""
  record = files.read_sealed(path, **{_ARRAYS: str})
  if not {**name._asdict(), 'trial_id': trial_id}.items() <= record.items():
    raise files.Corrupt(f'belongs to trial {record.get("trial_id")!r}')
  return record


def plan(trial: Trial, reporter: Reporter) -> set[Name]:
  """The requested names without an intact record; process 0 alone reads each record, once.

  The caller holds the trial's lock and makes these records. A corrupt record or array is reported, and both are
  renamed. Records from environments that may compute other bits are reported.
  """

  def look() -> list[Name]:
    missing, intact, trial_id = list[Name](), list[Record](), trial.id
    for name, path in trial.paths().items():
      arrays = path.with_suffix('.npz')
      try:
        record = _read(path, name, trial_id)
        if not arrays.is_file() or files.digest(arrays) != record[_ARRAYS]:
          raise files.Corrupt(f'its array {arrays.name} is missing or failed its checksum')
        intact.append(record)
        continue
      except FileNotFoundError:
        pass
      except ValueError as error:
        moved = [files.rename_corrupt(one) for one in (path, arrays) if one.exists()]
        reporter.say(f'{path}: {error}; renamed to {moved[0]}, rerunning')
      missing.append(name)
    made = environments.load(trial.workdir, intact).values() if missing else ()
    for different in environments.differing(made, environments.environment(jax.devices())):
      reporter.say(f'existing records of trial {trial_id} come from another environment: {different}')
    return missing

  # The broadcast is JSON, which makes a `Name` a list.
  return set(itertools.starmap(Name, distributed.broadcast_from_process_0(look)))


class Tuned(NamedTuple):
  """A tuned task: its number, what was trained (numpy arrays), and the fields that its record gets."""

  task: int
  trainable: Any
  measured: dict[str, Any]


@contextlib.contextmanager
def session(trial: Trial, reporter: Reporter) -> Iterator[None]:
  """Run a trial inside; at its end, add the time of each phase to its directory."""
  before = reporter.clock.spent()
  try:
    yield
  finally:
    spent = timing.difference(reporter.clock.spent(), before)
    # A disk that refuses this line has refused a record before; show that error.
    with contextlib.suppress(OSError):
      files.append_json_line(trial.timing_path, {'trial_id': trial.id, **spent})


def pending(trial: Trial, missing: set[Name]) -> Iterator[tuple[str, dict[str, list[int]]]]:
  """Each model of the settings on which records are missing, with their tasks by method.

  Raises Stopped between two models if the run has received a signal.
  """
  for model in trial.settings.tuned_models:
    signals.check()
    tasks = {method: sorted(task for task, *pair in missing if pair == [model, method]) for method in trial.methods}
    if any(tasks.values()):
      yield model, {method: found for method, found in tasks.items() if found}


def add(trial: Trial, model: str, method: str, outcome: list[Tuned], gap: Mapping[str, float | None]) -> None:
  """Write the record of each task that one method was tuned on, its arrays first; raise Lost."""
  paths, settings = trial.paths(), trial.settings
  fit_id = settings.fit_id(method, model, own_code.digests(settings))
  ids = {'trial_id': trial.id, 'pretraining_id': trial.pretraining_id, 'fit_id': fit_id}
  for one in outcome:
    name = Name(one.task, model, method)
    record = {'schema_version': results.SCHEMA_VERSION, **trial.point._asdict(), **settings.given}
    record |= {'trial': trial.trial, **name._asdict()}
    # A tuned method may have taken hours, in which the lock was lost.
    locks.check(trial.directory)
    made = environments.keep(trial.workdir, environments.environment(jax.devices()))
    # The arrays come first: a kill in between leaves nothing that counts.
    digest = save_arrays(paths[name].with_suffix('.npz'), one.trainable)
    record |= {**one.measured, **gap, **ids, 'environment': made, _ARRAYS: digest}
    files.write_sealed(paths[name], record)


def save_arrays(path: pathlib.Path, trainable: Any) -> str:
  """Write the tuned arrays alone, as npz with the tree's paths for names; return their SHA-256."""
  buffer = io.BytesIO()
  np.savez(buffer, **by_name(trainable))
  files.write_whole(path, buffer.getvalue())
  return hashlib.sha256(buffer.getvalue()).hexdigest()


def by_name(trainable: Any) -> dict[str, Any]:
  """The leaves of a tree by their paths."""
  leaves = jax.tree_util.tree_leaves_with_path(trainable)
  return {jax.tree_util.keystr(where, simple=True, separator='/'): leaf for where, leaf in leaves}
