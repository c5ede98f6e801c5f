"""The merged records of a workdir, `results.jsonl`, beside the settings that asked for them."""

import collections
from collections.abc import Sequence
import contextlib
import dataclasses
import itertools
import json
import pathlib
from typing import Any, NamedTuple

from experiments.records import files
from experiments.runtime import storage
from experiments.settings import config as config_lib, gone, lists
from experiments.settings.fields import require, SettingsError
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
# What all settings on record name.
_NAMES = 'experiment', 'scale'
# The field of the first settings with the others.
_OTHERS = 'others'


def write(workdir: pathlib.Path, runs: Sequence[tuple[Any, list[Record]]]) -> None:
  """Merge records into those of a workdir, each of `runs` settings and their records; the caller holds the lock.

  What is on file stays, but for what is made again: a fit of a trial, or all records of a study at these settings.
  Settings that differ in a field name it in each of their records.
  """
  begin(workdir, [settings for settings, _ in runs])
  like = runs[0][0]
  contents = _whole(configs(workdir), like)
  points = _points(contents, like)
  asked = {_asking(content) for content, (_, records) in zip(contents, runs) if records}
  columns, rows = dict.fromkeys(itertools.chain(*points)), dict[str, Record]()

  def add(row: Record) -> None:
    """Add a row unless one of the same fit is there."""
    fit = [row.get(name) for name in (*_FIT, *columns)]
    rows.setdefault(str(fit if _OF_TRIALS in row else row), row)

  for (settings, records), point in zip(runs, points):
    asked_for = {_VERSION: SCHEMA_VERSION} | {name: getattr(settings, name) for name in ('experiment', 'scale', 'seed')}
    for record in records:
      add(asked_for | point | record)
  for asking, row in _owned(workdir, like):
    if _OF_TRIALS in row or asking not in asked:
      add(row)
  files.write_json_lines(workdir / FILE_NAME, [*rows.values()])


def begin(workdir: pathlib.Path, grid: Sequence[Any]) -> None:
  """Put the settings of a run first in `config.json`, and keep the others; the caller holds the lock of the workdir.

  First records on file get a column for each field in which settings will differ: a kill in between leaves columns that
  are not needed yet. Remove the partial files of killed runs. Raises as `configs` does.
  """
  files.remove_partials(workdir)
  contents = [*map(_as_json, grid), *earlier(workdir, grid)]
  points = dict(zip(map(_asking, contents), _points(contents, grid[0])))
  owned = _owned(workdir, grid[0])
  rows = [row | points.get(asking, {}) for asking, row in owned]
  if rows != [row for _, row in owned]:
    files.write_json_lines(workdir / FILE_NAME, rows)
  _put(workdir, contents)


class Part(NamedTuple):
  """The records of a workdir that one of several settings asked for.

  Attributes:
    settings: those that asked.
    point: what tells them from the others, as `lists.points` has it.
    rows: the numbers of the records.
    absent: fields that other records have, and none of these.
  """

  settings: Any
  point: Record
  rows: list[int]
  absent: set[str]


def parts(workdir: pathlib.Path, settings: Any) -> list[Part]:
  """The records of each of several settings on record that can be read and have some; [] of a single one."""
  contents = _whole(configs(workdir), settings)
  if len(contents) < 2:
    return []
  # As `load` has them.
  owned = [(asking, row) for asking, row in _owned(workdir, settings) if not gone.is_of_method(row)]
  rows, fields = collections.defaultdict[str, list[int]](list), collections.defaultdict[str, set[str]](set)
  for number, (asking, row) in enumerate(owned):
    rows[asking].append(number)
    fields[asking].update(row)
  of_all = set[str]().union(*fields.values())
  found = list[Part]()
  for content, point in zip(contents, _points(contents, settings)):
    asking = _asking(content)
    if asking in rows and (read := _settings(content, settings)):
      found.append(Part(read, point, rows[asking], of_all - fields[asking]))
  return found


