"""The files of a trial: which records are asked for, which are on file, and adding records with their tuned arrays."""

from collections.abc import Mapping
import functools
import itertools
import pathlib
from typing import Any, NamedTuple

import jax

from experiments.records import environment as environments, files
from experiments.records.results import Record
from experiments.runtime import distributed, locks, storage
from experiments.runtime.progress import Reporter
from experiments.settings.grid import Settings
from experiments.settings.methods import METHODS, NONE
from experiments.settings.trial import Trial

# In the folder of a trial: some of its texts, with what BERT and the exact model make of them.
TEXTS = 'texts.npz'
# The field of a record that has the SHA-256 of its tuned arrays.
_ARRAYS = 'arrays_sha256'


class Name(NamedTuple):
  """The name of a record within its trial; `step` is that of BERT's pretraining, None at its end."""

  task: int
  model: str
  method: str
  step: int | None = None


def pretrained_folder(settings: Settings, workdir: pathlib.Path) -> pathlib.Path:
  """The folder of pretrained models of a run in a workdir."""
  return storage.located(settings.pretrained) if settings.pretrained else workdir / 'pretrained'


class TrialFolder(NamedTuple):
  """The files of a trial in the workdir of a run."""

  trial: Trial
  workdir: pathlib.Path

  @property
  def directory(self) -> pathlib.Path:
    return self.workdir / 'trials' / self.trial.id

  @property
  def pretrained_directory(self) -> pathlib.Path:
    return pretrained_folder(self.trial.settings, self.workdir) / self.trial.pretraining_id

  def paths(self) -> dict[Name, pathlib.Path]:
    """The file of each requested record, in order; a method has records only on models where it makes sense.

    Tuned arrays lie beside it, with suffix .npz.
    """
    settings, directory = self.trial.settings, self.directory
    stems = dict[tuple[str, str, int | None], str]()
    # Methods that need no model have NONE.
    for model, method in itertools.product(sorted({*settings.models, NONE}), sorted(self.trial.methods)):
      if model in METHODS[method].models:
        stem = f'{model}-{method}-{self.trial.fit_id(model, method)}'
        for step in (model == 'bert' and settings.checkpoints) or [None]:
          stems[model, method, step] = stem if step is None else f'{stem}-step{step}'
    tasks = range(settings.tasks_per_trial)
    return {Name(task, *fit): directory / f'{stem}-task{task}.json' for task in tasks for fit, stem in stems.items()}

  def records(self, reporter: Reporter | None = None) -> dict[Name, Record]:
    """The intact ones of the requested records; other files are ignored.

    With a reporter their arrays have to be intact too, and what is corrupt is renamed, as `files.intact` does.
    """
    intact = {}
    for name, path in self.paths().items():
      arrays = path.with_suffix('.npz')
      read = functools.partial(_read, path, name, self.trial.id, arrays if reporter else None)
      if record := files.intact(read, reporter, path, arrays):
        intact[name] = record
    return intact

  def missing(self, reporter: Reporter | None = None) -> list[Name]:
    """The requested names without an intact record."""
    records = self.records(reporter)
    return [name for name in self.paths() if name not in records]


def _read(path: pathlib.Path, name: Name, trial_id: str, arrays: pathlib.Path | None) -> Record:
  """A record without the checksum of its arrays.

  Raises FileNotFoundError if there is none, and Corrupt if it or its arrays, if given, failed their checksum, or if it
  belongs to another trial.
  """
  record = files.read_sealed(path)
  # A record without a step does not say so.
  if not {**name._asdict(), 'trial_id': trial_id}.items() <= {'step': None, **record}.items():
    raise files.Corrupt(f'belongs to trial {record.get("trial_id")!r}')
  digest = record.pop(_ARRAYS)
  if arrays:
    files.check_digest(arrays, digest)
  return record


class TunedTask(NamedTuple):
  """A tuned task: its number, what was trained (numpy arrays), and the fields that its record gets."""

  task: int
  trainable: Any
  measured: dict[str, Any]


@distributed.in_process_0
def add(folder: TrialFolder, model: str, method: str, outcome: list[TunedTask], gap: Mapping[str, Any]) -> None:
  """Write the record of each task that one method was tuned on, its arrays first; raise Lost.

  `gap` has the step of pretraining, if any, beside the fields of `distance.measure`.
  """
  # A tuned method may have taken hours, in which the lock was lost.
  locks.check_held(folder.directory)
  paths, trial = folder.paths(), folder.trial
  ids = {'trial_id': trial.id, 'pretraining_id': trial.pretraining_id, 'fit_id': trial.fit_id(model, method)}
  environment_id = environments.keep(folder.workdir, environments.environment(*jax.devices()))
  for tuned in outcome:
    name = Name(tuned.task, model, method, gap.get('step'))
    record = {**trial.point._asdict(), **trial.settings.given}
    record |= {'trial': trial.number, 'task': tuned.task, 'model': model, 'method': method}
    # The arrays come first: a kill in between leaves nothing that counts.
    digest = files.write_arrays(paths[name].with_suffix('.npz'), tuned.trainable)
    record |= {**tuned.measured, **gap, **ids, 'environment': environment_id, _ARRAYS: digest}
    files.write_sealed(paths[name], record)


@distributed.in_process_0
def keep_texts(folder: TrialFolder, arrays: Mapping[str, Any]) -> None:
  """Write what a report shows of a trial's texts; raise Lost."""
  locks.check_held(folder.directory)
  files.write_arrays(folder.directory / TEXTS, arrays)
