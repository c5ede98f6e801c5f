"""The merged records of a workdir, `results.jsonl`, beside the settings that asked for them."""

from collections.abc import Sequence
import dataclasses
import itertools
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
# The field of the first settings with the others.
_OTHERS = 'others'


def write(workdir: pathlib.Path, runs: Sequence[tuple[Any, list[Record]]], others: Sequence[Record] = ()) -> None:
  """Replace the records of a workdir, and the settings beside them; settings that differ in a field name it in each.

  `others` are settings on record to keep, without records here.
  If the settings have changed, a kill in between leaves no records, rather than records beside the wrong settings.
  """
  grid, written, seen = [settings for settings, _ in runs], list[Record](), set[str]()
  _put(workdir, [*map(_as_json, grid), *others], stale=FILE_NAME)
  for (settings, records), point in zip(runs, lists.points(grid)):
    asked_for = {_VERSION: SCHEMA_VERSION} | {name: getattr(settings, name) for name in ('experiment', 'scale', 'seed')}
    # Two runs at one point may have asked for the same record, and each for others too.
    names = [f'{point} {record}' for record in records]
    written += [asked_for | point | record for name, record in zip(names, records) if name not in seen]
    seen |= {*names}
  files.write_json_lines(workdir / FILE_NAME, written)


def begin(workdir: pathlib.Path, grid: Sequence[Any]) -> None:
  """Put the settings of a run first in `config.json`, and keep the others; raises as `configs` does.

  Remove the partial files of killed runs.
  """
  files.remove_partials(workdir)
  _put(workdir, [*map(_as_json, grid), *earlier(workdir, grid)])


def _put(workdir: pathlib.Path, configs: list[Record], stale: str = '') -> None:
  """Write settings to `config.json`, unless they are there; before, remove a file that does not belong to others."""
  first, *others = configs
  content = json.dumps({_VERSION: SCHEMA_VERSION, **first, **({_OTHERS: others} if others else {})}, indent=2) + '\n'
  if not files.has(workdir / CONFIG_NAME, content):
    if stale:
      files.remove(workdir / stale)
    files.write_whole(workdir / CONFIG_NAME, content)


def _as_json(settings: Any) -> Record:
  """The settings as their file has them, with lists for tuples."""
  return json.loads(json.dumps(dataclasses.asdict(settings)))


def earlier(workdir: pathlib.Path, grid: Sequence[Any]) -> list[Record]:
  """The settings on record that ask for other records than these do."""
  shown = (*OF_RUNNING, 'figures', 'pretrained')
  asking = lambda content: {name: value for name, value in content.items() if name not in shown}
  asked = [asking(_as_json(settings)) for settings in grid]
  return [content for content in configs(workdir) if asking(content) not in asked]


def config(workdir: pathlib.Path) -> Record | None:
  """The first of `configs`; None if there are none."""
  return next(iter(configs(workdir)), None)


def configs(workdir: pathlib.Path) -> list[Record]:
  """The settings on record: those of the last run, then others.

  Raises Corrupt if they cannot be parsed, or a directory stands in their place, and SettingsError if they are of
  another version.
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
  return [content, *content.pop(_OTHERS, [])]


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
OF_RUNNING = (
  'compilation_cache',
  'debug_nans',
  'distributed',
  'figure',
  'keep_checkpoints',
  'shown_texts',
  'time_budget',
)


def changed(before: Sequence[Record], grid: Sequence[Any]) -> list[str]:
  """Differences of settings on record from these, such as 'seed 0, 1 (here 2)'."""
  in_words = lambda configs: {name: ', '.join(some) for name, some in values(configs).items()}
  return differences(in_words(before), in_words([*map(_as_json, grid)]))


def values(configs: Sequence[Record]) -> dict[str, list[str]]:
  """The distinct values of each field that decides records, in words, by its dotted name."""
  # Imported here, since it takes longer than `--list` and `--help`.
  from flax.traverse_util import flatten_dict

  flat = [flatten_dict(content, sep='.') for content in configs]
  names = [name for name in dict.fromkeys(itertools.chain(*flat)) if name.split('.')[0] not in OF_RUNNING]
  return {name: [*dict.fromkeys(str(one[name]) for one in flat if name in one)] for name in names}


def differences(recorded: dict[str, Any], current: dict[str, Any]) -> list[str]:
  """Differences in fields that both have, such as 'seed 0 (here 1)'."""
  both = [name for name in recorded if name in current]
  return [f'{name} {recorded[name]} (here {current[name]})' for name in both if recorded[name] != current[name]]


def load(workdir: pathlib.Path) -> list[Record]:
  """The records of a workdir, if any. Raises SettingsError if they are damaged, or of another version."""
  records = files.read_json_lines(workdir / FILE_NAME)
  for version in (record.get(_VERSION, 0) for record in records):
    require(version == SCHEMA_VERSION, f'the schema version of {workdir / FILE_NAME}', version, str(SCHEMA_VERSION))
  return records
