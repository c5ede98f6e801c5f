"""The origin of the records of a folder: settings beside the defaults, environments, failures, commands."""

from collections.abc import Sequence
import json
import math
import pathlib
import shlex
from typing import Any

import pandas as pd

from experiments.analysis.tables import Table, table
from experiments.records import environment, failures, files, results
from experiments.settings import config as config_lib, lists

_MOST_COMMANDS = 10


def of_folder(workdir: pathlib.Path, settings: Any, records: pd.DataFrame) -> tuple[list[Table], list[str]]:
  """The tables that have rows, and the commands that make the records."""
  experiment, configs = settings.experiment, results.configs(workdir)
  changed = changed_settings(experiment, configs) if configs else {}
  made = environment.load(workdir, records.to_dict('records'))
  trials = {path.name: failures.read(path, None) for path in files.entries(workdir / 'trials')}
  failed = [{'trial': name, **failure} for name, failure in trials.items() if failure]
  tables = {
    'Settings that differ from the defaults of the experiment': pd.DataFrame(
      {name: [', '.join(value or "''" for value in some) for some in both] for name, both in changed.items()},
      ['default', 'here'],
    ).T,
    'Environments of the records': pd.json_normalize([*made.values()]).set_axis([*made]).T,
    'Failed trials': pd.DataFrame(failed, columns=['trial', 'label', 'error', 'when']).set_index('trial'),
  }
  shown = [table(title, rows.reset_index(names=''), num_texts=9) for title, rows in tables.items() if len(rows)]
  return shown, commands(experiment, configs, str(workdir), lists.is_grid(settings))


def changed_settings(experiment: str, configs: Sequence[dict[str, Any]]) -> dict[str, tuple[list[str], list[str]]]:
  """The default and the distinct values on record of each field that differs from its default, in words."""
  shipped, scale = config_lib.shipped(experiment), configs[0]['scale']
  config = config_lib.at_scale(shipped, scale if scale in config_lib.scales(shipped) else None)
  default = results.values([json.loads(json.dumps(config.to_dict()))])
  recorded = results.values(configs)
  return {name: (default.get(name, []), some) for name, some in recorded.items() if some != default.get(name)}


def commands(experiment: str, configs: Sequence[dict[str, Any]], workdir: str, takes_lists: bool) -> list[str]:
  """The commands that make the records: one if lists of values give all settings, or else one for each."""
  if not configs:
    return []
  changed = {name: some for name, (_, some) in changed_settings(experiment, configs).items()}
  are_lists = all(lists.is_column(name) and some[0][:1] != '[' for name, some in changed.items() if len(some) > 1)
  is_one_name = all(',' not in value for some in changed.values() for value in some if len(some) > 1)
  is_product = takes_lists and are_lists and is_one_name and math.prod(map(len, changed.values())) == len(configs)
  if len(configs) > 1 and not is_product:
    return [line for one in configs[:_MOST_COMMANDS] for line in commands(experiment, [one], workdir, takes_lists)]
  words = [f'--config={experiment}:{configs[0]["scale"]}', f'--workdir={workdir}']
  # A tuple with single quotes would need five of them for each in a shell.
  unquoted = lambda text: text.replace("'", '"') if text[:1] == '[' else text
  words += [f'--config.{name}={",".join(map(unquoted, some))}' for name, some in changed.items()]
  return ['python -m experiments.main ' + shlex.join(words)]
