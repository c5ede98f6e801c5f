"""The time of a unit of work, on file beside its records, and its failure until it is done."""

from collections.abc import Mapping
import datetime
import pathlib
import textwrap
import traceback
from typing import Any

from experiments.records import files
from experiments.runtime import locks
from experiments.runtime.progress import Reporter

FILE_NAME = 'failed.json'
# The seconds by phase of each run that worked on the unit.
FILE_OF_TIME = 'timing.jsonl'
_LONGEST = 300


def write(directory: pathlib.Path, error: BaseException, label: str = '') -> str:
  """Write the failure of a unit to file, with traceback and time, and return its sentence; raise Lost.

  Trials of several settings may share a directory; `label` tells them apart.
  """
  locks.check_held(directory)
  sentence = textwrap.shorten(f'{type(error).__name__}: {error}', _LONGEST)
  row = {
    'error': sentence,
    'when': datetime.datetime.now(datetime.UTC).isoformat(timespec='seconds'),
    'traceback': ''.join(traceback.format_exception(error)),
    'label': label,
  }
  files.write_sealed(directory / FILE_NAME, row)
  return sentence


def read(directory: pathlib.Path, label: str | None = '') -> dict[str, Any] | None:
  """The failure of a unit of this label, None meaning any; None if it has none on file that is intact."""
  failure = files.intact(lambda: files.read_sealed(directory / FILE_NAME), None)
  return failure if failure and label in (None, failure['label']) else None


def forget(directory: pathlib.Path, label: str = '') -> None:
  """Remove the failure of a unit that is done."""
  if read(directory, label):
    (directory / FILE_NAME).unlink()


def add_time(directory: pathlib.Path, spent: Mapping[str, float], reporter: Reporter) -> None:
  """Add the wall seconds of each phase to the directory of a unit; raise Lost."""
  locks.check_held(directory)
  path = directory / FILE_OF_TIME
  rounded = {name: round(seconds, 3) for name, seconds in spent.items()}
  files.write_json_lines(path, [*files.intact_json_lines(path, reporter), {'wall_seconds': rounded}])


def seconds(folder: pathlib.Path) -> dict[str, float]:
  """The wall seconds of each unit in a folder by its id, over all runs that worked on it."""
  spent = dict[str, float]()
  for directory in files.entries(folder):
    rows = files.intact_json_lines(directory / FILE_OF_TIME)
    spent[directory.name] = sum(sum(row['wall_seconds'].values()) for row in rows)
  return spent
