"""The merged records of a workdir, `results.jsonl`, beside the settings that asked for them."""

from collections.abc import Sequence
import dataclasses
import json
import pathlib
from typing import Any

from experiments.records import files
from experiments.runtime import storage
from experiments.settings import lists
from experiments.settings.fields import require

Record = dict[str, Any]

FILE_NAME = 'results.jsonl'
CONFIG_NAME = 'config.json'

# Increased when the fields or paths of records change, so that no old record is misread.
SCHEMA_VERSION = 2
_VERSION = 'schema_version'
# The field of CONFIG_NAME with the differences of further settings from the first.
_OTHERS = 'others'


def write(workdir: pathlib.Path, settings: Any, records: list[Record]) -> None:
  """Replace the records of a workdir, and the settings beside them.

  If the settings have changed, a kill in between leaves no records, rather than records beside the wrong settings.
  """
  write_grid(workdir, [(settings, records)])


def write_grid(workdir: pathlib.Path, runs: Sequence[tuple[Any, list[Record]]]) -> None:
  """Replace the records of a workdir by those of several settings, as `write` does.

  A record has a field for each field in which the settings differ.
  """
  grid, path = [settings for settings, _ in runs], workdir / CONFIG_NAME
  content = _config(grid)
  if not files.has(path, content):
    files.remove(workdir / FILE_NAME)
    files.write_whole(path, content)
  points = lists.points(grid)
  written = [row for (settings, some), point in zip(runs, points) for row in rows(settings, some, point)]
  files.write_json_lines(workdir / FILE_NAME, written)


def begin(workdir: pathlib.Path, settings: Any) -> None:
  """Write the settings of a run that begins, if there are none, so that a later run can report changed ones.

  Remove the partial files of killed runs.
  """
  files.remove_partials(workdir)
  if not any((workdir / name).exists() for name in (CONFIG_NAME, FILE_NAME)):
    files.write_whole(workdir / CONFIG_NAME, _config([settings]))


def begin_grid(workdir: pathlib.Path, grid: Sequence[Any]) -> None:
  """Write the settings of a run that begins before the others on record; remove partial files as `begin` does."""
  files.remove_partials(workdir)
  content = _config(grid, earlier(workdir, grid))
  if not files.has(workdir / CONFIG_NAME, content):
    files.write_whole(workdir / CONFIG_NAME, content)


def _config(grid: Sequence[Any], more: Sequence[Record] = ()) -> str:
  """The first settings whole, and the others, and `more` of them, by their differences from these."""
  first, *others = list[Record]([*map(_as_json, grid), *more])
  content, flat = {_VERSION: SCHEMA_VERSION, **first}, _flat(first)
  if others:
    content[_OTHERS] = [_differing(flat, _flat(other)) for other in others]
  return json.dumps(content, indent=2) + '\n'


def _differing(first: Record, other: Record) -> Record:
  """The flat fields of `other` that differ; null for those that it lacks, as settings of an older version may."""
  return {name: other.get(name) for name in {**first, **other} if first.get(name, _OTHERS) != other.get(name, _OTHERS)}


def _as_json(settings: Any) -> Record:
  """The settings as their file has them, with lists for tuples."""
  return json.loads(json.dumps(dataclasses.asdict(settings)))


def _flat(config: Record) -> Record:
  """The fields of a config by their dotted names."""
  # Imported here, since it takes longer than `--list` and `--help`.
  from flax.traverse_util import flatten_dict

  return flatten_dict(config, sep='.')


def configs(workdir: pathlib.Path) -> list[Record]:
  """All settings on record, `config` first; raises as it does."""
  from flax.traverse_util import unflatten_dict

  first, others = _read(workdir)
  return [first, *(unflatten_dict({**_flat(first), **other}, sep='.') for other in others)] if first else []


def earlier(workdir: pathlib.Path, grid: Sequence[Any]) -> list[Record]:
  """The settings on record that ask for other records than these do."""
  asked = [_asking(_as_json(settings)) for settings in grid]
  return [content for content in configs(workdir) if _asking(content) not in asked]


