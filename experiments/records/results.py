"""The merged records of a workdir, `results.jsonl`, beside the settings that asked for them, `config.json`.

Settings stand there from the latest to the first; those on record keep their place and their plan.
"""

from collections.abc import Iterable, Sequence
import dataclasses
import json
import pathlib
from typing import Any

from experiments.records import files
from experiments.runtime import storage
from experiments.runtime.progress import Reporter
from experiments.settings import config as config_lib, gone, lists
from experiments.settings.fields import flat, require, SettingsError
from experiments.settings.grid import Point

Record = dict[str, Any]
# Settings, each with their records.
Runs = list[tuple[Any, list[Record]]]

FILE_NAME = 'results.jsonl'
CONFIG_NAME = 'config.json'

# Increased when the fields or paths of records change, so that no old record is misread.
SCHEMA_VERSION = 2
_VERSION = 'schema_version'
# A field of each record of a trial, and those that tell its fits apart at one point.
_OF_TRIALS = 'trial_id'
_FIT = (*Point._fields, 'trial', 'task', 'model', 'method', 'step')
# The field of the first settings with the others.
_OTHERS = 'others'


def write(workdir: pathlib.Path, runs: Runs, reporter: Reporter) -> None:
  """Merge records into those of a workdir; the caller holds its lock.

  What is on file stays, but for what is made again: a fit of a trial, or all records of a study at these settings.
  Settings that differ in a field name it in each of their records. A corrupt file is renamed.
  """
  begin(workdir, [settings for settings, _ in runs])
  points = _points(workdir, runs[0][0])
  rows = list[Record]()
  for settings, records in runs:
    named = {name: getattr(settings, name) for name in ('experiment', 'scale', 'seed')}
    of_all = {_VERSION: SCHEMA_VERSION, **named, **points[lists.asking(settings)]}
    rows += [{**of_all, **record} for record in records]
  made_again = {lists.asking(settings) for settings, records in runs if records}
  on_file = files.intact_json_lines(workdir / FILE_NAME, reporter)
  for row, asking in zip(on_file, _owners(on_file, points)):
    if _OF_TRIALS in row or asking not in made_again:
      rows.append(row | points.get(asking, {}))
  columns = sorted({name for point in points.values() for name in point})
  first_of = dict[str, Record]()
  for row in rows:
    fit = [row.get(name) for name in (*_FIT, *columns)]
    first_of.setdefault(str(fit if _OF_TRIALS in row else row), row)
  files.write_json_lines(workdir / FILE_NAME, [*first_of.values()])


def begin(workdir: pathlib.Path, grid: Sequence[Any]) -> None:
  """Put settings that are not on record first in `config.json`; the caller holds the lock of the workdir.

  Remove the partial files of killed runs. Raises as `on_record` does.
  """
  files.remove_partials(workdir)
  known = on_record(workdir, grid[0])
  new = [dataclasses.asdict(settings) for settings in grid if lists.asking(settings) not in known]
  if new:
    first, *others = new + _on_file(workdir)
    content = {_VERSION: SCHEMA_VERSION, **first, **({_OTHERS: others} if others else {})}
    files.write_whole(workdir / CONFIG_NAME, json.dumps(content, indent=2) + '\n')


def asked_for(workdir: pathlib.Path, settings: Any) -> list[Record]:
  """The records of a workdir that these settings asked for, or if they are not on record, those of the latest."""
  points, records = _points(workdir, settings), load(workdir)
  asking = lists.asking(settings)
  if asking not in points:
    asking = next(iter(points), '')
  return [record for record, owner in zip(records, _owners(records, points)) if owner == asking]


def _points(workdir: pathlib.Path, like: Any) -> dict[str, Record]:
  """The point of each of the settings on record, as `lists.points` has it, by what they ask for."""
  grid = on_record(workdir, like)
  return dict(zip(grid, lists.points([*grid.values()])))


def _owners(rows: Iterable[Record], points: dict[str, Record]) -> list[str]:
  """The settings that each row was made for, as a key of `points`; '' if its values are those of none.

  A row may lack columns that later settings brought, and fit several. It is then of the earliest, the last of `points`.
  """
  names = {name for point in points.values() for name in point}
  owners = []
  for row in rows:
    values = {name: row[name] for name in names.intersection(row)}
    fitting = (asking for asking, point in reversed(points.items()) if values.items() <= point.items())
    owners.append(next(fitting, ''))
  return owners


