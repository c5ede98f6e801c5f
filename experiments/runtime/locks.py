"""Who works on what: a claim on a directory is a file in it, held by one process at a time.

Claims are numbered, and the newest, `claim-N.json`, counts. It is held until its process releases it, which leaves the
file as it is but for that word, or is gone:

- Of a process on this machine that is known at once, also after kill -9: it has a lock on its claim (`flock`), which
  the kernel drops with it.
- Of one elsewhere, or where the file system has no locks, after MISSED heartbeats: its claim is touched every BEAT
  seconds, and is looked at by the clock of whoever waits, so that clocks need not agree.

Whoever finds claim N free makes claim N + 1, which the file system lets one process alone (O_EXCL), and removes the
older ones. A process so slow that N + 1 is an old number by then finds a newer one beside its own, and withdraws; so
does one that cannot write its name. The newest claim that names a process is never removed, and so tells a process that
was taken for dead and is not, having slept, that another one has come after it, also where that one has ended since: it
finds that out before it writes records (`check`); only what it writes within that moment is written beside another, and
is the same.

Nobody waits in a circle: a process holds a trial when it waits for a pretrained model, and no trial when it waits for a
trial. In an object store, which has neither locks nor exclusive creation here, nothing is claimed.
"""

from collections.abc import Callable, Iterator
import contextlib
import datetime
import fcntl
import functools
import json
import os
import pathlib
import platform
import re
import threading
import time
from typing import NamedTuple
import uuid

from experiments.runtime import distributed, signals, storage
from experiments.runtime.progress import Reporter

BEAT = 10.0
MISSED = 6
_SECONDS_BETWEEN_LOOKS = 0.5
# Of a claim, so that its release overwrites it in one step; of what is longer, and so is none, no more is read.
_BYTES = 512
# What tells this process from all others, whatever their ids and hosts.
_NONCE = uuid.uuid4().hex


class Lost(Exception):
  """Another process took this one for dead, and has its trial."""


class Holder(NamedTuple):
  """A process that holds a claim: where it runs, its id and nonce, since when, and its machine (''; unknown)."""

  host: str = 'an unknown host'
  pid: int = 0
  started: str = 'an unknown time'
  nonce: str = ''
  machine: str = ''
  released: bool = False

  def __str__(self) -> str:
    return f'process {self.pid} on {self.host} since {self.started}'


class Claim:
  """A claim that this process holds, and whose heart beats until it is released."""

  def __init__(self, path: pathlib.Path, file: int, holder: Holder):
    self._path, self._file, self._holder, self._ended = path, file, holder, threading.Event()
    self._heart = threading.Thread(target=self._beat, name=f'claim on {path.parent.name}', daemon=True)
    self._heart.start()

  def release(self) -> None:
    self._ended.set()
    self._heart.join()
    with contextlib.suppress(OSError):
      _write(self._file, self._holder._replace(released=True))
    with contextlib.suppress(OSError):
      os.close(self._file)

  def _beat(self) -> None:
    while not self._ended.wait(BEAT):
      with contextlib.suppress(OSError):
        os.utime(self._file)


