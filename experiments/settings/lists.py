"""Lists in scalar fields, which make a grid of settings, and the fields in which settings differ."""

from collections.abc import Callable, Iterator, Mapping, Sequence
import contextlib
import dataclasses
import operator
import os
from typing import Any

from experiments.settings.fields import fields, SettingsError

# The most trials of a grid with lists.
MOST = 10_000

# Values by the dotted name of a field.
Lists = dict[str, tuple[Any, ...]]

# Fields that name files, each NAME-DIGEST once they are read.
GIVEN = ('distribution', 'corpus_file', 'pretrained_from')
# Fields outside the groups that decide records; a process has one value of the last.
_ALONE = ('seed', *GIVEN, 'model', 'own_head', 'fast_compilation')
_RUNNING = ('mesh', 'distributed', 'figure', 'pretrain.checkpoint_every', 'pretrain.measure_every')
# Every record names these.
_NAMED = ('memory.sizes', 'memory.cells', 'memory.vanilla_methods')
# What a given process or corpus sets.
_SET_BY = {
  'hmm.num_tokens': 'distribution',
  'corpus.num_documents': 'corpus_file',
  'corpus.document_length': 'corpus_file',
}
# The value of a text, by the type of its field.
_READERS: dict[Any, Callable[[str], Any]] = {
  bool: lambda text: bool(['false', 'true'].index(text.lower())),
  int: int,
  float: float,
  str: str,
}


def _decides(name: str) -> bool:
  """True if a field of a grid of trials decides the bits of some record; those that records name are left out."""
  return name in _ALONE or '.' in name and not {name, name.partition('.')[0]} & {*_RUNNING, *_NAMED}


def takes(name: str, field: dataclasses.Field) -> bool:
  """True if a field of a grid of trials takes a list."""
  return _decides(name) and field.type in _READERS and name != 'fast_compilation'


def split(name: str, field: dataclasses.Field, text: str) -> tuple[Any, ...]:
  """The values in a text for a field that takes a list; () if it is a single one, such as a file with a comma."""
  is_path = name in GIVEN and os.path.exists(os.path.expanduser(text))
  return () if is_path or ',' not in text else tuple(_value(part.strip(), field) for part in text.split(','))


def _value(text: str, field: dataclasses.Field) -> Any:
  # The settings refuse a text for a number.
  with contextlib.suppress(ValueError):
    return _READERS[field.type](text)
  return text


@contextlib.contextmanager
def at(point: Mapping[str, Any]) -> Iterator[None]:
  """Name a point of a grid in the SettingsErrors that are raised inside."""
  try:
    yield
  except SettingsError as error:
    raise SettingsError(f'at {text(point)}: {error}' if point else str(error))


def text(point: Mapping[str, Any]) -> str:
  """A point in words, such as 'prompt.length=5 pretrain.optimizer=muon'."""
  return ' '.join(f'{name}={value}' for name, value in point.items())


def is_column(name: str) -> bool:
  """True if a column of records is of a field of settings that decides them; `model` is the name of a model there."""
  return '.' in name or name in _ALONE and name != 'model'


def points(grid: Sequence[Any]) -> list[dict[str, Any]]:
  """The point of each of several settings: its values of the fields in which they differ, a tuple as a text.

  A field that a given process or corpus sets is left out unless settings of the same one differ in it.
  """
  if len(grid) < 2:
    return [{} for _ in grid]
  names = [name for name, _ in fields(type(grid[0])) if _decides(name)]
  values = [dict(zip(names, operator.attrgetter(*names)(settings))) for settings in grid]

  def differs(name: str) -> bool:
    pairs = {(one.get(_SET_BY.get(name, '')), one[name]) for one in values}
    return len(pairs) > len({given for given, _ in pairs})

  columns = {'config.model' if name == 'model' else name: name for name in filter(differs, names)}
  plain = lambda value: str(value) if isinstance(value, tuple) else value
  return [{column: plain(one[name]) for column, name in columns.items()} for one in values]
