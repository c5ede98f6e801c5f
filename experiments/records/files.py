"""Files that are written whole or not at all, and read without trust: none is unpickled or run.

Of several processes only process 0 writes, under the lock of what the file belongs to: see `locks.check_held`.
"""

from collections.abc import Callable, Iterator
import contextlib
import fnmatch
import hashlib
import io
import itertools
import json
import os
import pathlib
import secrets
from typing import Any, TypeVar

from etils import epath
import jax
import numpy as np

from experiments.runtime.progress import Reporter
from experiments.runtime.storage import is_object, not_written
from experiments.settings.fields import SettingsError
from hmm_jax.distributions.files import check_bytes, open_regular, read_archive

T = TypeVar('T')

# Most bytes of JSON to read: its objects take several times as many.
MOST_JSON = 2**28
# Bytes of all arrays of a file.
MOST_ARRAYS = 2**30
# Bytes of a file that is only hashed.
_MOST_HASHED = 2**40
# Ends the name of a file that is being written, after a dot and 16 random characters.
_PARTIAL = '.partial'
# The field of a sealed file that has the SHA-256 of the others.
_SEAL = 'sha256'
# In a folder: the SHA-256 of each of its files.
CHECKSUMS = 'checksums.json'


class Corrupt(SettingsError):
  """A file failed its checksum or cannot be parsed; the message says which."""


def write_whole(path: pathlib.Path, content: str | bytes) -> None:
  """Replace the file in one step: a reader, or a kill, sees the old content or the new.

  Raises StorageError if a local write fails.
  """
  data = content.encode() if isinstance(content, str) else content
  if is_object(path):
    path.write_bytes(data)
    return
  try:
    try:
      _replace(path, data)
    except FileNotFoundError:
      # A run that begins has removed the partial file: see `remove_partials`.
      _replace(path, data)
  except OSError as error:
    raise not_written(path, error) from error


def _replace(path: pathlib.Path, data: bytes) -> None:
  """Write a partial file beside the path and rename it; remove it if that fails."""
  partial = path.with_name(f'.{secrets.token_hex(8)}{_PARTIAL}')
  path.parent.mkdir(parents=True, exist_ok=True)
  try:
    # Exclusive creation follows no link.
    with open(partial, 'xb') as file:
      file.write(data)
      file.flush()
      # Without it a power failure may leave the new name with no content.
      os.fsync(file.fileno())
    os.replace(partial, path)
  finally:
    partial.unlink(missing_ok=True)


def remove_partials(directory: pathlib.Path) -> None:
  """Remove the partial files below a local directory, which killed runs left; a live process writes its own again."""
  # Unlike `rglob` it passes over folders that other processes remove meanwhile, and over object stores.
  for folder, _, names in os.walk(directory):
    for name in fnmatch.filter(names, f'.{"?" * 16}{_PARTIAL}'):
      with contextlib.suppress(OSError):
        os.unlink(os.path.join(folder, name))


def write_json_lines(path: pathlib.Path, rows: list[dict[str, Any]]) -> None:
  """One JSON object a line; NaN is refused, since JSON has none."""
  write_whole(path, ''.join(json.dumps(row, allow_nan=False) + '\n' for row in rows))


def intact_json_lines(path: pathlib.Path, reporter: Reporter | None = None) -> list[dict[str, Any]]:
  """The rows of a file; a corrupt one counts as empty, and is renamed as `intact` does."""
  return intact(lambda: read_json_lines(path), reporter, path) or []


def read_json_lines(path: pathlib.Path) -> list[dict[str, Any]]:
  """The rows of `path`, none if it does not exist. Raises Corrupt if it is corrupt."""
  try:
    rows = [json.loads(line) for line in read_bytes(path).splitlines()]
  except FileNotFoundError:
    return []
  except (OSError, ValueError):
    rows = [None]
  if not all(isinstance(row, dict) for row in rows):
    raise Corrupt(f'{str(path)!r} is corrupt; valid is one JSON object a line; delete the file and rerun')
  return rows


def read_json(path: pathlib.Path) -> Any:
  """The value in a JSON file; raises ValueError if it is larger than MOST_JSON or no JSON."""
  return json.loads(read_bytes(path))


def read_bytes(path: pathlib.Path) -> bytes:
  """The bytes of a JSON file; raises ValueError, before it reads, if there are more than MOST_JSON."""
  with opened(path, MOST_JSON) as file:
    return file.read()


def opened(path: pathlib.Path, most_bytes: int) -> contextlib.AbstractContextManager[Any]:
  """Open a file that anybody may have put there; raises ValueError if it has more bytes or is not a regular file."""
  if not is_object(path):
    return open_regular(path, most_bytes)
  # pathlib's `stat` knows only local files.
  stored = epath.Path(path)
  check_bytes(stored.stat().length, most_bytes)
  return stored.open('rb')


def read_arrays(path: pathlib.Path) -> dict[str, np.ndarray]:
  """The arrays of an .npz file, as `read_archive` reads at most MOST_ARRAYS bytes of them."""
  # An archive has headers beside its arrays.
  with opened(path, 2 * MOST_ARRAYS) as file:
    return read_archive(file, MOST_ARRAYS)


