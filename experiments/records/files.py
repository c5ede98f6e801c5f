"""Files that are written whole or not at all, JSON lines among them; by process 0 alone. None is unpickled."""

import contextlib
import json
import os
import pathlib
import platform
import shutil
import tempfile
from typing import Any, cast
import uuid

from etils import epath

from experiments import distributed
from experiments.fields import require, SettingsError

# Bytes of JSON that are read at most: its objects take several times as many.
MOST_JSON = 2**28
# Where what is not as it was written goes, with all that it is read with; in its own directory.
ASIDE = 'set-aside'


class StorageError(OSError):
  """Something could not be written, as its text says; what was written before it stands."""


def located(where: str, name: str = 'a path') -> pathlib.Path:
  """The path of a local directory, or of one in an object store, such as gs://BUCKET/DIRECTORY.

  The latter is epath's, which has the methods of pathlib's that are used here. Raises SettingsError, which says what
  the path is of by its `name`, where it is neither.
  """
  require('\0' not in where, name, where, 'a path, which has no null character')
  # Bytes that are none are kept by Python in characters of this range.
  is_text = not any('\ud800' <= character <= '\udfff' for character in where)
  require(is_text, name, where, 'a path of UTF-8')
  if '://' not in where:
    return pathlib.Path(where)
  try:
    return cast(pathlib.Path, epath.Path(where))
  except (KeyError, ValueError):
    what = f'{where!r}, which is in no object store that is known'
    raise SettingsError(f'{name} is {what}; valid is a local path, or gs://BUCKET/DIRECTORY')


def is_object(path: pathlib.Path) -> bool:
  """Whether the path is one of an object store, which has no directories, and whose files appear whole."""
  return '://' in str(path)


def check_writable(directory: pathlib.Path) -> None:
  """Raises OSError where nothing can be written there; nothing is left but what there was.

  It is tried in the directory itself or, where there is none yet, in that in which it would be made.
  """
  if is_object(directory):
    probe = directory / f'.probe-{uuid.uuid4().hex}'
    try:
      probe.write_bytes(b'')
      probe.unlink()
    except Exception as error:
      # What a client raises without a library, an account, a network or a bucket is of no one class.
      raise OSError(0, f'{type(error).__name__}: {error}')
    return
  with tempfile.TemporaryFile(dir=standing(directory)):
    pass


def write_whole(path: pathlib.Path, content: str | bytes) -> None:
  """Replaces the file in one step: a reader, or a kill, sees the old content or the new."""
  data = content.encode() if isinstance(content, str) else content
  if not distributed.is_writer():
    return
  if is_object(path):
    path.write_bytes(data)
    return
  # Every pod of a cluster may have the same process id.
  begin = f'.{path.name}.{platform.node()}.'
  partial = path.with_name(f'{begin}{os.getpid()}')
  try:
    path.parent.mkdir(parents=True, exist_ok=True)
    _sweep(path.parent, begin)
    with open(partial, 'wb') as file:
      file.write(data)
      file.flush()
      os.fsync(file.fileno())
    os.replace(partial, path)
  except BaseException as error:
    with contextlib.suppress(OSError):
      partial.unlink()
    if isinstance(error, OSError):
      raise StorageError(not_written(path, error)) from error
    raise


def _sweep(directory: pathlib.Path, begin: str) -> None:
  """Removes partial files, whose names begin so, of processes of this host that are no more, as after kill -9."""
  with os.scandir(directory) as entries:
    numbers = [entry.name.removeprefix(begin) for entry in entries if entry.name.startswith(begin)]
  for number in numbers:
    if number.isdecimal() and not _is_alive(int(number)):
      (directory / f'{begin}{number}').unlink(missing_ok=True)


def _is_alive(pid: int) -> bool:
  """Whether there is such a process on this host, whoever's it is."""
  try:
    os.kill(pid, 0)
  except (ProcessLookupError, OverflowError):
    return False
  except PermissionError:
    pass
  return True


