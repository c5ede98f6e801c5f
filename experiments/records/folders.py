"""Records of a trial or a part, with what they came from and what was tuned beside, read only as they were written.

The manifest is written before the records and knows those before them too, so that a kill in between leaves records
that it knows. A folder of before there were manifests is read as it is.
"""

from collections.abc import Callable
import contextlib
import pathlib
from typing import Any

from experiments.records import environment, files, manifests, results
from experiments.records.results import ENVIRONMENT_NAME, Record
from experiments.runtime import distributed, timing
from experiments.settings.fields import SettingsError

RECORDS_NAME = 'records.jsonl'
ARRAYS = 'tuned'
# In the order in which they are set aside: after a kill in between, what is left is not as it was written either.
_TOGETHER = (ENVIRONMENT_NAME, ARRAYS, timing.FILE_NAME, RECORDS_NAME, manifests.NAME)

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
  manifests.write(directory, content, directory.name)
  files.write_whole(directory / RECORDS_NAME, text)


def read(directory: pathlib.Path) -> list[Record]:
  """The records; none where they, what they came from, or an array that was tuned, are not as they were written."""
  rows, recorded = _found(directory)
  with contextlib.suppress(OSError):
    return [] if rows and recorded and _changed_beside(directory, recorded) else rows
  return []


def read_unverified(directory: pathlib.Path) -> list[Record]:
  """The records; none where they are not as they were written, whatever became of what is beside them."""
  return _found(directory)[0]


def _found(directory: pathlib.Path) -> tuple[list[Record], dict[str, Any] | None]:
  """The records, none where they are not as they were written, and their manifest, None where there is none."""
  with contextlib.suppress(OSError, ValueError):
    data = files.read_bytes(directory / RECORDS_NAME)
    rows = files.rows_of(data)
    # After the records: what another process has written since then knows them too.
    recorded = _manifest(directory)
    if recorded is None or manifests.entry_of(data) in recorded['records']:
      return rows, recorded
  return [], None


def environments(directory: pathlib.Path) -> list[dict[str, Any]]:
  """What the records came from, a line for each addition; none where it cannot be read."""
  return readable(directory / ENVIRONMENT_NAME)


def readable(path: pathlib.Path) -> list[dict[str, Any]]:
  """The rows of a file of JSON lines; none where it cannot be read."""
  with contextlib.suppress(SettingsError):
    return files.read_json_lines(path)
  return []


def fault(directory: pathlib.Path) -> str | None:
  """What is not as it was written, in words that name the first; None: nothing, or nobody knows.

  Where there are no records a kill may have come before the first of them; where the manifest knows of several there
  were some.
  """
  try:
    files.read_json_lines(directory / RECORDS_NAME)
    files.read_json_lines(directory / ENVIRONMENT_NAME)
    recorded = _manifest(directory)
    if recorded is None:
      return None
    if not (directory / RECORDS_NAME).exists():
      return f'{RECORDS_NAME} is missing' if len(recorded['records']) > 1 else _lacking(directory, 0)
    changed = _changed_records(directory, recorded) or _changed_beside(directory, recorded)
    return changed or _lacking(directory, recorded['environment']['size'])
  except (OSError, ValueError) as error:
    return str(error)


def is_sealed(directory: pathlib.Path) -> bool:
  """Whether there is a manifest; without one, as a version before them left it, nobody knows of changes."""
  return (directory / manifests.NAME).exists()


def check_schema(workdir: pathlib.Path) -> None:
  """Raises SettingsError where a workdir holds records, finished or in parts, that this version cannot read.

  Of those that are not as they were written nothing is known: a run sets them aside.
  """
  records = results.load(workdir)
  for pattern in (f'trials/*/{RECORDS_NAME}', f'parts/*/*/{RECORDS_NAME}'):
    records += [record for path in workdir.glob(pattern) for record in read_unverified(path.parent)]
  # One that is no number may be no key of a set either.
  versions = [record.get('schema_version', 0) for record in records]
  for version in (version for version in versions if version != results.SCHEMA_VERSION):
    valid = f'one without records or with records of schema {results.SCHEMA_VERSION}'
    raise SettingsError(f'--workdir is {str(workdir)!r}, whose records have schema {version}; valid is {valid}')


def _manifest(directory: pathlib.Path) -> dict[str, Any] | None:
  """The manifest, None where there is none; raises ValueError where it is not as `write` writes it."""
  found = manifests.read(directory, directory.name)
  if found is not None:
    kinds = {name: type(value) for name, value in found.items()}
    if (
      kinds != {'records': list, 'arrays': dict, 'environment': dict}
      or type(found['environment'].get('size')) is not int
    ):
      raise ValueError(f'{manifests.NAME} is not of records')
  return found


def _changed_records(directory: pathlib.Path, recorded: dict[str, Any]) -> str | None:
  if manifests.entry(directory / RECORDS_NAME) in recorded['records']:
    return None
  return f'{RECORDS_NAME} has other bytes than were written, by their SHA-256'


def _changed_beside(directory: pathlib.Path, recorded: dict[str, Any]) -> str | None:
  """A process that was killed before its records may have added lines to what they came from, and arrays to others."""
  environment, arrays = recorded['environment'], recorded['arrays']
  path, tuned = directory / ENVIRONMENT_NAME, directory / ARRAYS
  begin = path.read_bytes()[: environment['size']] if path.exists() else b''
  there = {name: path for name, path in files.tree(tuned).items() if name in arrays} if tuned.exists() else {}
  return manifests.fault({ENVIRONMENT_NAME: environment}, {ENVIRONMENT_NAME: manifests.entry_of(begin)}) or (
    manifests.fault(arrays, {name: manifests.entry(path) for name, path in there.items()})
  )


def is_torn(path: pathlib.Path, is_whole: Callable[[dict[str, Any]], bool] = lambda row: True) -> bool:
  """Whether a file of JSON lines cannot be read, or has one that is not whole."""
  try:
    return not all(map(is_whole, files.read_json_lines(path)))
  except SettingsError:
    return True


def set_aside_torn(path: pathlib.Path, is_whole: Callable[[dict[str, Any]], bool] = lambda row: True) -> list[str]:
  """Sets a file of JSON lines aside where it is torn, so that another is begun; a sentence that says so."""
  if is_torn(path, is_whole):
    return [f'{path} is damaged; it was set aside as {files.set_aside(path, path.parent / files.ASIDE)}']
  return []


def _lacking(directory: pathlib.Path, size: int) -> str | None:
  """Which of the lines that were added to so many bytes of an environment cannot be compared, in words."""
  path = directory / ENVIRONMENT_NAME
  added = files.rows_of(path.read_bytes()[size:]) if path.exists() else []
  return None if all(map(environment.is_whole, added)) else f'{ENVIRONMENT_NAME} has a line that lacks its fields'


def set_aside_bad(directory: pathlib.Path) -> list[str]:
  """Sets aside all that is read together where some of it is not as it was written; a sentence that says so."""
  wrong = fault(directory)
  if not wrong:
    return []
  for name in _TOGETHER:
    if (directory / name).exists():
      files.set_aside(directory / name, directory / files.ASIDE)
  return [f'{directory}: {wrong}; all of it was set aside in {directory / files.ASIDE}, and is done again']
