"""The merged records of a workdir, `results.jsonl`, beside the settings that asked for them."""

import dataclasses
import json
import pathlib
from typing import Any

from experiments.records import files
from experiments.runtime import storage
from experiments.settings.fields import require

Record = dict[str, Any]

FILE_NAME = 'results.jsonl'
CONFIG_NAME = 'config.json'

# Increased when the fields or paths of records change, so that no old record is misread.
SCHEMA_VERSION = 2
_VERSION = 'schema_version'


def write(workdir: pathlib.Path, settings: Any, records: list[Record]) -> None:
  """Replace the records of a workdir, and the settings beside them.

  If the settings have changed, a kill in between leaves no records, rather than records beside the wrong settings.
  """
  path, config = workdir / CONFIG_NAME, _config(settings)
  if not files.has(path, config):
    files.remove(workdir / FILE_NAME)
    files.write_whole(path, config)
  files.write_json_lines(workdir / FILE_NAME, rows(settings, records))


def begin(workdir: pathlib.Path, settings: Any) -> None:
  """Write the settings of a run that begins, if there are none, so that a later run can report changed ones.

  Remove the partial files of killed runs.
  """
  files.remove_partials(workdir)
  if not any((workdir / name).exists() for name in (CONFIG_NAME, FILE_NAME)):
    files.write_whole(workdir / CONFIG_NAME, _config(settings))


def _config(settings: Any) -> str:
  return json.dumps({_VERSION: SCHEMA_VERSION, **dataclasses.asdict(settings)}, indent=2) + '\n'


def config(workdir: pathlib.Path) -> dict[str, Any] | None:
  """The settings on record, None if there are none.

  Raises Corrupt if they cannot be parsed, or a directory stands in their place, and SettingsError if they are of
  another version.
  """
  try:
    content = files.read_json(workdir / CONFIG_NAME)
  except FileNotFoundError:
    return None
  except (IsADirectoryError, ValueError):
    content = None
  path, valid = str(workdir / CONFIG_NAME), f'JSON settings of schema version {SCHEMA_VERSION}, or no file'
  if not isinstance(content, dict):
    raise files.Corrupt(f'{path} cannot be parsed; valid are {valid}')
  version = content.pop(_VERSION, 1)
  require(version == SCHEMA_VERSION, f'the schema version of {path}', version, valid)
  return content


def recorded(workdir: pathlib.Path, experiment: str) -> dict[str, Any] | None:
  """The settings on record in the folder that --workdir names, None if there are none.

  Raises SettingsError if something is damaged or of another experiment or version.
  """
  with storage.usable(workdir, '--workdir'):
    content = config(workdir)
    _check_experiment(workdir, experiment, [content] if content else load(workdir))
  return content


def check_shown(workdir: pathlib.Path, experiment: str) -> None:
  """Raise SettingsError unless the folder that --workdir names is writable and has intact records."""
  storage.check_writable(workdir, '--workdir')
  # No record is of no experiment.
  _check_experiment(workdir, experiment, load(workdir) or [{}])


def _check_experiment(workdir: pathlib.Path, experiment: str, rows: list[dict[str, Any]]) -> None:
  is_of_it = all(row.get('experiment') == experiment for row in rows)
  require(is_of_it, '--workdir', str(workdir), f'a folder with records of {experiment} only')


def other_settings(workdir: pathlib.Path, settings: Any) -> str | None:
  """A sentence on how the settings on record in a writable folder differ; raises SettingsError as `recorded` does."""
  storage.check_writable(workdir, '--workdir')
  differing = ', '.join(changed(recorded(workdir, settings.experiment), settings))
  return f'{workdir} holds records with other settings: {differing}; new records are added' if differing else None


# Settings that decide no record.
OF_RUNNING = ('compilation_cache', 'debug_nans', 'distributed', 'figure', 'time_budget')


def changed(before: dict[str, Any] | None, settings: Any) -> list[str]:
  """Differences of the settings on record from these, such as 'seed 0 (here 1)'."""
  # Imported here, since it takes longer than `--list` and `--help`.
  from flax.traverse_util import flatten_dict

  # As the file has them, with lists for tuples.
  current = json.loads(json.dumps(dataclasses.asdict(settings)))
  deciding = {name: value for name, value in (before or {}).items() if name not in OF_RUNNING}
  return differences(flatten_dict(deciding, sep='.'), flatten_dict(current, sep='.'))


def differences(recorded: dict[str, Any], current: dict[str, Any]) -> list[str]:
  """Differences in fields that both have, such as 'seed 0 (here 1)'."""
  both = [name for name in recorded if name in current]
  return [f'{name} {recorded[name]} (here {current[name]})' for name in both if recorded[name] != current[name]]


def rows(settings: Any, records: list[Record]) -> list[Record]:
  """The records with their schema version, experiment, scale and seed."""
  asked_for = {name: getattr(settings, name) for name in ('experiment', 'scale', 'seed')}
  return [{_VERSION: SCHEMA_VERSION, **asked_for, **record} for record in records]


def load(workdir: pathlib.Path) -> list[Record]:
  """The records of a workdir, if any. Raises SettingsError if they are damaged, or of another version."""
  records = files.read_json_lines(workdir / FILE_NAME)
  for version in (record.get(_VERSION, 0) for record in records):
    require(version == SCHEMA_VERSION, f'the schema version of {workdir / FILE_NAME}', version, str(SCHEMA_VERSION))
  return records