def _whole(contents: Sequence[Record], like: Any) -> list[Record]:
  """Settings on record with the fields that their version lacked; those that cannot be read as they are.

  The experiment is that of the settings `like`.
  """
  read = [_settings(content, like) for content in contents]
  return [_as_json(settings) if settings else content for settings, content in zip(read, contents)]


def _points(contents: Sequence[Record], like: Any) -> list[Record]:
  """The point of each of several whole settings, as `lists.points` has it."""
  plain = [{name: value for name, value in lists.flat(content) if _is_plain(value)} for content in contents]
  return lists.points_of(plain, lists.is_grid(like))


def _is_plain(value: Any) -> bool:
  """True for a value that a field may have: damaged settings may hold any JSON."""
  try:
    return bool(json.dumps(value, allow_nan=False)) and hash(value) is not None
  except (TypeError, ValueError):
    return False


def _settings(content: Record, like: Any) -> Any:
  """Settings on record; None if they cannot be read."""
  with contextlib.suppress(SettingsError):
    return config_lib.from_record(content, {like.experiment: type(like)})
  return None


def planned(workdir: pathlib.Path, settings: Any) -> Any:
  """The settings with the plan that is on record for them; other studies have none."""
  if not hasattr(settings, 'plan'):
    return settings
  asking = _asking(_as_json(settings))
  for content in configs(workdir):
    if _asking(content) == asking and (read := _settings(content, settings)):
      return dataclasses.replace(settings, plan=read.plan)
  return settings


def _owned(workdir: pathlib.Path, like: Any) -> list[tuple[str, Record]]:
  """Each record on file, and what the settings that it was made for ask for; '' if it fits none."""
  contents = _whole(configs(workdir), like)
  points = [*zip(map(_asking, contents), _points(contents, like))]
  by_values = {str(sorted(point.items())): asking for asking, point in points}
  names = {name for _, point in points for name in point}

  def owner(row: Record) -> str:
    values = str(sorted((name, row[name]) for name in names & row.keys()))
    # A version that knew no other settings wrote no column: those are the last.
    fits = lambda point: all(row.get(name, value) == value for name, value in point.items())
    return by_values.get(values) or next((asking for asking, point in reversed(points) if fits(point)), '')

  return [(owner(row), row) for row in _on_file(workdir)]


def _put(workdir: pathlib.Path, contents: list[Record]) -> None:
  """Write settings to `config.json`, unless they are there; a plan on record stays, whatever a later run has."""
  plans = {_asking(content): {'plan': content['plan']} for content in configs(workdir) if content.get('plan')}
  first, *others = [content | plans.get(_asking(content), {}) for content in contents]
  content = json.dumps({_VERSION: SCHEMA_VERSION, **first, **({_OTHERS: others} if others else {})}, indent=2) + '\n'
  if not files.has(workdir / CONFIG_NAME, content):
    files.write_whole(workdir / CONFIG_NAME, content)


def _as_json(settings: Any) -> Record:
  """The settings as their file has them, with lists for tuples."""
  return json.loads(json.dumps(dataclasses.asdict(settings)))


def _asking(content: Record) -> str:
  """The settings that decide records, as a text."""
  return json.dumps({name: value for name, value in content.items() if name not in lists.NEVER_DECIDE}, sort_keys=True)


def earlier(workdir: pathlib.Path, grid: Sequence[Any]) -> list[Record]:
  """The settings on record that ask for other records than these do."""
  asked = {_asking(_as_json(settings)) for settings in grid}
  return [content for content in _whole(configs(workdir), grid[0]) if _asking(content) not in asked]


def config(workdir: pathlib.Path) -> Record | None:
  """The first of `configs`; None if there are none."""
  return next(iter(configs(workdir)), None)


