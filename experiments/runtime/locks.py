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
# The directories whose locks this process took, lost ones included.
_taken: set[pathlib.Path] = set()


@contextlib.contextmanager
def held(directory: pathlib.Path, name: str, reporter: Reporter, gives_up: Callable[[], bool] = bool) -> Iterator[bool]:
  """Hold the lock on a directory, called `name` in messages, in process 0 for all; yield True if it is held.

  If another process has it, wait until `gives_up`. Raises Stopped, and StorageError if no lock can be made.
  """
  lease = _lease(directory)

  def is_taken() -> bool:
    waits_for: str | None = ''
    last, since = None, 0.0
    # An object store has no exclusive creation, hence no locks.
    while not storage.is_object(directory):
      other = holder(directory)
      if _acquire(lease, directory):
        if other:
          reporter.say(f'took over {name}: {other} stopped renewing its lock')
        break
      if gives_up() or signals.is_stopping():
        return False
      if other != waits_for:
        reporter.say(f'waiting for {name}: locked by {other or "an unknown process"}')
        waits_for = other
      # Only a change of the time counts, since the clock of another machine may be years off.
      now = renewed(directory)
      if now != last:
        last, since = now, time.monotonic()
      elif time.monotonic() - since > 1.5 * LEASE:
        # filelock takes over neither an empty marker nor, without an atomic exchange of names, one on NFS.
        lease.break_lock()
        reporter.say(f'took over {name}: {other or "an unknown process"} stopped renewing its lock')
      time.sleep(0.5)
    return True

  try:
    is_held = distributed.broadcast_from_process_0(is_taken)
    # A run that received a signal while it waited stops here, before it takes up other work.
    if not is_held:
      signals.raise_if_stopped()
    yield is_held
  finally:
    if lease.is_locked:
      _taken.remove(directory)
      with contextlib.suppress(OSError):
        lease.release()


def _lease(directory: pathlib.Path) -> filelock.SoftFileLease:
  return filelock.SoftFileLease(directory / NAME, lease_duration=LEASE)


def _acquire(lease: filelock.SoftFileLease, directory: pathlib.Path) -> bool:
  """Try to take the lock without waiting; True if this process has it now. Raises StorageError if none can be made."""
  try:
    directory.mkdir(parents=True, exist_ok=True)
    lease.acquire(blocking=False)
  except filelock.Timeout:
    return False
  except OSError as error:
    raise storage.StorageError(storage.not_written(directory / NAME, error)) from error
  _taken.add(directory)
  return True


def holder(directory: pathlib.Path) -> str | None:
  """The process that a lock names, dead or alive."""
  owner = _lease(directory).owner
  return f'process {owner.pid} on {owner.hostname}' if owner else None


def has_ended(directory: pathlib.Path) -> bool:
  """True if the process that a lock names ran on this host and is gone; of another host nothing is known."""
  owner = _lease(directory).owner
  if not owner or owner.hostname != socket.gethostname():
    return False
  try:
    # Signal 0 only asks.
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
  """Raise Lost, in all processes, if process 0 no longer has the lock that it took on a directory."""

  def look() -> None:
    if other := lost_to(directory):
      raise Lost(f'lost the lock on {directory} to {other}: this process did not renew it within the lease')

  distributed.broadcast_from_process_0(look)


def may_write(path: pathlib.Path) -> bool:
  """True if this process is the writer, and has lost no lock on a directory that contains the path."""
  return distributed.is_writer() and not any(lost_to(directory) for directory in _taken if directory in path.parents)


def lost_to(directory: pathlib.Path) -> str | None:
  """The process that took over our lock on a directory; None if we still hold it or never did."""
  if directory not in _taken or _lease(directory).is_lock_held_by_us:
    return None
  return holder(directory) or 'a process that has ended'
