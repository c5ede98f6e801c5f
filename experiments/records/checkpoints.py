"""Pretraining checkpoints, with Orbax, each with the SHA-256 of its files; a corrupt one is not restored."""

from collections.abc import Iterator
import contextlib
import functools
import logging
import os
import pathlib
import re
import sys
import textwrap
from typing import Any
import uuid

import jax
import orbax.checkpoint as ocp

from experiments.records import files, loading
from experiments.runtime import distributed, storage
from experiments.settings.fields import require, SettingsError

# Steps that stay on disk: the newest, and the one to fall back to.
KEPT = 2
# Of their directory, in that of a pretrained model.
NAME = 'checkpoints'
# In the directory of a step: the SHA-256 of each of its files.
CHECKSUMS = 'checksums.json'
_LONGEST_REASON = 300


class Checkpoints:
  """The train state and the metrics so far, saved together under one step, so that neither can run ahead.

  All processes save and restore together.

  Attributes:
    manager: Orbax's.
    directory: whose steps these are.
    found: sentences on what was wrong with steps that were there, for a person.
  """

  def __init__(self, manager: ocp.CheckpointManager, directory: pathlib.Path, found: list[str]):
    self.manager, self.directory, self.found = manager, directory, found
    # The step that is being saved, and has no checksums yet.
    self._saving: int | None = None

  def save(self, step: int, state: Any, metrics: list[dict[str, Any]]) -> None:
    """Saves in the background, and needs neither argument any longer on returning.

    An interrupted save leaves the one before it in force. Raises StorageError where the last save, or what of this one
    is done here, has failed.
    """
    self.wait()
    args = ocp.args.Composite(state=ocp.args.StandardSave(state), metrics=ocp.args.JsonSave(list(metrics)))
    with _naming(self.directory / str(step)):
      self.manager.save(step, args=args)
    self._saving = step

  def check(self) -> None:
    """Ends the last save where it has been written by now; waits for nothing. Raises StorageError where it failed."""
    if not self.manager.is_saving_in_progress():
      self.wait()

  def close(self) -> None:
    """Waits for the last save. Raises StorageError where it has failed."""
    try:
      self.wait()
    finally:
      # Its error is raised above, in our words.
      with contextlib.suppress(Exception):
        self.manager.close()

  def wait(self) -> None:
    """Waits for the last save and writes its checksums. Raises StorageError where it has failed."""
    step, self._saving = self._saving, None
    if step is None:
      return
    directory = self.directory / str(step)
    with _naming(directory):
      self.manager.wait_until_finished()
      if distributed.is_writer():
        digests = {name: files.digest(path) for name, path in files.tree(directory).items()}
        files.write_sealed(directory / CHECKSUMS, {'of': self.directory.parent.name, 'files': digests})

  def restore(self, like: Any) -> tuple[Any, list[dict[str, Any]]] | None:
    """The newest state and metrics, or None; `like` is a tree of ShapeDtypeStructs with shardings, which decides both.

    A step without checksums, whose process was killed before them, is renamed where it cannot be restored, as `found`
    says then.
    """
    args = ocp.args.Composite(state=ocp.args.StandardRestore(like), metrics=ocp.args.JsonRestore())
    while (step := distributed.broadcast_from_process_0(self.manager.latest_step)) is not None:
      try:
        restored = self._restored(step, args)
        return restored.state, restored.metrics
      except SettingsError as error:
        self._fall_back(step, error)
    return None

  def _fall_back(self, step: int, error: SettingsError) -> None:
    """Renames a step that cannot be restored; raises the error where it is what was written."""
    directory = self.directory / str(step)

    def look() -> str:
      if (directory / CHECKSUMS).exists():
        raise error
      return _rename_corrupt(directory, str(error))

    self.found.append(distributed.broadcast_from_process_0(look))
    self.manager.reload()

  def _restored(self, step: int, args: ocp.args.Composite) -> Any:
    """Raises SettingsError, in all processes, where one of them cannot restore it."""
    failed = restored = None
    try:
      restored = self.manager.restore(step, args=args)
    except Exception as error:
      failed = _reason(error)
    path, valid = str(self.directory / str(step)), 'one that these settings and libraries have saved'
    distributed.raise_everywhere(lambda: require(failed is None, 'a checkpoint', path, f'{valid} ({failed})'))
    return restored


def _reason(error: Exception) -> str:
  """Orbax and its store raise what they like: some of it is a page long, with the system's error at its end."""
  number = re.search(r"os_error_code='(\d+)'", str(error))
  if number:
    return os.strerror(int(number[1]))
  said = getattr(error, 'strerror', None) or str(error) or type(error).__name__
  return textwrap.shorten(said, _LONGEST_REASON)


