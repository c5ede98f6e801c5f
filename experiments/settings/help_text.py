"""The output of `--help` and `--list`: plain lines, which read the same on a terminal and in a pipe."""

from collections.abc import Iterable
import operator
import textwrap

import ml_collections

from experiments.settings import config as config_lib
from experiments.settings.fields import valid_values

_WIDTH = 100


def listing(experiments: Iterable[str]) -> str:
  """The experiments, each with what it asks or shows and its scales."""
  lines = []
  for name in experiments:
    shipped = config_lib.shipped(name)
    lines += [f'{name}  [{", ".join(shipped["SCALES"])}]', f'  {shipped["__doc__"].splitlines()[0]}']
  return '\n'.join(lines) + '\n'


def fields_text(config: ml_collections.ConfigDict, classes: config_lib.Classes) -> str:
  """Every field of a config: its name, value, meaning and valid values."""
  lines = [f'{config.experiment}:{config.scale}']
  for name, field in config_lib.fields(classes[config.experiment]):
    text = f'{field.metadata["meaning"]}; valid is {valid_values(field)}'
    value = f'{name} = {operator.attrgetter(name)(config)!r}'
    lines += textwrap.wrap(value, _WIDTH, initial_indent='  ', subsequent_indent=' ' * 4)
    lines += textwrap.wrap(text, _WIDTH, initial_indent=' ' * 6, subsequent_indent=' ' * 6)
  return '\n'.join(lines) + '\n'
