"""The output of `--help` and `--list`: plain lines, which read the same on a terminal and in a pipe."""

from collections.abc import Iterable, Sequence
import operator
import textwrap
from typing import Any

import ml_collections

from experiments.settings import config as config_lib
from experiments.settings.fields import fields, printable, valid_values
from experiments.settings.grid import Settings
from experiments.settings.lists import takes
from experiments.settings.trial import Trial

_WIDTH = 100


def listing(experiments: Iterable[str]) -> str:
  """The experiments, each with what it asks or shows and its scales."""
  lines = []
  for name in experiments:
    shipped = config_lib.shipped(name)
    lines += [f'{name}  [{", ".join(config_lib.scales(shipped))}]', f'  {shipped["__doc__"].splitlines()[0]}']
  return '\n'.join(lines) + '\n'


def trials_text(trials: Sequence[Trial]) -> str:
  """The number, id and name of each trial of a grid."""
  return ''.join(printable(f'{number}  {trial.id}  {trial}') + '\n' for number, trial in enumerate(trials))


def fields_text(config: ml_collections.ConfigDict, cls: Any) -> str:
  """Every field of a config: its name, value, meaning and valid values, and if it takes a list of them."""
  lines = [f'{config.experiment}:{config.scale}']
  for name, field in fields(cls):
    may_be_list = '; takes a list' if cls is Settings and takes(name, field) else ''
    value = operator.attrgetter(name)(config)
    text = f'{name} = {value!r}: {field.metadata["meaning"]}; valid is {valid_values(field)}{may_be_list}'
    lines += textwrap.wrap(text, _WIDTH, initial_indent='  ', subsequent_indent=' ' * 6)
  return '\n'.join(lines) + '\n'
