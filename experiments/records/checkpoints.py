"""Pretraining checkpoints: a folder for each step, with the arrays by Orbax, sealed as a finished model is."""

import pathlib
from typing import Any

import orbax.checkpoint as ocp

from experiments.records import files
from experiments.runtime import distributed, storage
from experiments.runtime.progress import Reporter
from experiments.settings.fields import require, SettingsError

# Steps that stay on disk: the newest, and the one to fall back to.
KEPT = 2
# Their directory, within that of a pretrained model.
NAME = 'checkpoints'
# Orbax's, in the folder of a step.
_STATE = 'state'


def save(directory: pathlib.Path, step: int, state: Any) -> None:
  """Save the train state after a step, and seal it; all processes together.

  An interrupted save leaves the previous checkpoint in force. Raises StorageError if saving fails.
  """
  folder = directory / str(step)
  try:
    with _orbax() as orbax:
      orbax.save(_address(folder), args=ocp.args.StandardSave(state), force=True)
  except Exception as error:
    raise storage.not_written(folder, error) from error
  _seal(directory, step)


@distributed.in_process_0
def _seal(directory: pathlib.Path, step: int) -> None:
  """Write the checksums of a step, and remove those before the newest."""
  files.write_checksums(directory / str(step), directory.parent.name)
  for old in steps(directory)[KEPT:]:
    files.remove(directory / str(old))


def restore(directory: pathlib.Path, like: Any, reporter: Reporter) -> Any:
  """The newest intact state, or None; `like`, a tree of ShapeDtypeStructs, sets shapes and shardings.

  A corrupt step is renamed. Raises SettingsError if this process does not see the directory, or cannot restore the
  step: settings or libraries have changed.
  """
  step = _newest(directory, reporter)
  valid = 'a directory that all processes share, such as gs://BUCKET/DIRECTORY'
  # In an object store there is nothing until there is a file.
  is_seen = storage.is_object(directory) or directory.parent.is_dir()
  require(is_seen, 'the directory of a pretrained model', str(directory.parent), valid)
  if step is None:
    return None
  folder = directory / str(step)
  try:
    with _orbax() as orbax:
      return orbax.restore(_address(folder), args=ocp.args.StandardRestore(like))
  except Exception as error:
    valid = 'one saved with these settings and versions'
    raise SettingsError(f'the checkpoint is {str(folder)!r}; valid is {valid} ({storage.reason(error)})')


@distributed.in_process_0
def _newest(directory: pathlib.Path, reporter: Reporter) -> int | None:
  """The newest intact step; corrupt ones are renamed, and those that a kill has left without a seal are removed."""
  for step in steps(directory):
    folder = directory / str(step)
    if files.is_intact(folder, directory.parent.name, reporter):
      return step
    files.remove(folder)
  return None


def steps(directory: pathlib.Path) -> list[int]:
  """The steps that have a folder there, from the newest on."""
  return sorted((int(path.name) for path in files.entries(directory) if path.name.isdigit()), reverse=True)


def _address(folder: pathlib.Path) -> pathlib.Path:
  """The place of the arrays of a step, as Orbax takes it."""
  return (folder if storage.is_object(folder) else folder.absolute()) / _STATE


def _orbax() -> ocp.Checkpointer:
  """A synchronous checkpointer, to be used in a `with`."""
  return ocp.Checkpointer(ocp.StandardCheckpointHandler())
