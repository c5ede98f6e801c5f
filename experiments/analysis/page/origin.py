"""The origin of the records of a folder: settings beside the defaults, environments, failures, commands."""

from collections.abc import Sequence
import pathlib
import shlex
from typing import Any

import pandas as pd

from experiments.analysis.tables import Table, table
from experiments.records import environment, failures, files, results
from experiments.settings import config as config_lib
from experiments.settings.fields import flat
from experiments.settings.grid import Settings

_MOST_COMMANDS = 10


def of_folder(workdir: pathlib.Path, settings: Any, records: pd.DataFrame) -> tuple[list[Table], list[str]]:
  """The tables that have rows, and a command for each of the first settings."""
  experiment, configs = settings.experiment, results.configs(workdir)
  changed = changed_settings(experiment, configs)
  fields = [{'field': name, 'value': ', '.join(word or "''" for word in words)} for name, words in changed.items()]
  environments = environment.load(workdir, records.to_dict('records'))
  failed = []
  for folder in files.entries(workdir / 'trials'):
    failure = failures.read(folder, None)
    if failure:
      failed.append({'trial': folder.name, **failure})
  shown = {
    'Settings that differ from the defaults of the experiment': pd.DataFrame(fields),
    'Environments of the records': pd.json_normalize([*environments.values()]).T.reset_index(names='field'),
    'Failed trials': pd.DataFrame(failed, columns=['trial', 'label', 'error', 'when']),
  }
  tables = [table(title, rows, num_texts=9) for title, rows in shown.items() if len(rows)]
  return tables, [command(experiment, config, str(workdir)) for config in configs[:_MOST_COMMANDS]]


def changed_settings(experiment: str, configs: Sequence[results.Record]) -> dict[str, list[str]]:
  """The distinct values, in words, of each field in which these settings differ from the defaults."""
  scale = configs[0]['scale'] if configs else ''
  default = flat(config_lib.shipped_config(experiment, scale).to_dict())
  defaults = results.values(config_lib.points(default, Settings))
  return {name: words for name, words in results.values(configs).items() if words != defaults.get(name)}


def command(experiment: str, config: results.Record, workdir: str) -> str:
  """The command that makes the records of a config."""
  words = [f'--config={experiment}:{config["scale"]}', f'--workdir={workdir}']
  for name, (value,) in changed_settings(experiment, [config]).items():
    words.append(f'--config.{name}={value}')
  return 'python -m experiments.main ' + shlex.join(words)
