"""The output of `--help` and `--list`: plain lines, which read the same on a terminal and in a pipe."""

from collections.abc import Iterable, Sequence
import textwrap
from typing import Any

from experiments.settings import config as config_lib
from experiments.settings.fields import fields, printable, valid_values, Values
from experiments.settings.lists import taking
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


def fields_text(values: Values, cls: Any) -> str:
  """Every field of settings: its name, value, meaning and valid values, and if it takes a list of them."""
  lines, takes_list = [f'{values["experiment"]}:{values["scale"]}'], taking(cls)
  for name, field in fields(cls):
    text = f'{name} = {values.get(name)!r}: {field.metadata["meaning"]}; valid is {valid_values(field)}'
    text += '; takes a list' * (name in takes_list)
    lines += textwrap.wrap(text, _WIDTH, initial_indent='  ', subsequent_indent=' ' * 6)
  return '\n'.join(lines) + '\n'
