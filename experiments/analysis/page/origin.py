"""The origin of the records of a folder: settings beside the defaults, environments, the command that repeats it."""

from collections.abc import Sequence
import json
import math
import pathlib
import shlex
from typing import Any

from flax.traverse_util import flatten_dict
import pandas as pd

from experiments.analysis.table import Table, table
from experiments.records import failures, files, results
from experiments.settings import config as config_lib

# The command does not repeat how a process runs, nor where models lie.
_OF_THE_MACHINE = (*results.OF_RUNNING, 'pretrained')
_MOST_COMMANDS = 10
_ENVIRONMENT = ('commit', 'uncommitted_changes', 'devices', 'cpu', 'platform', 'python', 'packages')


def shipped(experiment: str) -> dict[str, Any]:
  """The definitions of the shipped config file of an experiment; without one its name stands for what is asked."""
  try:
    return config_lib.shipped(experiment)
  except FileNotFoundError:
    return {'__doc__': experiment}


def _defaults(experiment: str, scale: str) -> dict[str, Any]:
  """The shipped settings by dotted name; those of the default scale for a scale that has none."""
  get_config = shipped(experiment).get('get_config')
  if not get_config:
    return {}
  try:
    config = get_config(scale)
  except ValueError:
    config = get_config()
  return flatten_dict(json.loads(json.dumps(config.to_dict())), sep='.')


def changed(experiment: str, configs: Sequence[dict[str, Any]]) -> tuple[dict[str, list[Any]], dict[str, Any]]:
  """The distinct values of each field on record that differs from its default, and the defaults."""
  default, values = _defaults(experiment, str(configs[0]['scale'])), dict[str, list[Any]]()
  for name, value in (item for config in configs for item in flatten_dict(config, sep='.').items()):
    if value not in values.setdefault(name, []):
      values[name].append(value)
  return {name: some for name, some in values.items() if some != [default.get(name)]}, default


def differences(experiment: str, configs: Sequence[dict[str, Any]]) -> Table:
  """A row for each field that is not at its default."""
  values, default = changed(experiment, configs)
  rows = [
    {'field': name, 'default': _shown(default.get(name, 'none')), 'here': ', '.join(map(_shown, some))}
    for name, some in values.items()
  ]
  return table('Settings that differ from the defaults of the experiment', rows, num_texts=3)


def commands(experiment: str, configs: Sequence[dict[str, Any]], workdir: str) -> list[str]:
  """The commands that make the records: one if lists of values give all settings, or else one for each."""
  values, _ = changed(experiment, configs)
  deciding = {name: some for name, some in values.items() if name.split('.')[0] not in _OF_THE_MACHINE}
  is_product = math.prod(map(len, deciding.values())) == len(configs)
  are_scalars = not any(isinstance(some[0], list) for some in deciding.values() if len(some) > 1)
  if not (is_product and are_scalars) and len(configs) > 1:
    return [command for config in configs[:_MOST_COMMANDS] for command in commands(experiment, [config], workdir)]
  words = [f'--config={experiment}:{configs[0]["scale"]}', f'--workdir={workdir}']
  words += [f'--config.{name}={",".join(map(_text, some))}' for name, some in deciding.items()]
  return ['python -m experiments.main ' + shlex.join(words)]


def _shown(value: Any) -> str:
  return "''" if value == '' else str(value)


def _text(value: Any) -> str:
  return repr(tuple(value)) if isinstance(value, list) else str(value)


def environments(records: pd.DataFrame) -> Table:
  """A column for each environment on record, with the number of records that were made in it."""
  known = records.reindex(columns=['environment', *_ENVIRONMENT]).dropna(subset='packages')
  shown = {name: {'environment': name} for name in ('records', *_ENVIRONMENT)}
  for number, (_, some) in enumerate(known.groupby('environment', sort=False), start=1):
    values = some.iloc[0].to_dict()
    values |= {'records': len(some), 'packages': '\n'.join(map(' '.join, values['packages'].items()))}
    for name, row in shown.items():
      row[f'environment {number}'] = str(values[name])
  return table('Environments of the records', list(shown.values()) if len(known) else [], num_texts=9)


def failed(workdir: pathlib.Path) -> Table:
  """A row for each trial with a failure on file."""
  rows = []
  for path in files.entries(workdir / 'trials'):
    if failure := failures.read(path, None):
      named = {'trial': path.name, 'settings': failure.get('label', '')}
      rows.append(named | {name: str(failure[name]) for name in ('error', 'when')})
  return table('Failed trials', rows)