def write_arrays(path: pathlib.Path, tree: Any) -> str:
  """Write the arrays of a tree as npz, named `by_name`; return the SHA-256 of the file."""
  buffer = io.BytesIO()
  np.savez(buffer, **by_name(tree))
  write_whole(path, buffer.getvalue())
  return hashlib.sha256(buffer.getvalue()).hexdigest()


def by_name(tree: Any) -> dict[str, Any]:
  """The leaves of a tree by their paths in it."""
  leaves = jax.tree_util.tree_leaves_with_path(tree)
  return {jax.tree_util.keystr(path, simple=True, separator='/'): leaf for path, leaf in leaves}


def digest(path: pathlib.Path) -> str:
  """The SHA-256 of a file, in hexadecimal digits."""
  with opened(path, _MOST_HASHED) as file:
    return hashlib.file_digest(file, 'sha256').hexdigest()


def write_sealed(path: pathlib.Path, content: dict[str, Any]) -> None:
  """Write a JSON object with the SHA-256 of its other fields in it, so that a flipped bit on the disk is detected."""
  write_whole(path, json.dumps({**content, _SEAL: _seal(content)}, allow_nan=False) + '\n')


def read_sealed(path: pathlib.Path) -> dict[str, Any]:
  """The content that `write_sealed` wrote. Raises FileNotFoundError if there is no file, Corrupt if it is corrupt."""
  try:
    content = read_json(path)
  except FileNotFoundError:
    raise
  except (OSError, ValueError) as error:
    raise Corrupt(f'cannot be parsed ({type(error).__name__})')
  if not isinstance(content, dict) or content.pop(_SEAL, None) != _seal(content):
    raise Corrupt('failed its checksum')
  return content


def _seal(content: dict[str, Any]) -> str:
  return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def write_checksums(folder: pathlib.Path, of: str) -> None:
  """Write the SHA-256 of each file of a folder into it, with the name of what it belongs to."""
  digests = {name: digest(path) for name, path in tree(folder).items() if name != CHECKSUMS}
  write_sealed(folder / CHECKSUMS, {'of': of, 'files': digests})


def is_intact(folder: pathlib.Path, of: str, reporter: Reporter) -> bool:
  """True for a sealed folder with the files of its checksums; a corrupt one is set aside."""
  return bool(intact(lambda: _checked(folder, of), reporter, folder))


def _checked(folder: pathlib.Path, of: str) -> dict[str, Any]:
  """The checksums of a folder. Raises FileNotFoundError if there are none, and Corrupt if its files have others."""
  recorded = read_sealed(folder / CHECKSUMS)
  if recorded['of'] != of:
    raise Corrupt(f'it belongs to model {recorded["of"]}')
  # A file that somebody has put there is no fault.
  for name, expected in recorded['files'].items():
    check_digest(folder / name, expected)
  return recorded


def check_digest(path: pathlib.Path, expected: str) -> None:
  """Raise Corrupt unless a file is there and has this SHA-256."""
  with contextlib.suppress(OSError, ValueError):
    if digest(path) == expected:
      return
  raise Corrupt(f'{path.name} failed its checksum or is missing')


def intact(read: Callable[[], T], reporter: Reporter | None, *paths: pathlib.Path) -> T | None:
  """The result of `read`, a file of `paths`; None if there is none, or it is Corrupt.

  With a reporter they are renamed then, and this is said; the caller holds the lock of what they belong to.
  """
  try:
    return read()
  except FileNotFoundError:
    return None
  except Corrupt as error:
    if reporter:
      renamed = [_rename_corrupt(path) for path in paths if path.exists()]
      reporter.say(f'{paths[0]}: {error}; renamed to {renamed[0]}')
    return None


def _rename_corrupt(path: pathlib.Path) -> str:
  """Rename a file or a directory to NAME.corrupt, or NAME.corrupt-2 and so on if that exists; return the new name.

  An object store copies, then deletes.
  """
  numbers, where = itertools.count(2), path.with_name(f'{path.name}.corrupt')
  while where.exists():
    where = path.with_name(f'{path.name}.corrupt-{next(numbers)}')
  return path.rename(where).name


def remove(folder: pathlib.Path) -> None:
  """Remove a folder with all its files, if there is one."""
  with contextlib.suppress(OSError):
    epath.Path(folder).rmtree()


def entries(directory: pathlib.Path) -> list[pathlib.Path]:
  """The paths in a directory by name, none if there is none."""
  # In an object store `glob` takes the brackets of an address for a pattern.
  return sorted(directory.iterdir(), key=str) if directory.is_dir() else []


def tree(directory: pathlib.Path) -> dict[str, pathlib.Path]:
  """Every file below a directory, by its path from there."""
  return {str(path.relative_to(directory)): path for path in _below(directory)}


def _below(directory: pathlib.Path) -> Iterator[pathlib.Path]:
  # Paths of an object store have no `rglob`.
  for path in entries(directory):
    yield from _below(path) if path.is_dir() else [path]
