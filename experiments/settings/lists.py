"""Fields that take lists, which make a grid of settings, and the fields in which settings differ."""

from collections.abc import Mapping, Sequence
import dataclasses
import re
from typing import Any

from experiments.settings.fields import deciding, digest, fields, flat
from experiments.settings.grid import Settings

# Fields of running and showing.
OF_RUNNING = (
  'compilation_cache',
  'distributed',
  'figure',
  'plan',
  'shown_texts',
  'time_budget',
)
# Fields that decide no record.
_NEVER_DECIDE = (*OF_RUNNING, 'figures', 'pretrained')
# Fields outside the groups that decide records.
_ALONE = ('seed', 'distribution', 'corpus_file', 'pretrained_from', 'model', 'own_head', 'label')
# Groups and fields of groups that do not decide them, or that every record of a trial names.
_LEFT_OUT = {
  'mesh',
  'distributed',
  'figure',
  'pretrain.checkpoint_every',
  'pretrain.measure_every',
  'memory.sizes',
  'memory.cells',
  'memory.vanilla_methods',
}
# What a given process or corpus sets.
_SET_BY = {
  'hmm.num_tokens': 'distribution',
  'corpus.num_documents': 'corpus_file',
  'corpus.document_length': 'corpus_file',
}


def is_grid(settings: Any) -> bool:
  """True for the settings of a grid of trials, whose tables show several settings side by side."""
  return type(settings) is Settings


def _decides(name: str) -> bool:
  """True if a field of a grid of trials decides the bits of some record; those that records name are left out."""
  return name in _ALONE or '.' in name and _LEFT_OUT.isdisjoint((name, name.partition('.')[0]))


def taking(cls: Any) -> set[str]:
  """The fields of a class of settings that take a list: of a grid of trials, the scalar ones that decide records."""
  scalars = [name for name, field in fields(cls) if field.type in (bool, int, float, str)]
  return set(filter(_decides, scalars)) if cls is Settings else set()


def asking(settings: Any) -> str:
  """The id of settings by what they ask for: a digest of those that decide records."""
  return digest([{name: value for name, value in deciding(settings).items() if name not in _NEVER_DECIDE}])


def text(point: Mapping[str, Any]) -> str:
  """A point in words, such as 'prompt.length=5 pretrain.optimizer=muon'."""
  return ' '.join(f'{name}={value}' for name, value in point.items())


def shown(value: Any) -> str:
  """The value of a column in words: of given data, NAME-DIGEST, its name."""
  return f'{value:g}' if isinstance(value, float) else re.sub('-[0-9a-f]{12}$', '', str(value))


def is_column(name: str) -> bool:
  """True if a column of records is of a field of settings that decides them; `model` is the name of a model there.

  A number with a point is that of an assumption.
  """
  return ('.' in name and name[0].isalpha()) or (name in _ALONE and name != 'model')


def points(grid: Sequence[Any]) -> list[dict[str, Any]]:
  """The point of each of several settings: its values of the fields in which they differ, a tuple as a text.

  A field outside the groups is called config.NAME, unless records have it by its own name. Left out are what decides no
  record, what each record of a trial names, and what a given process or corpus sets, unless settings of the same one
  differ in it.
  """
  several = [flat(dataclasses.asdict(one)) for one in grid]
  of_trials = all(map(is_grid, grid))
  decides = _decides if of_trials else lambda name: name.partition('.')[0] not in _NEVER_DECIDE
  point_of: list[dict[str, Any]] = [{} for _ in grid]
  for name in filter(decides, several[0] if several else ()):
    pairs = {(one.get(_SET_BY.get(name, '')), one[name]) for one in several}
    if len(pairs) > len({given for given, _ in pairs}):
      column = name if name == 'scale' or is_column(name) else f'config.{name}'
      for point, one in zip(point_of, several):
        point[column] = str(one[name]) if isinstance(one[name], tuple) else one[name]
  return point_of