def _asking(config: Record) -> Record:
  """The fields that decide which records a config asks for."""
  return {name: value for name, value in config.items() if name not in (*OF_RUNNING, 'figures', 'pretrained')}


def config(workdir: pathlib.Path) -> dict[str, Any] | None:
  """The settings on record, of several the first; None if there are none.

  Raises Corrupt if they cannot be parsed, or a directory stands in their place, and SettingsError if they are of
  another version.
  """
  return _read(workdir)[0]


def _read(workdir: pathlib.Path) -> tuple[Record | None, list[Record]]:
  """The first settings on record and the differences of the others from these."""
  try:
    content = files.read_json(workdir / CONFIG_NAME)
  except FileNotFoundError:
    return None, []
  except (IsADirectoryError, ValueError):
    content = None
  path, valid = str(workdir / CONFIG_NAME), f'JSON settings of schema version {SCHEMA_VERSION}, or no file'
  if not isinstance(content, dict):
    raise files.Corrupt(f'{path} cannot be parsed; valid are {valid}')
  version = content.pop(_VERSION, 1)
  require(version == SCHEMA_VERSION, f'the schema version of {path}', version, valid)
  return content, content.pop(_OTHERS, [])


def check_recorded(workdir: pathlib.Path, experiment: str) -> dict[str, Any] | None:
  """Raise SettingsError if the folder of --workdir has damaged records, or some of another experiment or version.

  Returns the settings on record, None if there are none.
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


def other_settings(workdir: pathlib.Path, grid: Sequence[Any], is_grid: bool = False) -> str | None:
  """A sentence on how settings on record in a writable folder differ; raises as `check_recorded` does.

  A grid of trials shows the records of all of them.
  """
  storage.check_writable(workdir, '--workdir')
  check_recorded(workdir, grid[0].experiment)
  differing = ', '.join(changed(earlier(workdir, grid), grid))
  shown = 'table, figures and results.jsonl show these too' if is_grid else 'new records are added'
  return f'{workdir} holds records with other settings: {differing}; {shown}' if differing else None


# Settings that decide no record.
OF_RUNNING = ('compilation_cache', 'debug_nans', 'distributed', 'figure', 'time_budget')


def changed(before: Sequence[Record], grid: Sequence[Any]) -> list[str]:
  """Differences of settings on record from these, such as 'seed 0, 1 (here 2)'."""
  recorded, current = _values(before), _values([*map(_as_json, grid)])
  return differences(
    {name: values for name, values in recorded.items() if name.split('.')[0] not in OF_RUNNING}, current
  )


def _values(configs: Sequence[Record]) -> dict[str, str]:
  """The distinct values of each field in words, by its dotted name."""
  values = dict[str, dict[str, None]]()
  for name, value in (item for content in configs for item in _flat(content).items()):
    values.setdefault(name, {})[str(value)] = None
  return {name: ', '.join(texts) for name, texts in values.items()}


def differences(recorded: dict[str, Any], current: dict[str, Any]) -> list[str]:
  """Differences in fields that both have, such as 'seed 0 (here 1)'."""
  both = [name for name in recorded if name in current]
  return [f'{name} {recorded[name]} (here {current[name]})' for name in both if recorded[name] != current[name]]


def rows(settings: Any, records: list[Record], point: Record | None = None) -> list[Record]:
  """The records with their schema version, experiment, scale, seed, and what else tells them from others."""
  asked_for = {name: getattr(settings, name) for name in ('experiment', 'scale', 'seed')}
  asked_for |= {lists.column(name): value for name, value in (point or {}).items()}
  return [{_VERSION: SCHEMA_VERSION, **asked_for, **record} for record in records]


def load(workdir: pathlib.Path) -> list[Record]:
  """The records of a workdir, if any. Raises SettingsError if they are damaged, or of another version."""
  records = files.read_json_lines(workdir / FILE_NAME)
  for version in (record.get(_VERSION, 0) for record in records):
    require(version == SCHEMA_VERSION, f'the schema version of {workdir / FILE_NAME}', version, str(SCHEMA_VERSION))
  return records