class Watch:
  """What a process has seen of the claims on a directory."""

  def __init__(self, directory: pathlib.Path):
    self.directory = directory
    self._seen: tuple[int, int] | None = None
    self._since = 0.0

  def take(self) -> tuple[Claim | None, Holder | None]:
    """The claim, where nobody has it, and whoever has it, or had it and was gone without a release."""
    while True:
      number = _newest(self.directory)
      holder, is_gone = self._holder(number)
      if holder and not is_gone:
        return None, holder
      claim = _make(self.directory, number + 1)
      if claim:
        return claim, holder

  def holder(self) -> Holder | None:
    """Who has the claim now, if anybody."""
    holder, is_gone = self._holder(_newest(self.directory))
    return None if is_gone else holder

  def _holder(self, number: int) -> tuple[Holder | None, bool]:
    """Whose a claim is that was not released, and whether that process is gone."""
    try:
      with open(_path(self.directory, number), 'rb') as file:
        holder, seen = _parsed(file.read(_BYTES)), (number, os.fstat(file.fileno()).st_mtime_ns)
        if holder.released:
          return None, False
        if holder.machine and holder.machine == _machine():
          return holder, _locks(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (FileNotFoundError, NotADirectoryError):
      # Never made, or older than one that has been made since, which whoever makes the next one finds.
      return None, False
    except OSError:
      holder, seen = Holder(), (number, 0)
    if seen != self._seen:
      self._seen, self._since = seen, time.monotonic()
    return holder, time.monotonic() - self._since > MISSED * BEAT


def holder(directory: pathlib.Path) -> Holder | None:
  """Who has the claim on a directory, if anybody; one on another machine is not found to be gone by a single look."""
  return None if storage.is_object(directory) else Watch(directory).holder()


def silence(directory: pathlib.Path) -> float | None:
  """Seconds since the last heartbeat of a claim that is known by its heartbeats alone, by this machine's clock."""
  path = _path(directory, _newest(directory))
  machine = _read(path).machine
  if machine and machine == _machine():
    return None
  with contextlib.suppress(OSError):
    return max(0.0, time.time() - path.stat().st_mtime)
  return None


@contextlib.contextmanager
def held(
  directory: pathlib.Path,
  what: str,
  reporter: Reporter,
  waits: bool = True,
  gives_up: Callable[[], bool] = lambda: False,
) -> Iterator[bool]:
  """Holds the claim on a directory, of which `what` is the name, and yields whether it has it.

  Where another process has it this `waits`, and says for whom, until it has it or `gives_up`, or it does not wait. Of
  several processes that run a trial together process 0 claims, for all. Raises Stopped where it is told to stop.
  """
  with contextlib.ExitStack() as kept:
    is_held = distributed.broadcast_from_process_0(lambda: _take(directory, what, reporter, waits, gives_up, kept))
    if not is_held:
      signals.check()
    yield is_held


def _take(
  directory: pathlib.Path,
  what: str,
  reporter: Reporter,
  waits: bool,
  gives_up: Callable[[], bool],
  kept: contextlib.ExitStack,
) -> bool:
  if storage.is_object(directory):
    return True
  watch, told = Watch(directory), None
  while True:
    claim, other = watch.take()
    if claim:
      kept.callback(claim.release)
      if other:
        reporter.say(f'{what} is taken over: {other} is gone')
      return True
    if not waits or gives_up() or signals.is_stopping():
      return False
    if other and other != told:
      reporter.say(f'waits for {what}, which {other} works on')
      told = other
    time.sleep(_SECONDS_BETWEEN_LOOKS)


def check(directory: pathlib.Path) -> None:
  """Raises Lost where another process has had the claim on a directory since this one took it, or has it."""
  other = distributed.broadcast_from_process_0(lambda: lost_to(directory))
  if other:
    raise Lost(f'{directory} was claimed by {other}, which took this process for dead')


def lost_to(directory: pathlib.Path) -> str | None:
  """Whose the newest claim on a directory is, or was, where it is not of this process, which alone looks."""
  number = 0 if storage.is_object(directory) else _newest(directory)
  if not number:
    return None
  holder = _read(_path(directory, number))
  return None if holder.nonce == _NONCE else str(holder)


def _path(directory: pathlib.Path, number: int) -> pathlib.Path:
  return directory / f'claim-{number}.json'


def _numbers(directory: pathlib.Path) -> list[int]:
  try:
    names = os.listdir(directory)
  except (FileNotFoundError, NotADirectoryError):
    return []
  return [int(found[1]) for found in (re.fullmatch(r'claim-([0-9]+)\.json', name) for name in names) if found]


def _newest(directory: pathlib.Path) -> int:
  """The number of the newest claim, 0 where there is none."""
  return max(_numbers(directory), default=0)


def _make(directory: pathlib.Path, number: int) -> Claim | None:
  """The claim of this number, unless another process has made it or a newer one.

  Raises StorageError where it cannot be written, and leaves none.
  """
  path = _path(directory, number)
  try:
    directory.mkdir(parents=True, exist_ok=True)
  except OSError as error:
    sentence = f'{str(directory)!r} is no directory, and none can be made there ({error.strerror})'
    raise storage.StorageError(sentence) from error
  try:
    file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
  except FileExistsError:
    return None
  except OSError as error:
    raise storage.StorageError(storage.not_written(path, error)) from error
  now = datetime.datetime.now(datetime.UTC).strftime('%Y-%m-%d %H:%M:%S UTC')
  # Whoever looks whether it is locked has it locked for that moment.
  machine = _machine() if _locks(file, fcntl.LOCK_EX) else ''
  holder = Holder(platform.node(), os.getpid(), now, _NONCE, machine)
  try:
    _write(file, holder)
  except OSError as error:
    _withdraw(path, file)
    raise storage.StorageError(storage.not_written(path, error)) from error
  if _newest(directory) != number:
    _withdraw(path, file)
    return None
  for older in _numbers(directory):
    if older < number:
      with contextlib.suppress(OSError):
        _path(directory, older).unlink()
  return Claim(path, file, holder)


def _withdraw(path: pathlib.Path, file: int) -> None:
  """Removes what was to be a claim, which the maker of a newer one may have done."""
  with contextlib.suppress(OSError):
    path.unlink()
  os.close(file)


def _write(file: int, holder: Holder) -> None:
  os.pwrite(file, json.dumps(holder._asdict()).ljust(_BYTES).encode(), 0)


def _read(path: pathlib.Path) -> Holder:
  """Whom a claim names; a holder of whom nothing is known where it cannot be read, or is gone."""
  try:
    with open(path, 'rb') as file:
      return _parsed(file.read(_BYTES))
  except OSError:
    return Holder()


def _parsed(text: bytes) -> Holder:
  """Whom a claim names; a holder of whom nothing is known where it is being written, or is no claim."""
  try:
    return Holder(**json.loads(text))
  except (TypeError, ValueError):
    return Holder()


@functools.cache
def _machine() -> str:
  """What processes share whose locks see each other: the kernel since it was started; '' where it has no name."""
  try:
    return pathlib.Path('/proc/sys/kernel/random/boot_id').read_text().strip()
  except OSError:
    return ''


def _locks(file: int, how: int) -> bool:
  try:
    fcntl.flock(file, how)
  except OSError:
    return False
  return True
