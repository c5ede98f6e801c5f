"""Locks on directories: one process at a time works on a trial, a pretrained model, a part of a study or a merge.

A lock is the file `.lock`, a lease of `filelock`, whose thread renews it. Two processes can hold it on a file system
without exclusive creation, or when one resumes after its lease has expired, until its next `check_held`.
"""

from collections.abc import Callable, Iterator
import contextlib
import os
import pathlib
import socket
import time

import filelock

from experiments.runtime import distributed, signals, storage
from experiments.runtime.exit_status import Lost
from experiments.runtime.progress import Reporter

NAME = '.lock'
# Seconds without a renewal after which a lock is taken over.
LEASE = 60.0
# The same for a lock that filelock does not take over: an empty one, or one on NFS.
_MOST_SILENCE = 1.5 * LEASE


@contextlib.contextmanager
def held(directory: pathlib.Path, reporter: Reporter, gives_up: Callable[[], bool] = bool) -> Iterator[bool]:
  """Hold the lock on a directory, in process 0 for all; yield True if it is held.

  If another process has it, wait until `gives_up`. Raises Stopped, and StorageError if no lock can be made.
  """
  lease = _lease(directory)
  try:
    is_held = distributed.in_process_0(_acquired)(lease, directory, reporter, gives_up)
    # A run that received a signal while it waited stops here, before it takes up other work.
    if not is_held:
      signals.raise_if_stopped()
    yield is_held
  finally:
    with contextlib.suppress(OSError):
      lease.release()


def _lease(directory: pathlib.Path) -> filelock.SoftFileLease:
  return filelock.SoftFileLease(directory / NAME, lease_duration=LEASE)


def _acquired(
  lease: filelock.SoftFileLease, directory: pathlib.Path, reporter: Reporter, gives_up: Callable[[], bool]
) -> bool:
  """Wait until this process has the lock, or gives up, which is False. Raises StorageError if none can be made."""
  if storage.is_object(directory):
    return True
  last, since = None, 0.0
  while True:
    try:
      directory.mkdir(parents=True, exist_ok=True)
      lease.acquire(blocking=False)
      return True
    except filelock.Timeout:
      pass
    except OSError as error:
      raise storage.not_written(directory / NAME, error) from error
    if gives_up() or signals.is_stopping():
      return False
    if last is None:
      reporter.say(f'waiting for {directory}: locked by {holder(directory) or "an unknown process"}')
    # Only a change of the time counts, since the clock of another machine may be years off.
    now = renewed(directory)
    if now != last:
      last, since = now, time.monotonic()
    elif time.monotonic() - since > _MOST_SILENCE:
      lease.break_lock()
    time.sleep(0.5)


def holder(directory: pathlib.Path) -> str | None:
  """The process that a lock names, dead or alive."""
  owner = _lease(directory).owner
  return f'process {owner.pid} on {owner.hostname}' if owner else None


def is_stale(directory: pathlib.Path) -> bool:
  """True for a lock that was not renewed within the lease, or names a process of this host that is gone."""
  # The clock of the file system may be ahead of this one.
  if time.time() - (renewed(directory) or 0.0) > LEASE:
    return True
  owner = _lease(directory).owner
  if not owner or owner.hostname != socket.gethostname():
    return False
  try:
    # Signal 0 only asks; a process of another user refuses it.
    os.kill(owner.pid, 0)
  except OSError as error:
    return isinstance(error, ProcessLookupError)
  return False


def renewed(directory: pathlib.Path) -> float | None:
  """The time of a lock's last renewal, by the clock of the file system."""
  with contextlib.suppress(OSError):
    return (directory / NAME).stat().st_mtime
  return None


def check_held(directory: pathlib.Path) -> None:
  """Raise Lost unless this process, process 0, has the lock on a directory; call it before what it guards."""
  if not (storage.is_object(directory) or _lease(directory).is_lock_held_by_us):
    other = holder(directory) or 'a process that has ended'
    raise Lost(f'lost the lock on {directory} to {other}: this process did not renew it within the lease')
