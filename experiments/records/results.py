"""The records of a workdir, written together with their settings and environments, and read back as written."""

import dataclasses
import json
import pathlib
from typing import Any

from experiments.records import files, loading, manifests
from experiments.records.environment import Environment
from experiments.runtime import distributed, locks
from experiments.runtime.progress import Reporter
from experiments.settings.fields import require, SettingsError
from experiments.settings.grid import Point

Record = dict[str, Any]

FILE_NAME = 'results.jsonl'
ENVIRONMENT_NAME = 'environment.jsonl'
CONFIG_NAME = 'config.json'
# What is written together, with a manifest beside it.
_TOGETHER = (CONFIG_NAME, ENVIRONMENT_NAME, FILE_NAME)

# Raised when the fields of records change, so that none is read as what it is not.
SCHEMA_VERSION = 1


def write(workdir: pathlib.Path, settings: Any, records: list[Record], environments: list[Environment]) -> None:
  """Replaces the records of a workdir, with the settings that ask for them and what they came from beside them.

  A kill in between leaves no records, rather than some beside what they did not come from. Where all that is beside
  those of before stays, as when trials are added, there are records at every moment.
  """
  path, config = workdir / CONFIG_NAME, _config(settings)
  stays = path.exists() and path.read_bytes() == config.encode()
  if not stays or not _lines(files.read_json_lines(workdir / ENVIRONMENT_NAME)) <= _lines(environments):
    files.remove(workdir / FILE_NAME)
  files.remove(workdir / manifests.NAME)
  files.write_whole(path, config)
  files.write_json_lines(workdir / ENVIRONMENT_NAME, environments)
  rewrite(workdir, settings, records)


def begin(workdir: pathlib.Path, settings: Any, reporter: Reporter) -> None:
  """Leaves the settings of a run that begins where there are none, so that a run of others can say so after a kill.

  A process that writes records meanwhile leaves its own.
  """
  is_new = lambda: not any((workdir / name).exists() for name in (CONFIG_NAME, FILE_NAME))
  if distributed.broadcast_from_process_0(is_new):
    with locks.held(workdir, 'the merging of records', reporter, waits=False) as is_held:
      if is_held and distributed.broadcast_from_process_0(is_new):
        files.write_whole(workdir / CONFIG_NAME, _config(settings))


def _config(settings: Any) -> str:
  return json.dumps(dataclasses.asdict(settings), indent=2) + '\n'


# What decides no record.
_OF_RUNNING = ('compilation_cache', 'distributed', 'figure', 'tensorboard', 'time_budget')


def changed(workdir: pathlib.Path, settings: Any) -> list[str]:
  """Where the settings in a workdir are others than these, such as 'seed 0 (here 1)'."""
  try:
    before, now = _leaves(loading.json_value(workdir / CONFIG_NAME)), _leaves(json.loads(_config(settings)))
  except (OSError, ValueError, RecursionError):
    return []
  both = [name for name in before if name in now and name.partition('.')[0] not in _OF_RUNNING]
  return [f'{name} {before[name]} (here {now[name]})' for name in both if before[name] != now[name]]


def _leaves(value: Any, name: str = '') -> dict[str, Any]:
  """Every field that is no group, by its dotted name."""
  if not isinstance(value, dict):
    return {name: value}
  prefix = f'{name}.' if name else ''
  return {leaf: found for key, entry in value.items() for leaf, found in _leaves(entry, prefix + key).items()}


def _lines(rows: list[dict[str, Any]]) -> set[str]:
  return {json.dumps(row) for row in rows}


def rewrite(workdir: pathlib.Path, settings: Any, records: list[Record]) -> None:
  """Replaces the records alone, for what is measured bit by bit in one environment: a kill leaves the last ones."""
  if not distributed.is_writer():
    return
  files.remove(workdir / manifests.NAME)
  files.write_json_lines(workdir / FILE_NAME, rows(settings, records))
  manifests.write(workdir, _entries(workdir))


def _entries(workdir: pathlib.Path) -> dict[str, manifests.Entry]:
  return {name: manifests.entry(workdir / name) for name in _TOGETHER if (workdir / name).exists()}


def rows(settings: Any, records: list[Record]) -> list[Record]:
  """The records with what was asked for."""
  asked_for = {name: getattr(settings, name) for name in ('experiment', 'scale', 'seed')}
  return [{'schema_version': SCHEMA_VERSION, **asked_for, **record} for record in records]


def load(workdir: pathlib.Path) -> list[Record]:
  """The records of a workdir. Raises SettingsError where they, or what stands beside them, are not as written."""
  records, wrong = files.read_json_lines(workdir / FILE_NAME), _fault(workdir)
  valid = f'one whose files are as they were written ({wrong}); a run sets them aside and writes them again'
  require(wrong is None, 'the directory of records', str(workdir), valid)
  return records


def _fault(workdir: pathlib.Path) -> str | None:
  """What is not as it was written, in words; None: nothing, or nobody knows, as while they are written again."""
  try:
    recorded = manifests.read(workdir)
    found = _entries(workdir) if recorded else {}
    return manifests.fault(recorded, found) if recorded and manifests.read(workdir) == recorded else None
  except ValueError as error:
    return str(error)


def set_aside_bad(workdir: pathlib.Path) -> list[str]:
  """Sets the records and what stands beside them aside where they are not as written; a sentence that says so."""
  try:
    load(workdir)
  except SettingsError as error:
    for name in (*_TOGETHER, manifests.NAME):
      if (workdir / name).exists():
        files.set_aside(workdir / name, workdir / files.ASIDE)
    return [f'{error}: they were set aside in {workdir / files.ASIDE}']
  return []


def point_of(record: Record) -> Point:
  """The distribution of a record."""
  return Point(*(record[name] for name in Point._fields))