def configs(workdir: pathlib.Path) -> list[Record]:
  """The settings on record: those of the last run, then others; without fields and methods that are gone.

  Raises Corrupt if they cannot be parsed or are no settings, or a directory stands in their place, and SettingsError if
  they are of another version.
  """
  try:
    content = files.read_json(workdir / CONFIG_NAME)
  except FileNotFoundError:
    return []
  except (IsADirectoryError, ValueError):
    content = None
  path, valid = str(workdir / CONFIG_NAME), f'JSON settings of schema version {SCHEMA_VERSION}, or no file'
  if not isinstance(content, dict):
    raise files.Corrupt(f'{path} cannot be parsed; valid are {valid}')
  version = content.pop(_VERSION, 1)
  require(version == SCHEMA_VERSION, f'the schema version of {path}', version, valid)
  others = content.pop(_OTHERS, [])
  is_named = lambda one: isinstance(one, dict) and all(isinstance(one.get(name), str) for name in _NAMES)
  if not isinstance(others, list) or not all(map(is_named, [content, *others])):
    raise files.Corrupt(f'{path} is damaged; valid are settings that name {" and ".join(_NAMES)}, or no file')
  return [*map(gone.settings_without, [content, *others])]


def check_recorded(workdir: pathlib.Path, experiment: str) -> None:
  """Raise SettingsError if the folder of --workdir has damaged records, or some of another experiment or version."""
  with storage.usable(workdir, '--workdir'):
    _check_experiment(workdir, experiment, configs(workdir) or load(workdir))


def check_shown(workdir: pathlib.Path, experiment: str) -> None:
  """Raise SettingsError unless the folder that --workdir names is writable and has intact settings and records."""
  storage.check_writable(workdir, '--workdir')
  # No record is of no experiment.
  _check_experiment(workdir, experiment, [*configs(workdir), *(load(workdir) or [{}])])


def _check_experiment(workdir: pathlib.Path, experiment: str, rows: list[dict[str, Any]]) -> None:
  is_of_it = all(row.get('experiment') == experiment for row in rows)
  require(is_of_it, '--workdir', str(workdir), f'a folder with records of {experiment} only')


def other_settings(workdir: pathlib.Path, grid: Sequence[Any]) -> str | None:
  """A sentence on how settings on record in a writable folder differ; raises as `check_recorded` does."""
  storage.check_writable(workdir, '--workdir')
  check_recorded(workdir, grid[0].experiment)
  differing = ', '.join(changed(earlier(workdir, grid), grid))
  shown = 'tables, figures and results.jsonl show these too'
  return f'{workdir} holds records with other settings: {differing}; {shown}' if differing else None


def changed(before: Sequence[Record], grid: Sequence[Any]) -> list[str]:
  """Differences of settings on record from these, such as 'seed 0, 1 (here 2)'."""
  in_words = lambda configs: {name: ', '.join(some) for name, some in values(configs).items()}
  return differences(in_words(before), in_words([*map(_as_json, grid)]))


def values(configs: Sequence[Record]) -> dict[str, list[str]]:
  """The distinct values of each field but those of running, in words, by its dotted name."""
  several = [dict(lists.flat(content)) for content in configs]
  names = [name for name in dict.fromkeys(itertools.chain(*several)) if name.split('.')[0] not in lists.OF_RUNNING]
  word = lambda value: json.dumps(value) if isinstance(value, tuple) else str(value)
  return {name: [*dict.fromkeys(word(one[name]) for one in several if name in one)] for name in names}


def differences(recorded: dict[str, Any], current: dict[str, Any]) -> list[str]:
  """Differences in fields that both have, such as 'seed 0 (here 1)'."""
  both = [name for name in recorded if name in current]
  return [f'{name} {recorded[name]} (here {current[name]})' for name in both if recorded[name] != current[name]]


def load(workdir: pathlib.Path) -> list[Record]:
  """The records of a workdir, if any, but those of methods that are gone.

  Raises SettingsError if records are damaged, or of another version.
  """
  return [record for record in _on_file(workdir) if not gone.is_of_method(record)]


def _on_file(workdir: pathlib.Path) -> list[Record]:
  """All records of a workdir; a merge keeps those of methods that are gone."""
  records = files.read_json_lines(workdir / FILE_NAME)
  for version in (record.get(_VERSION, 0) for record in records):
    require(version == SCHEMA_VERSION, f'the schema version of {workdir / FILE_NAME}', version, str(SCHEMA_VERSION))
  return records
