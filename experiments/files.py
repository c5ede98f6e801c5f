"""Files that are written whole or not at all, JSON lines among them; by process 0 alone."""

import json
import os
import pathlib
import platform
import tempfile
from typing import Any, cast
import uuid

from etils import epath

from experiments import distributed
from experiments.fields import require, SettingsError


def located(where: str, name: str = 'a path') -> pathlib.Path:
  """The path of a local directory, or of one in an object store, such as gs://BUCKET/DIRECTORY.

  The latter is epath's, which has the methods of pathlib's that are used here. Raises SettingsError, which says what
  the path is of by its `name`, where it is neither.
  """
  require('\0' not in where, name, where, 'a path, which has no null character')
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
  whole = directory.absolute()
  with tempfile.TemporaryFile(dir=next(path for path in (whole, *whole.parents) if path.exists())):
    pass


def write_whole(path: pathlib.Path, content: str | bytes) -> None:
  """Replaces the file in one step: a reader, or a kill, sees the old content or the new."""
  data = content.encode() if isinstance(content, str) else content
  if not distributed.is_writer():
    return
  if is_object(path):
    path.write_bytes(data)
    return
  path.parent.mkdir(parents=True, exist_ok=True)
  # Every pod of a cluster may have the same process id.
  partial = path.with_name(f'.{path.name}.{platform.node()}.{os.getpid()}')
  with open(partial, 'wb') as file:
    file.write(data)
    file.flush()
    os.fsync(file.fileno())
  os.replace(partial, path)


def remove(path: pathlib.Path) -> None:
  """Removes the file, if there is one."""
  if distributed.is_writer():
    path.unlink(missing_ok=True)


def write_json_lines(path: pathlib.Path, rows: list[dict[str, Any]]) -> None:
  """One JSON object a line; NaN is refused, since JSON has none."""
  write_whole(path, ''.join(json.dumps(row, allow_nan=False) + '\n' for row in rows))


def append_json_line(path: pathlib.Path, row: dict[str, Any]) -> None:
  """Adds a row to those of `path`, whole or not at all."""
  write_json_lines(path, [*read_json_lines(path), row])


def read_json_lines(path: pathlib.Path) -> list[dict[str, Any]]:
  """The rows of `path`, none where it does not exist. Raises SettingsError where it is damaged."""
  try:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
  except FileNotFoundError:
    return []
  except (OSError, ValueError, RecursionError):
    rows = [None]
  if not all(isinstance(row, dict) for row in rows):
    raise SettingsError(
      f'{str(path)!r} is damaged; valid is a JSON object on each line, or no such file: run again then'
    )
  return rows
