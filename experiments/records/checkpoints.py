"""Pretraining checkpoints, with Orbax, each with the SHA-256 of its files; a corrupt one is not restored."""

from collections.abc import Iterator
import contextlib
import logging
import os
import pathlib
import re
import sys
import textwrap
from typing import Any

from etils import epath
import jax
import orbax.checkpoint as ocp

from experiments.records import files
from experiments.runtime import distributed, locks, storage
from experiments.settings.fields import require, SettingsError

# Steps that stay on disk: the newest, and the one to fall back to.
KEPT = 2
# Their directory, within that of a pretrained model.
NAME = 'checkpoints'
_LONGEST_REASON = 300


class Checkpoints:
  """The train state and the metrics so far, saved together under one step, so that neither can run ahead.

  All processes save and restore together.

  Attributes:
    manager: Orbax's.
    directory: parent of the steps.
    sentences: for the user, on corrupt steps and what was done.
  """

  def __init__(self, directory: pathlib.Path):
    self.manager, self.directory, self.sentences = _manager(directory), directory, list[str]()

  def save(self, step: int, state: Any, metrics: list[dict[str, Any]]) -> None:
    """Save state and metrics with their checksums; synchronous.

    An interrupted save leaves the previous checkpoint in force. Raises StorageError if saving fails.
    """
    args = ocp.args.Composite(state=ocp.args.StandardSave(state), metrics=ocp.args.JsonSave(list(metrics)))
    directory = self.directory / str(step)
    try:
      self.manager.save(step, args=args)
    except Exception as error:
      raise storage.StorageError(storage.not_written(directory, OSError(_reason(error)))) from error
    files.write_checksums(directory, self.directory.parent.name)

  def restore(self, like: Any) -> tuple[Any, list[dict[str, Any]]] | None:
    """The newest intact state and metrics, or None; `like`, a tree of ShapeDtypeStructs, sets shapes and shardings.

    A step that fails its checksums is renamed. So is one that has none and cannot be restored: its process was killed
    between the save and the checksums. `sentences` name such steps and the one used instead. Raises SettingsError, in
    all processes, if one of them cannot restore an intact step.
    """
    rejected: dict[int, str] = {}
    while True:
      step, renamed = distributed.broadcast_from_process_0(lambda: self._newest_intact(rejected))
      if renamed:
        self.sentences += renamed
        # Orbax lists the steps when opened. Its `reload` would read the metrics of all, corrupt ones too.
        self.manager.close()
        self.manager = _manager(self.directory)
      if step is None:
        break
      try:
        state, metrics = self._restored(step, like)
      except SettingsError as error:
        # A step with checksums is intact, so the settings or libraries have changed.
        if (self.directory / str(step) / files.CHECKSUMS).exists():
          raise
        rejected[step] = str(error)
        continue
      if self.sentences:
        self.sentences.append(f'restored step {step}')
      return state, metrics
    if self.sentences:
      self.sentences.append('no intact checkpoint: pretraining restarts from step 0')
    return None

  def _newest_intact(self, rejected: dict[int, str]) -> tuple[int | None, list[str]]:
    """The newest step without a fault, or None, and a sentence for each step renamed.

    Steps with a fault, and the `rejected` ones, with their faults, are renamed.
    """
    renamed = list[str]()
    for step in steps(self.directory):
      directory = self.directory / str(step)
      fault = rejected.get(step) or files.fault(directory, self.directory.parent.name)
      if fault is None:
        return step, renamed
      renamed.append(f'checkpoint {directory}: {fault}; renamed to {files.rename_corrupt(directory)}')
    return None, renamed

  def _restored(self, step: int, like: Any) -> tuple[Any, list[dict[str, Any]]]:
    """Raise SettingsError, in all processes, if one of them cannot restore it."""
    args = ocp.args.Composite(state=ocp.args.StandardRestore(like), metrics=ocp.args.JsonRestore())
    failed: str = ''
    restored: Any = None
    try:
      restored = self.manager.restore(step, args=args)
    except Exception as error:
      failed = _reason(error)
    path, valid = str(self.directory / str(step)), 'one saved with these settings and library versions'
    distributed.raise_everywhere(lambda: require(not failed, 'the checkpoint', path, f'{valid} ({failed})'))
    return restored.state, restored.metrics


def _reason(error: Exception) -> str:
  """A short reason for an error of Orbax or its store, which may be a page long with the system's error at its end."""
  number = re.search(r"os_error_code='(\d+)'", str(error))
  if number:
    return os.strerror(int(number[1]))
  return textwrap.shorten(storage.reason(error), _LONGEST_REASON)


@contextlib.contextmanager
def open_checkpoints(directory: pathlib.Path) -> Iterator[Checkpoints]:
  """Open the checkpoints of a directory, of which the newest are kept.

  Raises SettingsError if some processes do not see what process 0 writes there.
  """
  with _quiet():
    saved = Checkpoints(directory)
    try:
      valid = 'a directory that all processes share, such as gs://BUCKET/DIRECTORY'
      # In an object store there is nothing until there is a file.
      is_seen = storage.is_object(directory) or directory.is_dir()
      distributed.raise_everywhere(lambda: require(is_seen, 'the checkpoint directory', str(directory), valid))
      yield saved
    finally:
      # Errors have been raised by then, in our words.
      with contextlib.suppress(Exception):
        saved.manager.close()


def _manager(directory: pathlib.Path) -> ocp.CheckpointManager:
  """Orbax's manager of the steps in a directory."""
  options = ocp.CheckpointManagerOptions(
    max_to_keep=KEPT,
    cleanup_tmp_directories=True,
    # Checksums are of committed files, so a save must not run in the background.
    enable_async_checkpointing=False,
    # Do not read metrics on opening: they may be corrupt.
    lightweight_initialize=True,
  )
  return ocp.CheckpointManager(directory if storage.is_object(directory) else directory.absolute(), options=options)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
  """Silence the tracebacks of Orbax and its store inside; this module reports the errors.

  Orbax logs an error with its traceback. It also closes its event loop at the first array that cannot be written; the
  future of each other array then raises in a thread of the store, where nothing can catch it.
  """
  hook, log = sys.unraisablehook, logging.getLogger('absl')
  level = log.level

  def other(raised: Any) -> None:
    if not (isinstance(raised.exc_value, RuntimeError) and str(raised.exc_value) == 'Event loop is closed'):
      hook(raised)

  sys.unraisablehook = other
  log.setLevel(logging.CRITICAL)
  try:
    yield
  finally:
    sys.unraisablehook = hook
    log.setLevel(level)


def remove(directory: pathlib.Path) -> None:
  """Remove the checkpoints of a directory, if there are any."""
  if locks.may_write(directory):
    with contextlib.suppress(OSError):
      epath.Path(directory).rmtree()


def steps(directory: pathlib.Path) -> list[int]:
  """The steps that have a directory of their own there, from the newest on."""
  names = ocp.path.step.standard_name_format()
  return sorted((step.step for step in names.find_all(directory)), reverse=True)


def sharded_like(tree: Any, sharding: jax.sharding.Sharding) -> Any:
  """The shapes of `tree` with `sharding`, as `restore` needs them."""
  return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree)
