"""Paths of a run, in a local directory or an object store: parsing, and a check that they are writable."""

from collections.abc import Iterator
import contextlib
import os
import pathlib
import re
import tempfile
import textwrap
from typing import cast

from etils import epath

from experiments.settings.fields import require, SettingsError

_LONGEST_REASON = 300


class StorageError(OSError):
  """A write failed; files written earlier are intact."""


def located(where: str, name: str = 'a path') -> pathlib.Path:
  """The path of a local directory, with ~ expanded, or of one in an object store, such as gs://BUCKET/DIRECTORY.

  The latter is an epath, which has the methods of pathlib that are used here. Raises SettingsError, which calls the
  path `name`, if it is neither.
  """
  # Python decodes bytes of the command line that are no UTF-8 to unprintable characters.
  require(where.isprintable(), name, where, 'a path of printable UTF-8 characters')
  if '://' not in where:
    return pathlib.Path(os.path.expanduser(where))
  try:
    return cast(pathlib.Path, epath.Path(where))
  except (KeyError, ValueError):
    valid = 'a local path or gs://BUCKET/DIRECTORY'
    raise SettingsError(f'{name} is {where!r}, in an unknown object store; valid is {valid}')


def is_object(path: pathlib.Path) -> bool:
  """True for a path in an object store, which has no directories, and whose files appear whole."""
  return '://' in str(path)


@contextlib.contextmanager
def usable(directory: pathlib.Path, name: str) -> Iterator[None]:
  """Raise SettingsError, which calls the directory `name`, if the block cannot use it.

  A file stands there, or the folder is not ours. Clients of object stores raise unrelated classes without a library, an
  account, a network or a bucket.
  """
  try:
    yield
  except SettingsError:
    raise
  except Exception as error:
    why = f'{type(error).__name__}: {reason(error)}'
    raise SettingsError(f'{name} is {str(directory)!r}; valid is a writable directory ({why})')


def check_writable(directory: pathlib.Path, name: str) -> None:
  """Raise SettingsError, as `usable` does, if nothing can be written there; leave nothing behind.

  It tries the directory itself or, if there is none yet, its nearest existing parent.
  """
  with usable(directory, name):
    if is_object(directory):
      probe = directory / '.probe'
      probe.write_bytes(b'')
      # Another run may try the same.
      probe.unlink(missing_ok=True)
    else:
      whole = directory.absolute()
      standing = next(parent for parent in (whole, *whole.parents) if parent.exists())
      tempfile.TemporaryFile(dir=standing).close()


def not_written(path: pathlib.Path, error: Exception) -> StorageError:
  """The error of a path that was not written, with the reason."""
  to_resume = 'earlier files are intact; fix the cause and rerun the same command to resume'
  return StorageError(f'{str(path)!r} was not written ({reason(error)}); {to_resume}')


def reason(error: BaseException) -> str:
  """`strerror` if the error has one, else its message in short; the store of Orbax has the system's error by number."""
  number = re.search(r"os_error_code='(\d+)'", str(error))
  system = os.strerror(int(number[1])) if number else getattr(error, 'strerror', None)
  return textwrap.shorten(system or str(error) or type(error).__name__, _LONGEST_REASON)
