"""The merged records of a workdir, `results.jsonl`, beside the settings that asked for them."""

import dataclasses
import json
import pathlib
from typing import Any

from experiments.records import files, loading
from experiments.settings.fields import require, SettingsError
from experiments.settings.grid import Point

Record = dict[str, Any]

FILE_NAME = 'results.jsonl'
CONFIG_NAME = 'config.json'

# Raised when the fields of records, or where they lie, change, so that none is read as what it is not.
SCHEMA_VERSION = 2
_VERSION = 'schema_version'


def write(workdir: pathlib.Path, settings: Any, records: list[Record]) -> None:
  """Replaces the records of a workdir, and the settings beside them.

  Where the settings are others a kill in between leaves no records, rather than some beside what did not ask for them.
  """
  path, config = workdir / CONFIG_NAME, _config(settings)
  if not path.exists() or path.read_bytes() != config.encode():
    files.remove(workdir / FILE_NAME)
    files.write_whole(path, config)
  files.write_json_lines(workdir / FILE_NAME, rows(settings, records))


def begin(workdir: pathlib.Path, settings: Any) -> None:
  """Leaves the settings of a run that begins where there are none, so that a run of others can say so after a kill."""
  if not any((workdir / name).exists() for name in (CONFIG_NAME, FILE_NAME)):
    files.write_whole(workdir / CONFIG_NAME, _config(settings))


def _config(settings: Any) -> str:
  return json.dumps({_VERSION: SCHEMA_VERSION, **dataclasses.asdict(settings)}, indent=2) + '\n'


def config(workdir: pathlib.Path) -> dict[str, Any] | None:
  """The settings on record, None where there are none. Raises Corrupt where they cannot be parsed, and ValueError where
  they are of another version."""
  try:
    content = loading.json_value(workdir / CONFIG_NAME)
  except FileNotFoundError:
    return None
  except ValueError:
    content = None
  if not isinstance(content, dict):
    raise files.Corrupt(f'{CONFIG_NAME} cannot be parsed')
  version = content.pop(_VERSION, 1)
  if version != SCHEMA_VERSION:
    raise ValueError(f'{CONFIG_NAME} has schema {version}')
  return content


def check(workdir: pathlib.Path) -> dict[str, Any] | None:
  """`config`, with SettingsError for a workdir whose settings or records this version cannot read."""
  valid = f'one without records or with records of schema {SCHEMA_VERSION}'
  try:
    return config(workdir)
  except ValueError as error:
    raise SettingsError(f'--workdir is {str(workdir)!r}; valid is {valid} ({error})')


def rename_corrupt(workdir: pathlib.Path) -> str:
  """Renames settings that cannot be parsed, with a sentence; the records beside them are to be merged again."""
  try:
    config(workdir)
  except files.Corrupt as error:
    where = files.rename_corrupt(workdir / CONFIG_NAME)
    files.remove(workdir / FILE_NAME)
    return f'{workdir}: {error}: renamed to {where.name}; records are merged again'
  except ValueError:
    pass  # Of another version, which is refused later.
  return ''


# What decides no record.
OF_RUNNING = ('compilation_cache', 'debug_nans', 'distributed', 'figure', 'tensorboard', 'time_budget')


def changed(before: dict[str, Any] | None, settings: Any) -> list[str]:
  """Where the settings on record are others than these, such as 'seed 0 (here 1)'."""
  there, now = _leaves(before or {}), _leaves(json.loads(json.dumps(dataclasses.asdict(settings))))
  both = [name for name in there if name in now and name.partition('.')[0] not in OF_RUNNING]
  return [f'{name} {there[name]} (here {now[name]})' for name in both if there[name] != now[name]]


def _leaves(value: Any, name: str = '') -> dict[str, Any]:
  """Every field that is no group, by its dotted name."""
  if not isinstance(value, dict):
    return {name: value}
  prefix = f'{name}.' if name else ''
  return {leaf: found for key, entry in value.items() for leaf, found in _leaves(entry, prefix + key).items()}


def rows(settings: Any, records: list[Record]) -> list[Record]:
  """The records with what was asked for."""
  asked_for = {name: getattr(settings, name) for name in ('experiment', 'scale', 'seed')}
  return [{_VERSION: SCHEMA_VERSION, **asked_for, **record} for record in records]


def load(workdir: pathlib.Path) -> list[Record]:
  """The records of a workdir, none where there are none. Raises SettingsError where they are damaged, or of another
  version."""
  records = files.read_json_lines(workdir / FILE_NAME)
  for version in (record.get(_VERSION, 0) for record in records):
    require(version == SCHEMA_VERSION, f'the schema of {workdir / FILE_NAME}', version, str(SCHEMA_VERSION))
  return records


def point_of(record: Record) -> Point:
  """The distribution of a record."""
  return Point(*(record[name] for name in Point._fields))
