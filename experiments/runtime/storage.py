"""Where a run may write, in a local directory or an object store: whether that takes anything, and its room."""

import pathlib
import shutil
import tempfile
from typing import cast

from etils import epath

from experiments.settings.fields import require, SettingsError


class StorageError(OSError):
  """Something could not be written, as its text says; what was written before it stands."""


def located(where: str, name: str = 'a path') -> pathlib.Path:
  """The path of a local directory, or of one in an object store, such as gs://BUCKET/DIRECTORY.

  The latter is epath's, which has the methods of pathlib's that are used here. Raises SettingsError, which says what
  the path is of by its `name`, where it is neither.
  """
  # Bytes of the command line that are no UTF-8 are kept by Python in characters that cannot be printed, either.
  require(where.isprintable(), name, where, 'a path of characters that can be printed, as UTF-8')
  if '://' not in where:
    return pathlib.Path(where)
  try:
    return cast(pathlib.Path, epath.Path(where))
  except (KeyError, ValueError):
    what = f'{where!r}, which is in no object store that is known'
    raise SettingsError(f'{name} is {what}; valid is a local path, or gs://BUCKET/DIRECTORY')


def is_object(path: pathlib.Path) -> bool:
  """True for a path in an object store, which has no directories, and whose files appear whole."""
  return '://' in str(path)


def check_writable(directory: pathlib.Path) -> None:
  """Raises OSError where nothing can be written there; nothing is left but what there was.

  It is tried in the directory itself or, where there is none yet, in that in which it would be made.
  """
  if is_object(directory):
    probe = directory / '.probe'
    try:
      probe.write_bytes(b'')
      # Another run may try the same.
      probe.unlink(missing_ok=True)
    except Exception as error:
      # What a client raises without a library, an account, a network or a bucket is of no one class.
      raise OSError(f'{type(error).__name__}: {error}')
    return
  with tempfile.TemporaryFile(dir=standing(directory)):
    pass


def not_written(path: pathlib.Path, error: Exception) -> str:
  """The sentence of a StorageError: what could not be written, why, and what room there is."""
  there = free_bytes(path)
  room = '' if there is None else f', {there:,} bytes are free'
  what_stands = 'what was there before stands, and once this is mended the same command goes on'
  return f'{str(path)!r} was not written ({reason(error)}{room}); {what_stands}'


def reason(error: Exception) -> str:
  """The words of the system for an error, or else its own."""
  return getattr(error, 'strerror', None) or str(error) or type(error).__name__


def free_bytes(path: pathlib.Path) -> int | None:
  """The bytes that may be written where `path` is or would be; None in an object store, which does not say."""
  return None if is_object(path) else shutil.disk_usage(standing(path)).free


def standing(path: pathlib.Path) -> pathlib.Path:
  """The path, or its nearest existing parent."""
  whole = path.absolute()
  return next(one for one in (whole, *whole.parents) if one.exists())