def planned(workdir: pathlib.Path, settings: Any) -> Any:
  """The settings with the plan that is on record for them: what was expected was written down first."""
  plan = getattr(on_record(workdir, settings).get(lists.asking(settings)), 'plan', ())
  return dataclasses.replace(settings, plan=plan) if plan else settings


def on_record(workdir: pathlib.Path, like: Any) -> dict[str, Any]:
  """All settings on record by what they ask for, of the experiment of the settings `like`; raises as `read` does."""
  every = read(workdir, {like.experiment: type(like)})
  return {lists.asking(settings): settings for settings in every}


def read(workdir: pathlib.Path, classes: config_lib.Classes) -> list[Any]:
  """Settings on record in a folder, of one of the classes; raises SettingsError if some cannot be read."""
  contents = configs(workdir)
  try:
    return [config_lib.from_record(content, classes) for content in contents]
  except SettingsError as error:
    raise SettingsError(f'in {workdir / CONFIG_NAME}, {error}')


def configs(workdir: pathlib.Path) -> list[Record]:
  """The settings on record by the dotted names of their fields, without fields and methods that are gone.

  Raises Corrupt if they cannot be parsed or are no settings, and SettingsError if they are of another version.
  """
  return [gone.settings_without(flat(one)) for one in _on_file(workdir)]


def _on_file(workdir: pathlib.Path) -> list[Record]:
  path = workdir / CONFIG_NAME
  valid = f'JSON settings of schema version {SCHEMA_VERSION}, or no file'
  try:
    content = files.read_json(path)
    every = [content, *content.pop(_OTHERS, [])]
    version, *_ = [one.pop(_VERSION, 1) for one in every]
  except FileNotFoundError:
    return []
  except (IsADirectoryError, AttributeError, TypeError, ValueError):
    raise files.Corrupt(f'{path} is damaged; valid are {valid}')
  require(version == SCHEMA_VERSION, f'the schema version of {path}', version, valid)
  return every


def check_recorded(workdir: pathlib.Path, like: Any) -> None:
  """Raise SettingsError if a folder has settings or records of another experiment or version than `like`.

  Settings on record vouch for the records beside them: what is corrupt there, a merge makes again.
  """
  with storage.usable(workdir, '--workdir'):
    if not on_record(workdir, like):
      is_of_it = all(record.get('experiment') == like.experiment for record in load(workdir))
      require(is_of_it, '--workdir', str(workdir), f'a folder with records of {like.experiment} only')


def other_settings(workdir: pathlib.Path, grid: Sequence[Any]) -> str | None:
  """A sentence on settings on record in a writable folder that differ; raises as `check_recorded` does."""
  storage.check_writable(workdir, '--workdir')
  check_recorded(workdir, grid[0])
  asked = {lists.asking(settings): settings for settings in grid}
  every = on_record(workdir, grid[0]) | asked
  points = zip(every, lists.points([*every.values()]))
  others = '; '.join(lists.text(point) for asking, point in points if point and asking not in asked)
  return f'{workdir} holds records with other settings: {others}; results.jsonl has these too' if others else None


def values(configs: Sequence[Record]) -> dict[str, list[str]]:
  """The distinct values of each field but those of running, in words, by its dotted name."""
  words: dict[str, dict[str, None]] = {}
  for content in configs:
    for name, value in content.items():
      if name.split('.')[0] not in lists.OF_RUNNING:
        word = json.dumps(value) if isinstance(value, tuple) else str(value)
        words.setdefault(name, {})[word] = None
  return {name: [*some] for name, some in words.items()}


def load(workdir: pathlib.Path) -> list[Record]:
  """The records of a workdir, if any, but those of methods that are gone.

  Raises Corrupt if records are damaged, and SettingsError if they are of another version.
  """
  records = files.read_json_lines(workdir / FILE_NAME)
  for record in records:
    version = record.get(_VERSION, 0)
    require(version == SCHEMA_VERSION, f'the schema version of {workdir / FILE_NAME}', version, str(SCHEMA_VERSION))
  return [record for record in records if not gone.is_of_method(record)]
