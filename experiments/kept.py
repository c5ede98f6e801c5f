"""Records of a trial or a part, with what they came from and what was tuned beside, read only as they were written.

The manifest is written before the records and knows those before them too, so that a kill in between leaves records
that it knows. A folder of before there were manifests is read as it is.
"""

import contextlib
import pathlib
from typing import Any

from experiments import distributed, files, manifests, timing
from experiments.fields import SettingsError
from experiments.results import ENVIRONMENT_NAME, Record

RECORDS_NAME = 'records.jsonl'
ARRAYS = 'tuned'
_TOGETHER = (RECORDS_NAME, ENVIRONMENT_NAME, timing.FILE_NAME, manifests.NAME, ARRAYS)

# Of tuned arrays, by their names.
Entries = dict[str, manifests.Entry]


def write(directory: pathlib.Path, rows: list[Record], arrays: Entries) -> None:
  """Replaces the records; what they came from, and the arrays that were tuned since, are there before."""
  if not distributed.is_writer():
    return
  text = files.json_lines(rows)
  before = (_manifest(directory) if (directory / RECORDS_NAME).exists() else None) or {'records': [], 'arrays': {}}
  content = {
    'records': [*before['records'], manifests.entry_of(text.encode())],
    'arrays': {**before['arrays'], **arrays},
    'environment': manifests.entry(directory / ENVIRONMENT_NAME),
  }
  manifests.write(directory, content)
  files.write_whole(directory / RECORDS_NAME, text)


def read(directory: pathlib.Path) -> list[Record]:
  """The records; none where they are not as they were written."""
  rows: list[Record] = []
  with contextlib.suppress(SettingsError, ValueError):
    rows = files.read_json_lines(directory / RECORDS_NAME)
    # After the records: what another process has written since then knows them too.
    if rows and _changed_records(directory, _manifest(directory)):
      rows = []
  return rows


def environments(directory: pathlib.Path) -> list[dict[str, Any]]:
  """What the records came from, a line for each addition; none where it cannot be read."""
  with contextlib.suppress(SettingsError):
    return files.read_json_lines(directory / ENVIRONMENT_NAME)
  return []


def fault(directory: pathlib.Path) -> str | None:
  """What is not as it was written, in words that name the first; None: nothing, or nobody knows."""
  try:
    for name in (RECORDS_NAME, ENVIRONMENT_NAME, timing.FILE_NAME):
      files.read_json_lines(directory / name)
    recorded = _manifest(directory)
  except ValueError as error:
    return str(error)
  if recorded is None or not (directory / RECORDS_NAME).exists():
    return None
  return _changed_records(directory, recorded) or _changed_beside(directory, recorded)


def _manifest(directory: pathlib.Path) -> dict[str, Any] | None:
  """The manifest, None where there is none; raises ValueError where it is not as `write` writes it."""
  found = manifests.read(directory)
  if found is not None:
    kinds = {name: type(value) for name, value in found.items()}
    if (
      kinds != {'records': list, 'arrays': dict, 'environment': dict}
      or type(found['environment'].get('size')) is not int
    ):
      raise ValueError(f'{manifests.NAME} is not of records')
  return found


def _changed_records(directory: pathlib.Path, recorded: dict[str, Any] | None) -> str | None:
  if recorded is None or manifests.entry(directory / RECORDS_NAME) in recorded['records']:
    return None
  return f'{RECORDS_NAME} has other bytes than were written, by their SHA-256'


def _changed_beside(directory: pathlib.Path, recorded: dict[str, Any]) -> str | None:
  """Who was killed before his records may have added lines to what they came from, and arrays to others."""
  environment, arrays = recorded['environment'], recorded['arrays']
  path, tuned = directory / ENVIRONMENT_NAME, directory / ARRAYS
  begin = path.read_bytes()[: environment['size']] if path.exists() else b''
  there = {name: path for name, path in files.tree(tuned).items() if name in arrays} if tuned.exists() else {}
  return manifests.fault({ENVIRONMENT_NAME: environment}, {ENVIRONMENT_NAME: manifests.entry_of(begin)}) or (
    manifests.fault(arrays, {name: manifests.entry(path) for name, path in there.items()})
  )


def set_aside_torn(path: pathlib.Path) -> list[str]:
  """Sets a file of JSON lines aside where it cannot be read, so that another is begun; a sentence that says so."""
  try:
    files.read_json_lines(path)
  except SettingsError:
    return [f'{path} is damaged; it was set aside as {files.set_aside(path, path.parent / files.ASIDE)}']
  return []


def set_aside_bad(directory: pathlib.Path) -> list[str]:
  """Sets aside all that is read together where some of it is not as it was written; a sentence that says so."""
  wrong = fault(directory)
  if not wrong:
    return []
  for name in _TOGETHER:
    if (directory / name).exists():
      files.set_aside(directory / name, directory / files.ASIDE)
  return [f'{directory}: {wrong}; all of it was set aside in {directory / files.ASIDE}, and is done again']
