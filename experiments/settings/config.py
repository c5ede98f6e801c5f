"""From a config file and the command line to checked settings."""

import argparse
import ast
from collections.abc import Collection, Mapping
import itertools
import os
import pathlib
import runpy
import typing
from typing import Any

import ml_collections

from experiments.settings import lists
from experiments.settings.fields import built, check_known, fields, flat, require, SettingsError, users_program, Values

# The class of settings of each experiment, by its name.
Classes = Mapping[str, Any]
Flags = argparse.Namespace

# The default scale with other numbers, those of the config file's `reduce`.
_SMOKE = 'smoke'
_SHIPPED = pathlib.Path(__file__).parents[2] / 'configs'
# What a word of a command line that sets a field begins with.
_PREFIX = '--config.'


def shipped(experiment: str) -> dict[str, Any]:
  """The definitions of an experiment's shipped config file, as `at_scale` takes them, and its docstring `__doc__`."""
  return runpy.run_path(str(_SHIPPED / f'{experiment}.py'))


def scales(program: Mapping[str, Any]) -> tuple[str, ...]:
  """The scales of a config file; () if it does not say."""
  return program.get('SCALES', ()) + (_SMOKE,) * ('reduce' in program)


def at_scale(program: Mapping[str, Any], scale: str | None = None) -> ml_collections.ConfigDict:
  """The config of a config file at one of its scales, by default its own.

  Raises ValueError for another scale, unless the file has no SCALES.

  Args:
    program: `get_config`, and if the file has them `SCALES`, the scales that this takes, and `reduce`, which changes
      the default scale to `smoke`.
    scale: one of `scales`.
  """
  valid = scales(program)
  if 'SCALES' in program and scale not in (None, *valid):
    raise ValueError(f'config scale is {scale!r}; valid are {", ".join(valid)}')
  if scale == _SMOKE and 'reduce' in program:
    config = program['get_config']()
    program['reduce'](config)
    config.scale = scale
    return config
  return program['get_config'](*filter(None, [scale]))


def shipped_config(experiment: str, scale: str) -> ml_collections.ConfigDict:
  """The shipped config of an experiment at a scale, or at its own if it lacks that."""
  program = shipped(experiment)
  return at_scale(program, scale if scale in scales(program) else None)


def has_own_text(settings: Any) -> bool:
  """True if settings give a process or labels and `shipped_config` gives none.

  Its claim and its plan, and the figure of the paper, then speak of something else.
  """
  config = shipped_config(settings.experiment, settings.scale)
  return any(getattr(settings, name, '') and not config.get(name) for name in ('distribution', 'label'))


def parse(argv: list[str], modes: Collection[str]) -> tuple[Flags, dict[str, str]]:
  """The flags, and the texts of the fields that the command line sets.

  The last value of a repeated field counts; a field without a value is True. Raises SettingsError at a word that is
  neither.
  """
  parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
  for name in ('config', 'workdir', 'trials', 'pretrained'):
    parser.add_argument(f'--{name}', default='')
  parser.add_argument('--mode', default='run', choices=modes)
  parser.add_argument('--help', '-h', action='store_true')
  parser.add_argument('--list', action='store_true')
  try:
    flags, words = parser.parse_known_args(argv[1:])
  except argparse.ArgumentError as error:
    raise SettingsError(str(error))
  valid = ', '.join(['--config.FIELD=VALUE', *(f'--{name}' for name in vars(flags))])
  texts = {}
  for word in words:
    require(word.startswith(_PREFIX), 'an argument', word, valid)
    name, has_value, text = word.removeprefix(_PREFIX).partition('=')
    texts[name] = text if has_value else 'True'
  return flags, texts


def load(config: str, texts: Mapping[str, str], classes: Classes) -> Values:
  """The values of the config PATH[:scale] or NAME[:scale], with those of texts by field.

  PATH is an existing file, NAME a shipped config. Raises SettingsError if there is no such file or name, if the file
  fails, or names no experiment or scale, or if a text is of no field.
  """
  name, *of_scale = os.path.expanduser(config).split(':', 1)
  is_file = os.path.isfile(name)
  valid = f'the path of a config file, or one of {", ".join(classes)}, with an optional :SCALE'
  require(is_file or name in classes, '--config', config, valid)
  with users_program('--config', config, 'a Python file whose get_config returns a ConfigDict'):
    program = runpy.run_path(name) if is_file else shipped(name)
    content = at_scale(program, *of_scale).to_dict()
  cls, scale = class_of(content, classes), content.get('scale')
  require(isinstance(scale, str), 'scale', scale, 'a text, as get_config of a config file sets it')
  return override(flat(content), texts, cls)


def override(values: Values, texts: Mapping[str, str], cls: Any) -> Values:
  """The values with those of texts by field, the last; several with commas are a list if the field takes one."""
  known, taking = dict(fields(cls)), lists.taking(cls)
  check_known(texts, known)
  read = {}
  for name, text in texts.items():
    require(name not in ('experiment', 'scale'), f'--config.{name}', text, 'what --config=NAME:SCALE says')
    read[name] = _value(text, known[name].type, name in taking)
  return {name: value for name, value in values.items() if name not in read} | flat(read)


def _value(text: str, kind: Any, takes_list: bool) -> Any:
  """The value that a text has in a field of this type, several with commas; the text itself if it has none.

  A comma in the name of a file that exists is part of the name.
  """
  if kind is str and (not takes_list or os.path.exists(os.path.expanduser(text))):
    return text
  value = text if kind is str else _literal(text)
  if value == text and ',' in text:
    value = tuple(_literal(part.strip()) for part in text.split(','))
  return (value,) if typing.get_args(kind) and not isinstance(value, (list, tuple)) else value


def _literal(text: str) -> Any:
  """The value of a text that is a Python literal, or else the text, which the settings refuse where it is none."""
  try:
    return ast.literal_eval(text.capitalize() if text.lower() in ('true', 'false') else text)
  except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
    return text


def points(values: Values, cls: Any) -> list[Values]:
  """The values at each point of the product of the lists, tuples in scalar fields; the last varies fastest."""
  taking = lists.taking(cls)
  several = {name: value for name, value in values.items() if name in taking and type(value) is tuple}
  for name, value in several.items():
    scalars = all(isinstance(one, (int, float, str)) for one in value)
    require(value and scalars, name, value, 'at least one value, each a number, true, false or a text')
  return [values | dict(zip(several, point)) for point in itertools.product(*map(dict.fromkeys, several.values()))]


def class_of(values: Mapping[str, Any], classes: Classes) -> Any:
  """The class of settings of the experiment that values name; raises SettingsError if there is none."""
  experiment = values.get('experiment')
  require(experiment in list(classes), 'experiment', experiment, f'one of {", ".join(classes)}')
  return classes[str(experiment)]


def from_config(config: ml_collections.ConfigDict, classes: Classes) -> Any:
  """The settings of a config, with the first value of each list; raises SettingsError as `from_record` does."""
  values = flat(config.to_dict())
  first, *_ = points(values, class_of(values, classes))
  return from_record(first, classes)


def from_record(content: Mapping[str, Any], classes: Classes) -> Any:
  """The settings of a `config.json`, nested or flat; raises SettingsError at the first field that is wrong."""
  values = flat(content)
  return built(class_of(values, classes), values)
