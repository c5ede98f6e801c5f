"""Lists in scalar fields: which fields take one, and in which fields the settings of a grid differ."""

from collections.abc import Iterator, Mapping, Sequence
import contextlib
import dataclasses
import operator
import os
from typing import Any

from experiments.settings.fields import fields, require, SettingsError

# Values by the dotted name of a field.
Lists = dict[str, tuple[Any, ...]]
# The most trials of a grid with lists.
MOST = 10_000

# Fields that decide no record: how, where and of what records are made, and what is shown of them.
_DECIDE_NONE = (
  'experiment',
  'scale',
  'compilation_cache',
  'deterministic',
  'debug_nans',
  'num_states',
  'num_trials',
  'num_trials_by_size',
  'tasks_per_trial',
  'tasks_at_a_time',
  'models',
  'methods',
  'memory.sizes',
  'memory.cells',
  'memory.vanilla_methods',
  'pretrain.checkpoint_every',
  'pretrain.measure_every',
  'pretrained',
  'time_budget',
  'figures',
)
_GROUPS_OF_NONE = ('mesh.', 'distributed.', 'figure.')
# It decides bits, but a process has one value of it.
_OF_PROCESS = 'fast_compilation'
_SCALARS = (bool, int, float, str)
_PATHS = ('distribution', 'corpus_file')
# What a given process or corpus sets.
_SET_BY = {
  'hmm.num_tokens': 'distribution',
  'corpus.num_documents': 'corpus_file',
  'corpus.document_length': 'corpus_file',
}


def decides(name: str) -> bool:
  """True if a field of a grid of trials decides the bits of some record."""
  return name not in _DECIDE_NONE and not name.startswith(_GROUPS_OF_NONE)


def takes_list(name: str, field: dataclasses.Field) -> bool:
  """True if a field of a grid of trials takes a list."""
  return decides(name) and name != _OF_PROCESS and field.type in _SCALARS


def split(name: str, field: dataclasses.Field, text: str) -> tuple[str, ...]:
  """The values in a text for a scalar field, which commas separate; () if it is a single value, or not scalar."""
  # A folder may have a comma in its name, and so may a file.
  is_text = field.type is str and not takes_list(name, field)
  is_path = name in _PATHS and os.path.exists(os.path.expanduser(text))
  is_whole = ',' not in text or text.startswith('-') or field.type not in _SCALARS or is_text or is_path
  return () if is_whole else tuple(map(str.strip, text.split(',')))


def in_config(config: Any, known: Mapping[str, dataclasses.Field]) -> Lists:
  """The tuples that a config has in scalar fields, by name."""
  lists = Lists()
  for name in (name for name, field in known.items() if field.type in _SCALARS):
    # A config that lacks a field is refused with the settings.
    with contextlib.suppress(AttributeError):
      values = operator.attrgetter(name)(config)
      if isinstance(values, tuple) and values:
        lists[name] = values
  return lists


def check(name: str, field: dataclasses.Field, values: tuple[Any, ...], is_grid: bool) -> None:
  """Raise SettingsError unless the field takes a list, in an experiment that is a grid of trials or not."""
  why = 'all trials of a run share it' if is_grid else 'this experiment is no grid of trials'
  require(is_grid and takes_list(name, field), name, ','.join(map(str, values)), f'a single value: {why}')


@contextlib.contextmanager
def at(point: Mapping[str, Any]) -> Iterator[None]:
  """Name a point of a grid, by field, in the SettingsErrors that are raised inside."""
  try:
    yield
  except SettingsError as error:
    raise SettingsError(f'at {text(point)}: {error}' if point else str(error)) from error


def text(point: Mapping[str, Any]) -> str:
  """A point in words, such as 'prompt.length=5 pretrain.optimizer=muon'."""
  return ' '.join(f'{name}={value}' for name, value in point.items())


def column(name: str) -> str:
  """The name of a field as a column of records, where `model` is the name of a model."""
  return f'config.{name}' if name == 'model' else name


def deciding(settings: Any) -> dict[str, Any]:
  """The values of the fields that decide records, by name."""
  names = (name for name, _ in fields(type(settings)) if decides(name))
  return {name: operator.attrgetter(name)(settings) for name in names}


def points(grid: Sequence[Any]) -> list[dict[str, Any]]:
  """The point of each of several settings: its values of the fields in which they differ.

  What a given process or corpus sets, where these differ, is no field of its own.
  """
  if len(grid) < 2:
    return [{} for _ in grid]
  rows = [deciding(settings) for settings in grid]
  differing = [name for name, first in rows[0].items() if any(row[name] != first for row in rows)]
  shown = [name for name in differing if _SET_BY.get(name) not in differing]
  return [{name: row[name] for name in shown} for row in rows]