@contextlib.contextmanager
def _naming(path: pathlib.Path) -> Iterator[None]:
  """Tells what fails on the way to a file, of whatever class, in a sentence."""
  try:
    yield
  except storage.StorageError:
    raise
  except Exception as error:
    raise storage.StorageError(storage.not_written(path, OSError(_reason(error)))) from error


@contextlib.contextmanager
def open_checkpoints(directory: pathlib.Path) -> Iterator[Checkpoints]:
  """Keeps the newest checkpoints; waits for the last save on leaving.

  Steps that fail their checksums are renamed before. Raises SettingsError where there are processes
  that do not see what process 0 writes there.
  """
  _hush()
  _check_shared(directory)
  found = distributed.broadcast_from_process_0(lambda: _rename_corrupt_steps(directory))
  options = ocp.CheckpointManagerOptions(max_to_keep=KEPT, cleanup_tmp_directories=True)
  absolute = directory if storage.is_object(directory) else directory.absolute()
  saved = Checkpoints(ocp.CheckpointManager(absolute, options=options), directory, found)
  try:
    yield saved
  finally:
    saved.close()


@functools.cache
def _hush() -> None:
  """Silences the tracebacks of Orbax and its store for good, as they may come late; this module reports the errors.

  Orbax logs an error with its traceback. It also closes its event loop at the first array that cannot be written; the
  future of each other array then raises in a thread of the store, where nothing can catch it.
  """
  logging.getLogger('absl').addFilter(lambda record: not (record.exc_info and 'orbax' in record.pathname))
  told = sys.unraisablehook

  def tell(raised: Any) -> None:
    if not (isinstance(raised.exc_value, RuntimeError) and str(raised.exc_value) == 'Event loop is closed'):
      told(raised)

  sys.unraisablehook = tell


def _rename_corrupt_steps(directory: pathlib.Path) -> list[str]:
  """Renames the newest steps that fail their checksums; sentences on what was wrong, and on what is used instead.

  A step without checksums was written whole, since its name appears only then; its process was killed after that.
  """
  found: list[str] = []
  for step in steps(directory):
    wrong = _fault(directory / str(step))
    if wrong is None:
      return [*found, *([f'step {step} is intact, and is used'] if found else [])]
    found.append(_rename_corrupt(directory / str(step), wrong))
  return [*found, *(['no intact checkpoint is left: pretraining starts again'] if found else [])]


def _fault(step: pathlib.Path) -> str | None:
  """The fault in the files of a step; None if its checksums, where it has any, show none."""
  try:
    recorded = files.read_sealed(step / CHECKSUMS)
  except FileNotFoundError:
    return None
  except files.Corrupt as error:
    return f'{CHECKSUMS} {error}'
  whose, digests = step.parents[1].name, recorded['files']
  if recorded['of'] != whose:
    return f'it is of the model {recorded["of"]}'
  there = {name: path for name, path in files.tree(step).items() if name != CHECKSUMS}
  odd = sorted(there.keys() ^ digests.keys())
  if odd:
    return f'{odd[0]} {"is missing" if odd[0] in digests else "was added"}'
  try:
    failed = [name for name, path in there.items() if files.digest(path) != digests[name]]
  except OSError as error:
    return f'a file cannot be read ({error.strerror})'
  return f'{failed[0]} failed its checksum' if failed else None


def _rename_corrupt(step: pathlib.Path, wrong: str) -> str:
  return f'checkpoint {step}: {wrong}; it was renamed to {files.rename_corrupt(step).name}'


def steps(directory: pathlib.Path) -> list[int]:
  """The steps that have a directory of their own there, from the newest on."""
  if not directory.is_dir():
    return []
  names = [path.name for path in directory.iterdir()]
  return sorted((int(name) for name in names if name.isdecimal() and name == str(int(name))), reverse=True)


def newest_metrics(directory: pathlib.Path) -> list[dict[str, Any]]:
  """The metrics of the newest step that is intact; none where there is no such step."""
  for step in steps(directory):
    if _fault(directory / str(step)) is None:
      with contextlib.suppress(OSError, ValueError):
        return loading.json_value(directory / str(step) / 'metrics' / 'metrics')
  return []


def _check_shared(directory: pathlib.Path) -> None:
  if distributed.num_processes() == 1:
    return

  def leave_probe() -> str:
    probe = directory / f'.probe-{uuid.uuid4().hex}'
    files.write_whole(probe, '')
    return probe.name

  probe = directory / distributed.broadcast_from_process_0(leave_probe)
  valid = 'one that all processes share, such as gs://BUCKET/DIRECTORY'
  try:
    distributed.raise_everywhere(lambda: require(probe.exists(), 'the directory of checkpoints', str(directory), valid))
  finally:
    files.remove(probe)


def sharded_like(tree: Any, sharding: jax.sharding.Sharding) -> Any:
  """The shapes of `tree`, to be restored onto `sharding`."""
  return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree)
