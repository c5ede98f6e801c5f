"""The failure of a trial, on file beside its records until the trial is done."""

import datetime
import json
import pathlib
import traceback
from typing import Any, NamedTuple

import jax

from experiments.records import files, loading
from experiments.records.environment import environment
from experiments.runtime import exit_status, storage

FILE_NAME = 'failed.json'
_LONGEST = 300


class Failure(NamedTuple):
  """A trial that has failed: what is said of it, and the exit status that it asks for."""

  sentence: str
  status: int


def sentence(error: BaseException) -> str:
  """The first line of an error, behind the name of its class unless it is one that was written for the user."""
  lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ['without a word']
  is_ours = isinstance(error, storage.StorageError) or exit_status.error_status(error) != exit_status.FAILED
  return (lines[0] if is_ours else f'{type(error).__name__}: {lines[0]}')[:_LONGEST]


def caught(directory: pathlib.Path, error: Exception) -> Failure:
  """Writes what failed: the sentence, the exit status, all that is known of it, when, and where.

  Where that cannot be written it is said alone.
  """
  failure, when = Failure(sentence(error), exit_status.error_status(error)), datetime.datetime.now(datetime.UTC)
  row = {
    'error': failure.sentence,
    'status': failure.status,
    'when': when.isoformat(timespec='seconds'),
    'traceback': ''.join(traceback.format_exception(error)),
    'environment': environment(_devices()),
  }
  try:
    files.write_whole(directory / FILE_NAME, json.dumps(row, indent=2) + '\n')
  except OSError as other:
    return failure._replace(sentence=f'{failure.sentence} ({other})')
  return failure


def _devices() -> list[jax.Device]:
  try:
    return jax.devices()
  except RuntimeError:  # which may be what has failed
    return []


def read(directory: pathlib.Path) -> dict[str, Any] | None:
  """The failure of a trial; None if it has none."""
  try:
    found = loading.json_value(directory / FILE_NAME)
  except FileNotFoundError:
    return None
  except (OSError, ValueError):
    found = None
  unreadable = {'error': f'{FILE_NAME} cannot be read', 'status': exit_status.FAILED, 'when': 'an unknown time'}
  is_ours = isinstance(found, dict) and all(type(found.get(name)) is type(unreadable[name]) for name in unreadable)
  return found if is_ours else unreadable


def forget(directory: pathlib.Path) -> None:
  """Removes the failure of a trial that is done."""
  files.remove(directory / FILE_NAME)