def not_written(path: pathlib.Path, error: Exception) -> str:
  """The sentence of a StorageError: what could not be written, why, and what room there is."""
  reason = getattr(error, 'strerror', None) or str(error) or type(error).__name__
  there = free_bytes(path)
  room = '' if there is None else f', {there:,} bytes are free'
  return f'{str(path)!r} was not written ({reason}{room}); what was there before stands, and the same command goes on'


def free_bytes(path: pathlib.Path) -> int | None:
  """The bytes that may be written where `path` is or would be; None in an object store, which does not say."""
  return None if is_object(path) else shutil.disk_usage(standing(path)).free


def standing(path: pathlib.Path) -> pathlib.Path:
  """The path, or the nearest of the directories that it would lie in that there is."""
  whole = path.absolute()
  return next(one for one in (whole, *whole.parents) if one.exists())


def remove(path: pathlib.Path) -> None:
  """Removes the file, if there is one."""
  if distributed.is_writer():
    path.unlink(missing_ok=True)


def write_json_lines(path: pathlib.Path, rows: list[dict[str, Any]]) -> None:
  """One JSON object a line; NaN is refused, since JSON has none."""
  write_whole(path, json_lines(rows))


def json_lines(rows: list[dict[str, Any]]) -> str:
  """The text of such a file."""
  return ''.join(json.dumps(row, allow_nan=False) + '\n' for row in rows)


def append_json_line(path: pathlib.Path, row: dict[str, Any]) -> None:
  """Adds a row to those of `path`, whole or not at all."""
  write_json_lines(path, [*read_json_lines(path), row])


def read_json_lines(path: pathlib.Path) -> list[dict[str, Any]]:
  """The rows of `path`, none where it does not exist. Raises SettingsError where it is damaged."""
  try:
    return rows_of(read_bytes(path))
  except FileNotFoundError:
    return []
  except (OSError, ValueError):
    raise SettingsError(
      f'{str(path)!r} is damaged; valid is a JSON object on each line, or no such file: run again then'
    )


def rows_of(data: bytes) -> list[dict[str, Any]]:
  """The rows of what such a file holds; raises ValueError where it is damaged."""
  try:
    rows = [json.loads(line) for line in data.decode().splitlines()]
  except RecursionError:
    raise ValueError('a line is nested too deep')
  if not all(isinstance(row, dict) for row in rows):
    raise ValueError('a line is no JSON object')
  return rows


def read_bytes(path: pathlib.Path) -> bytes:
  """What a file of JSON holds; raises ValueError, before it is read, where it has more than MOST_JSON bytes."""
  stat: Any = path.stat()
  size = stat.length if is_object(path) else stat.st_size
  if size > MOST_JSON:
    raise ValueError(f'it has {size:,} bytes; valid is at most {MOST_JSON:,}')
  return path.read_bytes()


def set_aside(path: pathlib.Path, directory: pathlib.Path) -> pathlib.Path:
  """Moves a file, or a directory with all in it, into `directory`, where nothing of its name is replaced; where it is.

  An object store has no names to change: there all is copied before anything is removed.
  """
  number, where = 1, directory / path.name
  while where.exists():
    number += 1
    where = directory / f'{path.name}-{number}'
  if not is_object(path):
    directory.mkdir(parents=True, exist_ok=True)
    return path.rename(where)
  below = tree(path) if path.is_dir() else {'': path}
  for name, file in below.items():
    (where / name if name else where).write_bytes(file.read_bytes())
  for file in below.values():
    file.unlink()
  return where


def tree(directory: pathlib.Path) -> dict[str, pathlib.Path]:
  """Every file below a directory, by its path from there."""
  found: dict[str, pathlib.Path] = {}
  for path in sorted(directory.iterdir(), key=str):
    below = tree(path) if path.is_dir() else {'': path}
    found |= {f'{path.name}/{name}'.rstrip('/'): file for name, file in below.items()}
  return found
