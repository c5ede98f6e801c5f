"""The time of a unit of work, on file beside its records, and its failure until it is done."""

import contextlib
import datetime
import pathlib
import traceback
from typing import Any, NamedTuple

from experiments.records import files
from experiments.runtime import exit_status, locks, storage
from experiments.runtime.progress import Reporter

FILE_NAME = 'failed.json'
# The seconds by phase of each run that worked on the unit.
FILE_OF_TIME = 'timing.jsonl'
_LONGEST = 300


class Failure(NamedTuple):
  """The failure of a unit: its message and exit status."""

  sentence: str
  status: int


def write(directory: pathlib.Path, error: BaseException, label: str = '') -> Failure:
  """Write the failure of a unit to file: sentence, traceback and time.

  Trials of several settings may share a directory; `label` tells them apart. If the file cannot be written, the
  sentence says so too.
  """
  status = exit_status.error_status(error)
  line = str(error).strip().partition('\n')[0] or 'no message'
  if status == exit_status.FAILED and not isinstance(error, storage.StorageError):
    # It was not written for the user.
    line = f'{type(error).__name__}: {line}'
  failure = Failure(line[:_LONGEST], status)
  row = {
    'error': failure.sentence,
    'when': datetime.datetime.now(datetime.UTC).isoformat(timespec='seconds'),
    'traceback': ''.join(traceback.format_exception(error)),
    'label': label,
  }
  try:
    files.write_sealed(directory / FILE_NAME, row)
  except OSError as other:
    return failure._replace(sentence=f'{failure.sentence} ({other})')
  return failure


def read(directory: pathlib.Path, label: str | None = '') -> dict[str, Any] | None:
  """The failure of a unit of this label, None meaning any; None if it has none."""
  try:
    failure = files.read_sealed(directory / FILE_NAME)
  except FileNotFoundError:
    return None
  except files.Corrupt:
    # The unit has failed, for an unknown reason.
    return {'error': f'{FILE_NAME} cannot be read', 'when': 'an unknown time'}
  return failure if label in (None, failure['label']) else None


def forget(directory: pathlib.Path, label: str = '') -> None:
  """Remove the failure of a unit that is done."""
  if read(directory, label):
    (directory / FILE_NAME).unlink()


def add_time(directory: pathlib.Path, spent: dict[str, float], reporter: Reporter) -> None:
  """Add the wall seconds of each phase to the directory of a unit; raise Lost."""
  locks.check_held(directory)
  path = directory / FILE_OF_TIME
  files.write_json_lines(path, [*files.intact_json_lines(path, reporter), {'wall_seconds': spent}])


def seconds(folder: pathlib.Path) -> dict[str, float]:
  """The wall seconds of each unit in a folder by its id, over all runs that worked on it; no corrupt one."""
  spent: dict[str, float] = {}
  for directory in files.entries(folder):
    # Nothing is renamed here: the reader may not hold the lock.
    with contextlib.suppress(files.Corrupt):
      rows = files.read_json_lines(directory / FILE_OF_TIME)
      spent[directory.name] = sum(sum(row['wall_seconds'].values()) for row in rows)
  return spent
