"""Pretraining checkpoints, with Orbax; each has a manifest, and none that differs from it is restored."""

from collections.abc import Iterator
import concurrent.futures
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

from experiments.records import files, loading, manifests
from experiments.runtime import distributed, storage
from experiments.settings.fields import require, SettingsError

# Steps that stay on disk: the newest, and the one to fall back to.
KEPT = 2
# Of their directory, in that of a pretrained model.
NAME = 'checkpoints'
# Beside the directory of checkpoints: what was there and was not good.
ASIDE = f'{NAME}-set-aside'
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
    self._sealing: concurrent.futures.Future | None = None
    self._pool = concurrent.futures.ThreadPoolExecutor(1, 'manifest')

  def save(self, step: int, state: Any, metrics: list[dict[str, Any]]) -> None:
    """Saves in the background, and needs neither argument any longer on returning.

    An interrupted save leaves the one before it in force. Raises StorageError where the last save, or what of this one
    is done here, has failed.
    """
    self.wait()
    args = ocp.args.Composite(state=ocp.args.StandardSave(state), metrics=ocp.args.JsonSave(list(metrics)))
    with _naming(self.directory / str(step)):
      self.manager.save(step, args=args)
    self._sealing = self._pool.submit(self._seal, step)

  def check(self) -> None:
    """Raises StorageError where the last save has failed by now; waits for nothing."""
    if self._sealing and self._sealing.done():
      self.wait()

  def close(self) -> None:
    """Waits for the last save and its manifest. Raises StorageError where it has failed."""
    try:
      self.wait()
    finally:
      self._pool.shutdown()
      # Its error is raised above, in our words.
      with contextlib.suppress(Exception):
        self.manager.close()

  def wait(self) -> None:
    """Waits for the last save and its manifest. Raises StorageError where it has failed."""
    sealing, self._sealing = self._sealing, None
    if sealing:
      sealing.result()

  def _seal(self, step: int) -> None:
    """Writes the manifest of a step once Orbax has committed it, while training goes on."""
    directory = self.directory / str(step)
    with _naming(directory):
      self.manager.wait_until_finished()
      if distributed.is_writer():
        manifests.write(directory, manifests.tree_entries(directory), self.directory.parent.name)

  def restore(self, like: Any) -> tuple[Any, list[dict[str, Any]]] | None:
    """The newest state and metrics, or None; `like` is a tree of ShapeDtypeStructs with shardings, which decides both.

    A step without a manifest that cannot be restored is set aside, as `found` says then.
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
    """Sets a step aside that cannot be restored; raises the error where it is what was written."""
    if distributed.broadcast_from_process_0((self.directory / str(step) / manifests.NAME).exists):
      raise error
    self.found.append(distributed.broadcast_from_process_0(lambda: _set_aside(self.directory, step, str(error))))
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
  """Keeps the newest checkpoints; waits for the last save, and its manifest, on leaving.

  Steps whose files are not those of their manifest are set aside before. Raises SettingsError where there are processes
  that do not see what process 0 writes there.
  """
  _hush()
  _check_shared(directory)
  found = distributed.broadcast_from_process_0(lambda: _set_aside_bad(directory))
  options = ocp.CheckpointManagerOptions(max_to_keep=KEPT, cleanup_tmp_directories=True)
  absolute = directory if storage.is_object(directory) else directory.absolute()
  saved = Checkpoints(ocp.CheckpointManager(absolute, options=options), directory, found)
  try:
    yield saved
  finally:
    saved.close()


@functools.cache
def _hush() -> None:
  """Leaves what Orbax and its store raise to be told here, in a sentence; from then on, as it may come late.

  Orbax logs it with its traceback. And it closes its event loop at the first array that cannot be written, which each
  other array's future finds closed, in a thread of the store, where nobody can be told.
  """
  logging.getLogger('absl').addFilter(lambda record: not (record.exc_info and 'orbax' in record.pathname))
  told = sys.unraisablehook

  def tell(raised: Any) -> None:
    if not (isinstance(raised.exc_value, RuntimeError) and str(raised.exc_value) == 'Event loop is closed'):
      told(raised)

  sys.unraisablehook = tell


def _set_aside_bad(directory: pathlib.Path) -> list[str]:
  """Leaves of the newest steps none that is not what its manifest says; sentences on what was wrong.

  A step without a manifest, whose process was killed in between or was of a version without them, gives way to a good
  one before it; where there is none it stays.
  """
  found, unsealed = [], []
  for step in steps(directory):
    try:
      recorded = manifests.read(directory / str(step), directory.parent.name)
      wrong = recorded and manifests.fault(recorded, manifests.tree_entries(directory / str(step)))
    except (OSError, ValueError) as error:
      wrong = str(error)
    if wrong:
      found.append(_set_aside(directory, step, wrong))
    elif recorded is None:
      unsealed.append(step)
    else:
      found += [_set_aside(directory, each, 'it has no manifest') for each in unsealed]
      return [*found, *([f'step {step} is good, and goes on'] if found else [])]
  if unsealed:
    return [*found, f'checkpoint {directory / str(unsealed[0])} has no manifest: that it is whole cannot be verified']
  return [*found, *(['no good checkpoint is left: pretraining starts again'] if found else [])]


def _set_aside(directory: pathlib.Path, step: int, wrong: str) -> str:
  where = files.set_aside(directory / str(step), directory.with_name(ASIDE))
  return f'checkpoint {directory / str(step)}: {wrong}; it was set aside as {where}'


def steps(directory: pathlib.Path) -> list[int]:
  """The steps that have a directory of their own there, from the newest on."""
  if not directory.exists():
    return []
  names = [path.name for path in directory.iterdir()]
  return sorted((int(name) for name in names if name.isdecimal() and name == str(int(name))), reverse=True)


def newest_metrics(directory: pathlib.Path) -> list[dict[str, Any]]:
  """The metrics of the newest step whose metrics are as they were written; none where there is no such step."""
  name = 'metrics/metrics'
  for step in steps(directory):
    with contextlib.suppress(OSError, ValueError):
      recorded, where = manifests.read(directory / str(step)), directory / str(step) / name
      if recorded is None or recorded.get(name) == manifests.entry(where):
        return loading.json_value(where)
  return []


def _check_shared(directory: pathlib.Path) -> None:
  if distributed.num_processes() == 1:
    return
  probe = directory / distributed.broadcast_from_process_0(lambda: f'.probe-{uuid.uuid4().hex}')
  distributed.broadcast_from_process_0(lambda: files.write_whole(probe, ''))
  valid = 'one that all processes share, such as gs://BUCKET/DIRECTORY'
  try:
    distributed.raise_everywhere(lambda: require(probe.exists(), 'the directory of checkpoints', str(directory), valid))
  finally:
    files.remove(probe)


def sharded_like(tree: Any, sharding: jax.sharding.Sharding) -> Any:
  """The shapes of `tree`, to be restored onto `sharding`."""
  return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree)
