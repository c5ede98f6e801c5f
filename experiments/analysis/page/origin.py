"""The origin of the records of a folder: settings beside the defaults, environments, failures, commands."""

from collections.abc import Sequence
import json
import math
import pathlib
import shlex
from typing import Any

import pandas as pd

from experiments.analysis.table import Table, table
from experiments.records import environment, failures, files, results
from experiments.settings import config as config_lib, lists

_MOST_COMMANDS = 10


def of_folder(workdir: pathlib.Path, settings: Any, records: pd.DataFrame) -> tuple[list[Table], list[str]]:
  """The tables that have rows, and the commands that make the records."""
  experiment, configs = settings.experiment, results.configs(workdir)
  changed = [
    {'field': name, 'default': _cell(default), 'here': _cell(here)}
    for name, (default, here) in changed_settings(experiment, configs).items()
  ]
  failed = [
    {'trial': path.name, **failure}
    for path in files.entries(workdir / 'trials')
    if (failure := failures.read(path, None))
  ]
  made = environment.load(workdir, records.to_dict('records'))
  shown = {
    'Settings that differ from the defaults of the experiment': pd.DataFrame(changed),
    'Environments of the records': pd.json_normalize([*made.values()]).set_axis([*made]).T.reset_index(names=''),
    'Failed trials': pd.DataFrame(failed, columns=['trial', 'label', 'error', 'when']),
  }
  tables = [table(title, rows, num_texts=9) for title, rows in shown.items() if len(rows)]
  return tables, commands(experiment, configs, str(workdir), lists.is_grid(settings))


def _cell(values: Sequence[str]) -> str:
  return ', '.join(value or "''" for value in values)


def changed_settings(experiment: str, configs: Sequence[dict[str, Any]]) -> dict[str, tuple[list[str], list[str]]]:
  """The default and the values on record of each field that differs from its default at the scale of the first."""
  if not configs:
    return {}
  shipped, scale = config_lib.shipped(experiment), configs[0]['scale']
  config = config_lib.at_scale(shipped, scale if scale in config_lib.scales(shipped) else None)
  default = results.values([json.loads(json.dumps(config.to_dict()))])
  recorded = results.values(configs)
  return {name: (default.get(name, []), here) for name, here in recorded.items() if here != default.get(name)}


def commands(experiment: str, configs: Sequence[dict[str, Any]], workdir: str, takes_lists: bool) -> list[str]:
  """The commands that make the records: one if lists of values give all settings, else one for each of the first."""
  if not configs:
    return []
  changed = {name: here for name, (_, here) in changed_settings(experiment, configs).items()}
  if len(configs) > 1 and not (takes_lists and _is_product(changed, len(configs))):
    return [line for one in configs[:_MOST_COMMANDS] for line in commands(experiment, [one], workdir, takes_lists)]
  words = [f'--config={experiment}:{configs[0]["scale"]}', f'--workdir={workdir}']
  words += [f'--config.{name}={",".join(values)}' for name, values in changed.items()]
  return ['python -m experiments.main ' + shlex.join(words)]


def _is_product(changed: dict[str, list[str]], count: int) -> bool:
  """True if the values make so many points, and a list on the command line can hold those of each field."""
  several = {name: values for name, values in changed.items() if len(values) > 1}
  for name, values in several.items():
    # A tuple takes no list, and the values of a list are not empty and have no commas.
    if not lists.is_column(name) or any(value[:1] in ('', '[') or ',' in value for value in values):
      return False
  return math.prod(len(values) for values in several.values()) == count
