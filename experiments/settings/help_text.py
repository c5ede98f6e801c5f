"""The output of `--help` and `--list`: plain lines, which read the same on a terminal and in a pipe."""

from collections.abc import Iterable
import operator
import textwrap

import ml_collections

from experiments.settings import config as config_lib
from experiments.settings.fields import valid_values

_WIDTH = 100
_OFTEN_CHANGED = (
  'seed',
  'num_states',
  'num_trials',
  'tasks_per_trial',
  'models',
  'methods',
  'corpus.num_documents',
  'pretrain.num_steps',
  'downstream.num_train',
  'prompt.length',
)


def listing(experiments: Iterable[str]) -> str:
  """The experiments, each with what it asks or shows and its scales."""
  lines = []
  for name in experiments:
    shipped = config_lib.shipped(name)
    lines += [f'{name}  [{", ".join(shipped["SCALES"])}]', f'  {shipped["__doc__"].splitlines()[0]}']
  return '\n'.join(lines) + '\n'


def fields_text(config: ml_collections.ConfigDict | None, classes: config_lib.Classes, how: str) -> str:
  """Every field of `config`, or of all experiments if `how` is 'all', else the often changed fields.

  A field has its name, value, meaning and valid values.
  """
  if config or how == 'all':
    configs = [config] if config else [config_lib.shipped(name)['get_config']() for name in classes]
    return '\n'.join(_fields(one, classes) for one in configs)
  return 'Often changed:\n\n' + _often(config_lib.shipped('prompt_vs_head')['get_config'](), classes)


def _often(config: ml_collections.ConfigDict, classes: config_lib.Classes) -> str:
  """A line for each of the often changed fields, with its value in a config."""
  known, lines = dict(config_lib.fields(classes[config.experiment])), []
  for name in _OFTEN_CHANGED:
    value = operator.attrgetter(name)(config)
    text = ','.join(map(str, value)) if isinstance(value, tuple) else value
    lines.append(f'  {f"--config.{name}={text}":<42} {known[name].metadata["meaning"]}\n')
  return ''.join(lines)


def _fields(config: ml_collections.ConfigDict, classes: config_lib.Classes) -> str:
  lines = [f'{config.experiment}:{config.scale}']
  for name, field in config_lib.fields(classes[config.experiment]):
    text = f'{field.metadata["meaning"]}; valid is {valid_values(field)}'
    value = f'{name} = {operator.attrgetter(name)(config)!r}'
    lines += textwrap.wrap(value, _WIDTH, initial_indent='  ', subsequent_indent=' ' * 4)
    lines += textwrap.wrap(text, _WIDTH, initial_indent=' ' * 6, subsequent_indent=' ' * 6)
  return '\n'.join(lines) + '\n'
