"""Lists in scalar fields, which make a grid of settings, and the fields in which settings differ."""

import ast
from collections.abc import Iterator, Mapping, Sequence
import contextlib
import dataclasses
import operator
import os
from typing import Any

from experiments.settings.fields import fields, SettingsError

# Values by the dotted name of a field.
Lists = dict[str, tuple[Any, ...]]
# The most trials of a grid with lists.
MOST = 10_000

# Fields outside the groups that decide records; a process has one value of the last.
_ALONE = ('seed', 'distribution', 'corpus_file', 'pretrained_from', 'model', 'own_head', 'fast_compilation')
_RUNNING = ('mesh', 'distributed', 'figure', 'pretrain.checkpoint_every', 'pretrain.measure_every')
# Every record names these.
_NAMED = ('memory.sizes', 'memory.cells', 'memory.vanilla_methods')
# What a given process or corpus sets.
_SET_BY = {
  'hmm.num_tokens': 'distribution',
  'corpus.num_documents': 'corpus_file',
  'corpus.document_length': 'corpus_file',
}


def decides(name: str, field: dataclasses.Field) -> bool:
  """True if a field of a grid of trials decides the bits of some record; those that records name are left out."""
  return name in _ALONE or '.' in name and not {name, name.partition('.')[0]} & {*_RUNNING, *_NAMED}


def takes_list(name: str, field: dataclasses.Field) -> bool:
  """True if a field of a grid of trials takes a list."""
  return decides(name, field) and field.type in (bool, int, float, str) and name != 'fast_compilation'


def split(name: str, field: dataclasses.Field, text: str) -> tuple[Any, ...]:
  """The values in a text for a field that takes a list; () if it is a single one, such as a file with a comma."""
  is_path = name in ('distribution', 'corpus_file', 'pretrained_from') and os.path.exists(os.path.expanduser(text))
  return () if is_path or ',' not in text else tuple(_value(part.strip(), field) for part in text.split(','))


def _value(text: str, field: dataclasses.Field) -> Any:
  if field.type is bool:
    return {'true': True, 'false': False}.get(text.lower(), text)
  # The settings refuse a text for a number.
  with contextlib.suppress(ValueError, SyntaxError):
    value = ast.literal_eval(text)
    return value if field.type is not str and isinstance(value, (bool, int, float)) else text
  return text


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


def points(grid: Sequence[Any]) -> list[dict[str, Any]]:
  """The point of each of several settings: its values of the fields in which they differ.

  Fields that a given process or corpus sets are left out. A tuple becomes a text with commas.
  """
  if len(grid) < 2:
    return [{} for _ in grid]
  deciding = [name for name, field in fields(type(grid[0])) if decides(name, field)]
  as_value = lambda value: ', '.join(map(str, value)) if isinstance(value, tuple) else value
  values = {name: [as_value(operator.attrgetter(name)(settings)) for settings in grid] for name in deciding}
  differing = {name: some for name, some in values.items() if len(set(some)) > 1}
  follows = lambda name, setter: len({*zip(values[setter], values[name])}) == len({*values[setter]})
  shown = [name for name in differing if name not in _SET_BY or not follows(name, _SET_BY[name])]
  return [{name: values[name][index] for name in shown} for index in range(len(grid))]
