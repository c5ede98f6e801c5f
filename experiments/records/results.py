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


def write(workdir: pathlib.Path, runs: Sequence[tuple[Any, list[Record]]], reporter: Reporter) -> None:
  """Merge records into those of a workdir, each of `runs` settings and their records; the caller holds the lock.

  What is on file stays, but for what is made again: a fit of a trial, or all records of a study at these settings.
  Settings that differ in a field name it in each of their records. A corrupt file is renamed.
  """
  begin(workdir, [settings for settings, _ in runs])
  points = _points(on_record(workdir, runs[0][0]))
  columns = list(dict.fromkeys(name for point in points.values() for name in point))
  rows, made_again = dict[str, Record](), set[str]()

  def add(row: Record) -> None:
    """Add a row unless one of the same fit is there."""
    fit = [row.get(name) for name in (*_FIT, *columns)]
    rows.setdefault(str(fit if _OF_TRIALS in row else row), row)

  for settings, records in runs:
    asking = lists.asking(settings)
    named = {name: getattr(settings, name) for name in ('experiment', 'scale', 'seed')}
    for record in records:
      add({_VERSION: SCHEMA_VERSION, **named, **points[asking], **record})
      made_again.add(asking)
  on_file = files.intact_json_lines(workdir / FILE_NAME, reporter)
  for row, asking in zip(on_file, _owners(on_file, points)):
    if _OF_TRIALS in row or asking not in made_again:
      add(row | points.get(asking, {}))
  files.write_json_lines(workdir / FILE_NAME, [*rows.values()])


def begin(workdir: pathlib.Path, grid: Sequence[Any]) -> None:
  """Put settings that are not on record first in `config.json`; the caller holds the lock of the workdir.

  Remove the partial files of killed runs. Raises as `on_record` does.
  """
  files.remove_partials(workdir)
  known = {lists.asking(settings) for settings in on_record(workdir, grid[0])}
  new = [dataclasses.asdict(settings) for settings in grid if lists.asking(settings) not in known]
  if new:
    every = [*new, *_on_file(workdir)]
    others = {_OTHERS: every[1:]} if every[1:] else {}
    content = {_VERSION: SCHEMA_VERSION, **every[0], **others}
    files.write_whole(workdir / CONFIG_NAME, json.dumps(content, indent=2) + '\n')


def asked_for(workdir: pathlib.Path, settings: Any) -> list[Record]:
  """The records of a workdir that these settings asked for, or if they are not on record, those of the latest."""
  points, records = _points(on_record(workdir, settings)), load(workdir)
  asking = lists.asking(settings)
  if asking not in points:
    asking = next(iter(points), '')
  return [record for record, owner in zip(records, _owners(records, points)) if owner == asking]


def _points(grid: Sequence[Any]) -> dict[str, Record]:
  """The point of each of several settings, as `lists.points` has it, by what they ask for."""
  return dict(zip(map(lists.asking, grid), lists.points(grid)))


def _owners(rows: Iterable[Record], points: dict[str, Record]) -> list[str]:
  """The settings that each row was made for, as a key of `points`; '' if its values are those of none.

  A row may lack columns that later settings brought, and fit several. It is then of the earliest, the last of `points`.
  """
  names = {name for point in points.values() for name in point}
  by_values, owners = dict[str, str](), []
  for row in rows:
    values = {name: row[name] for name in sorted(names) if name in row}
    # Rows are many, their values few.
    if str(values) not in by_values:
      fitting = (key for key, point in reversed(points.items()) if values.items() <= point.items())
      by_values[str(values)] = next(fitting, '')
    owners.append(by_values[str(values)])
  return owners


def planned(workdir: pathlib.Path, settings: Any) -> Any:
  """The settings with the plan that is on record for them: what was expected was written down first."""
  for recorded in on_record(workdir, settings):
    if hasattr(recorded, 'plan') and recorded.plan and lists.asking(recorded) == lists.asking(settings):
      return dataclasses.replace(settings, plan=recorded.plan)
  return settings


def on_record(workdir: pathlib.Path, like: Any) -> list[Any]:
  """All settings on record, of the experiment of the settings `like`; raises SettingsError if some cannot be read."""
  return read(workdir, configs(workdir), {like.experiment: type(like)})


def read(workdir: pathlib.Path, contents: Sequence[Record], classes: config_lib.Classes) -> list[Any]:
  """Settings on record in a folder, of one of the classes; raises SettingsError if some cannot be read."""
  try:
    return [config_lib.from_record(content, classes) for content in contents]
  except SettingsError as error:
    raise SettingsError(f'in {workdir / CONFIG_NAME}, {error}')


def others(workdir: pathlib.Path, grid: Sequence[Any]) -> list[Any]:
  """The settings on record that ask for other records than these do."""
  asked = {lists.asking(settings) for settings in grid}
  return [settings for settings in on_record(workdir, grid[0]) if lists.asking(settings) not in asked]


def config(workdir: pathlib.Path) -> Record | None:
  """The first of `configs`; None if there are none."""
  return next(iter(configs(workdir)), None)


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
  except FileNotFoundError:
    return []
  except (IsADirectoryError, ValueError):
    content = None
  others = content.pop(_OTHERS, []) if isinstance(content, dict) else []
  every: list[Any] = [content, *others] if isinstance(others, list) else [None]
  if not all(isinstance(one, dict) for one in every):
    raise files.Corrupt(f'{path} is damaged; valid are {valid}')
  version = every[0].pop(_VERSION, 1)
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


def check_shown(workdir: pathlib.Path, like: Any) -> None:
  """Raise SettingsError unless the folder that --workdir names is writable and has intact settings and records."""
  storage.check_writable(workdir, '--workdir')
  check_recorded(workdir, like)
  require(load(workdir), '--workdir', str(workdir), f'a folder with records of {like.experiment}')


def other_settings(workdir: pathlib.Path, grid: Sequence[Any]) -> str | None:
  """A sentence on settings on record in a writable folder that differ; raises as `check_recorded` does."""
  storage.check_writable(workdir, '--workdir')
  check_recorded(workdir, grid[0])
  before = others(workdir, grid)
  differing = [lists.text(point) for point in lists.points([*before, *grid])[: len(before)] if point]
  shown = 'results.jsonl has these too'
  return f'{workdir} holds records with other settings: {"; ".join(differing)}; {shown}' if differing else None


def values(configs: Sequence[Record]) -> dict[str, list[str]]:
  """The distinct values of each field but those of running, in words, by its dotted name."""
  words: dict[str, list[str]] = {}
  for content in configs:
    for name, value in content.items():
      word = json.dumps(value) if isinstance(value, tuple) else str(value)
      known = words.setdefault(name, [])
      if word not in known:
        known.append(word)
  return {name: some for name, some in words.items() if name.split('.')[0] not in lists.OF_RUNNING}


def load(workdir: pathlib.Path) -> list[Record]:
  """The records of a workdir, if any, but those of methods that are gone.

  Raises Corrupt if records are damaged, and SettingsError if they are of another version.
  """
  records = files.read_json_lines(workdir / FILE_NAME)
  for record in records:
    version = record.get(_VERSION, 0)
    require(version == SCHEMA_VERSION, f'the schema version of {workdir / FILE_NAME}', version, str(SCHEMA_VERSION))
  return [record for record in records if not gone.is_of_method(record)]
