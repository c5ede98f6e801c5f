"""The origin of the records of a folder: settings beside the defaults, environments, failures, commands."""

from collections.abc import Sequence
import itertools
import math
import pathlib
import shlex
from typing import Any

import pandas as pd

from experiments.analysis.tables import Table, table
from experiments.records import environment, failures, files, results
from experiments.settings import config as config_lib, lists
from experiments.settings.grid import Settings

_MOST_COMMANDS = 10


def of_folder(workdir: pathlib.Path, settings: Any, records: pd.DataFrame) -> tuple[list[Table], list[str]]:
  """The tables that have rows, and the commands that make the records."""
  experiment, configs = settings.experiment, results.configs(workdir)
  changed = changed_settings(experiment, configs)
  fields = [{'field': name, 'value': ', '.join(word or "''" for word in words)} for name, words in changed.items()]
  trials = {path.name: failures.read(path, None) for path in files.entries(workdir / 'trials')}
  failed = [{'trial': name, **failure} for name, failure in trials.items() if failure]
  made = environment.load(workdir, records.to_dict('records'))
  shown = {
    'Settings that differ from the defaults of the experiment': pd.DataFrame(fields),
    'Environments of the records': pd.json_normalize([*made.values()]).T.reset_index(names=''),
    'Failed trials': pd.DataFrame(failed, columns=['trial', 'label', 'error', 'when']),
  }
  tables = [table(title, rows, num_texts=9) for title, rows in shown.items() if len(rows)]
  return tables, commands(experiment, configs, str(workdir), lists.is_grid(settings))


def changed_settings(experiment: str, configs: Sequence[results.Record]) -> dict[str, list[str]]:
  """The distinct values, in words, of each field in which these settings differ from the defaults."""
  shipped = config_lib.shipped(experiment)
  scale = next((one['scale'] for one in configs if one['scale'] in config_lib.scales(shipped)), None)
  config, several = config_lib.override(config_lib.at_scale(shipped, scale), [], Settings)
  default = results.values(config_lib.expanded(config, several, lambda one: one.to_dict()))
  recorded = results.values(configs)
  return {name: words for name, words in recorded.items() if words != default.get(name)}


def commands(experiment: str, configs: Sequence[results.Record], workdir: str, takes_lists: bool) -> list[str]:
  """The commands that make the records: one if lists of values give all settings, else one for each of the first."""
  is_one = takes_lists and _is_product(changed_settings(experiment, configs), len(configs))
  grids = [configs] if is_one else [[one] for one in configs[:_MOST_COMMANDS]]
  return [_command(experiment, grid, workdir) for grid in grids]


def _command(experiment: str, grid: Sequence[results.Record], workdir: str) -> str:
  words = [f'--config={experiment}:{grid[0]["scale"]}', f'--workdir={workdir}']
  for name, values in changed_settings(experiment, grid).items():
    words.append(f'--config.{name}={",".join(values)}')
  return 'python -m experiments.main ' + shlex.join(words)


def _is_product(changed: dict[str, list[str]], count: int) -> bool:
  """True if the settings are all combinations of the values, and each field of several values takes a list."""
  several = {name: values for name, values in changed.items() if len(values) > 1}
  words = itertools.chain(*several.values())
  # JSON of a tuple begins with a bracket: its field takes no list. No value in a list is empty.
  are_lists = all(map(lists.is_column, several)) and all(word[:1] not in ('', '[') for word in words)
  return are_lists and math.prod(map(len, several.values())) == count
