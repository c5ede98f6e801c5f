"""Pretraining checkpoints, with Orbax, each sealed with the SHA-256 of its files; a corrupt one is not restored."""

from collections.abc import Iterator
import contextlib
import logging
import os
import pathlib
import re
import sys
import textwrap
from typing import Any, NamedTuple

from etils import epath
import jax
import orbax.checkpoint as ocp

from experiments.records import files
from experiments.runtime import distributed, storage
from experiments.runtime.progress import Reporter
from experiments.settings.fields import require

# Steps that stay on disk: the newest, and the one to fall back to.
KEPT = 2
# Their directory, within that of a pretrained model.
NAME = 'checkpoints'
_LONGEST_REASON = 300


class Checkpoints(NamedTuple):
  """The train state and the metrics so far, saved together under one step, so that neither can run ahead.

  All processes save and restore together.

  Attributes:
    manager: Orbax's.
    directory: parent of the steps.
  """

  manager: ocp.CheckpointManager
  directory: pathlib.Path

  def save(self, step: int, state: Any, metrics: list[dict[str, Any]]) -> None:
    """Save state and metrics, then seal them; synchronous.

    An interrupted save leaves the previous checkpoint in force. Raises StorageError if saving fails.
    """
    args = ocp.args.Composite(state=ocp.args.StandardSave(state), metrics=ocp.args.JsonSave(list(metrics)))
    directory = self.directory / str(step)
    try:
      self.manager.save(step, args=args)
    except Exception as error:
      raise storage.not_written(directory, OSError(_reason(error))) from error
    distributed.broadcast_from_process_0(lambda: files.write_checksums(directory, self.directory.parent.name))

  def restore(self, like: Any) -> tuple[Any, list[dict[str, Any]]] | None:
    """The newest state and metrics, or None; `like`, a tree of ShapeDtypeStructs, sets shapes and shardings.

    Raises SettingsError, in all processes, if one of them cannot restore it: settings or libraries have changed.
    """
    step = distributed.broadcast_from_process_0(lambda: next(iter(steps(self.directory)), None))
    if step is None:
      return None
    args = ocp.args.Composite(state=ocp.args.StandardRestore(like), metrics=ocp.args.JsonRestore())
    failed = ''
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
  return os.strerror(int(number[1])) if number else textwrap.shorten(storage.reason(error), _LONGEST_REASON)


@contextlib.contextmanager
def open_checkpoints(directory: pathlib.Path, reporter: Reporter) -> Iterator[Checkpoints]:
  """Open the checkpoints of a directory, of which the newest are kept; its steps are then intact.

  Raises SettingsError if some processes do not see what process 0 writes there.
  """
  with _quiet():
    _set_aside(directory, reporter)
    saved = Checkpoints(_manager(directory), directory)
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


@distributed.in_process_0
def _set_aside(directory: pathlib.Path, reporter: Reporter) -> None:
  """Rename corrupt steps, and remove those without a seal, whose process was killed between saving and sealing.

  Orbax lists the steps once, when it opens the directory.
  """
  for step in steps(directory):
    path = directory / str(step)
    if not files.is_intact(path, directory.parent.name, reporter):
      remove(path)


def _manager(directory: pathlib.Path) -> ocp.CheckpointManager:
  """Orbax's manager of the steps in a directory."""
  options = ocp.CheckpointManagerOptions(
    max_to_keep=KEPT,
    cleanup_tmp_directories=True,
    # Checksums are of committed files, so a save must not run in the background.
    enable_async_checkpointing=False,
    # Do not read metrics on opening.
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


@distributed.in_process_0
def remove(directory: pathlib.Path) -> None:
  """Remove a directory with all its files, if there is one: the checkpoints of a finished model, or one of them."""
  with contextlib.suppress(OSError):
    epath.Path(directory).rmtree()


def steps(directory: pathlib.Path) -> list[int]:
  """The steps that have a directory of their own there, from the newest on."""
  names = ocp.path.step.standard_name_format()
  return sorted((step.step for step in names.find_all(directory)), reverse=True)


def sharded_like(tree: Any, sharding: jax.sharding.Sharding) -> Any:
  """The shapes of `tree` with `sharding`, as `restore` needs them."""
  return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree)
