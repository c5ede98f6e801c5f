"""From a config file and the command line to checked settings."""

import ast
from collections.abc import Callable, Collection, Mapping
import contextlib
import dataclasses
import difflib
import itertools
import operator
import os
import pathlib
import runpy
import typing
from typing import Any

from absl import flags
import ml_collections

from experiments.settings import gone, lists as lists_lib
from experiments.settings.fields import fields, require, SettingsError, users_program
from experiments.settings.grid import Settings
from experiments.settings.lists import Lists
from experiments.settings.plan import EndPoint

# The class of settings of each experiment, by its name.
Classes = Mapping[str, Any]
Flags = flags.FlagValues

# The default scale with other numbers, those of the config file's `reduce`.
_SMOKE = 'smoke'
_SHIPPED = pathlib.Path(__file__).parents[2] / 'configs'
# What a word of a command line that sets a field begins with.
_PREFIX = '--config.'


def shipped(experiment: str) -> dict[str, Any]:
  """The definitions of an experiment's shipped config file, as `at_scale` takes them, and its docstring `__doc__`.

  A study of one's own that has none has no defaults.
  """
  path = _SHIPPED / f'{experiment}.py'
  if not path.exists():
    return {'__doc__': experiment, 'SCALES': (), 'get_config': ml_collections.ConfigDict}
  return runpy.run_path(str(path))


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
  if scale != _SMOKE or _SMOKE not in valid:
    return program['get_config'](*filter(None, [scale]))
  config = program['get_config']()
  program['reduce'](config)
  config.scale = scale
  return config


def has_own_text(settings: Any, config: ml_collections.ConfigDict) -> bool:
  """True if settings give a process or labels and the shipped config of their experiment, at their scale, gives none.

  Its claim and its plan, and the figure of the paper, then speak of something else.
  """
  return any(getattr(settings, name, '') and not config.get(name) for name in ('distribution', 'label'))


def parse(argv: list[str], classes: Classes, modes: Collection[str]) -> tuple[Flags, Any, Lists]:
  """The flags, the config, None if none is needed, and the lists in its scalar fields.

  In the config the first of its values stands for a list. Raises SettingsError for a bad command line.
  """
  values = flags.FlagValues()
  # --config.FIELD=VALUE may stand between the flags.
  values.set_gnu_getopt()
  for name in ('config', 'workdir', 'trials', 'pretrained'):
    flags.DEFINE_string(name, '', '', flag_values=values)
  flags.DEFINE_enum('mode', 'run', list(modes), '', flag_values=values)
  flags.DEFINE_bool('help', False, '', short_name='h', flag_values=values)
  flags.DEFINE_bool('list', False, '', flag_values=values)
  try:
    _, *words = values(argv, known_only=True)
  except (flags.Error, ValueError) as error:
    raise SettingsError(' '.join(str(error).split()))
  for word in words:
    valid = ', '.join(f'--{name}' for name in values)
    require(word.startswith(_PREFIX), 'an argument', word, f'--config.FIELD=VALUE, {valid}')
  verifies = values.mode == 'verify'
  require(verifies or not values.pretrained, '--pretrained', values.pretrained, 'empty unless --mode is verify')
  if not values.config and (values.help or values.list or verifies):
    return values, None, {}
  config = load(values.config, classes)
  cls = _class(config, classes)
  is_grid = cls is Settings
  valid = 'run or report, if the experiment is not a grid of trials'
  require(is_grid or values.mode in ('run', 'report'), '--mode', values.mode, valid)
  require(is_grid or not values.trials, '--trials', values.trials, 'empty, if the experiment is not a grid of trials')
  return values, *override(config, words, cls)


def load(config: str, experiments: Collection[str]) -> ml_collections.ConfigDict:
  """The config of PATH[:scale] or NAME[:scale]: PATH is an existing file, NAME a shipped config.

  Raises SettingsError if there is no such file or name, or the file fails.
  """
  name, *scale = os.path.expanduser(config).split(':', 1)
  is_file = os.path.isfile(name)
  valid = f'the path of a config file, or one of {", ".join(experiments)}, with an optional :SCALE'
  require(is_file or name in experiments, '--config', config, valid)
  with users_program('--config', config, 'a Python file whose get_config returns a ConfigDict'):
    config_dict = at_scale(runpy.run_path(name) if is_file else shipped(name), *scale)
    if not isinstance(config_dict, ml_collections.ConfigDict):
      raise TypeError(f'get_config() returned a {type(config_dict).__name__}')
    return config_dict


def named(words: list[str]) -> list[str]:
  """The fields that words of a command line name."""
  return [word.removeprefix(_PREFIX).partition('=')[0] for word in words if word.startswith(_PREFIX)]


def override(config: ml_collections.ConfigDict, words: list[str], cls: Any) -> tuple[ml_collections.ConfigDict, Lists]:
  """The config with the fields that words such as --config.seed=1 set, and the lists in its scalar fields.

  The last value of a repeated field counts; a field without a value is True. A comma in the name of a file that exists
  is part of the name. Raises SettingsError for an unknown field; values are checked with the settings.
  """
  known = {name: field for name, field in fields(cls) if name not in ('experiment', 'scale')}
  takes = [name for name, field in known.items() if cls is Settings and lists_lib.takes(name, field)]
  lists = Lists()
  for name in takes:
    # A config that lacks a field is refused with the settings.
    with contextlib.suppress(AttributeError):
      if type(values := operator.attrgetter(name)(config)) is tuple:
        lists[name] = values
        _set(config, {name: values[0]})
  config = config.copy_and_resolve_references()
  for word in words:
    name, has_value, text = word.removeprefix(_PREFIX).partition('=')
    if name not in known:
      alike = ' or '.join(difflib.get_close_matches(name, known, cutoff=0))
      raise SettingsError(f'--config.{name} is not a field beside --config=NAME:SCALE; did you mean {alike}?')
    lists.pop(name, None)
    if name in takes and ',' in text and not os.path.exists(os.path.expanduser(text)):
      lists[name] = tuple(_value(part.strip(), known[name].type) for part in text.split(','))
    else:
      _set(config, {name: _value(text if has_value else 'True', known[name].type)})
  for name, values in lists.items():
    require(len(set(values)) == len(values), name, values, 'a list of distinct values')
  return config, lists


def _value(text: str, kind: Any) -> Any:
  """The value that a text has in a field of this type; the text itself if it has none, which the settings refuse."""
  if kind is str:
    return text
  try:
    value = ast.literal_eval(text.capitalize() if kind is bool else text)
  except (SyntaxError, ValueError):
    value = tuple(part.strip() for part in text.split(','))
  if typing.get_args(kind):
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)
  return value if isinstance(value, (bool, int, float)) else text


def _set(config: ml_collections.ConfigDict, values: Mapping[str, Any]) -> None:
  """Set fields by their dotted names; their types are checked with the settings."""
  with config.ignore_type():
    config.update_from_flattened_dict(values)


def expanded(
  config: ml_collections.ConfigDict, lists: Lists, read: Callable[[ml_collections.ConfigDict], Any]
) -> list[Any]:
  """The results of `read` for the config at every point of the product of the lists, the last list varying fastest.

  Raises SettingsError, by the name of the point, if one is refused.
  """
  grid = list[Any]()
  # Types are checked with the settings. A copy ignores them too, and `read` may change it.
  with config.ignore_type():
    for values in itertools.product(*lists.values()):
      point, one = dict(zip(lists, values)), config.copy_and_resolve_references()
      one.update_from_flattened_dict(point)
      with lists_lib.at(point):
        grid.append(read(one))
  return grid


def _class(config: Mapping[str, Any], classes: Classes) -> Any:
  """The class of settings of the experiment that a config names; raises SettingsError if there is none."""
  experiment = config.get('experiment')
  require(experiment in list(classes), 'experiment', experiment, f'one of {", ".join(classes)}')
  return classes[str(experiment)]


def from_config(config: ml_collections.ConfigDict, classes: Classes) -> Any:
  """The settings of the experiment that a config names, with the first value of each list in a scalar field.

  Raises SettingsError at the first field that is wrong.
  """
  first, _ = override(config, [], _class(config, classes))
  return from_record(first.to_dict(), classes)


def from_record(config: dict[str, Any], classes: Classes) -> Any:
  """The settings of the experiment that a config names, of a ConfigDict or of the `config.json` of a run.

  Raises SettingsError at the first field that is wrong.
  """
  return _read(_class(config, classes), config, '')


def _read(cls: Any, config: Any, prefix: str) -> Any:
  """An instance of the class, settings or the group at `prefix`, from a config with exactly its fields."""
  require(isinstance(config, dict), prefix.rstrip('.'), config, 'a group of fields')
  known = {field.name: field for field in dataclasses.fields(cls)}
  earlier = ((name, field.metadata.get('earlier', {})) for name, field in known.items())
  config = {name: value for name, value in earlier if value is not None} | config
  for name in sorted(set(config) ^ set(known)):
    fault = f'is not a field; valid are {", ".join(known)}'
    if name in known:
      fault = 'is missing from the config'
    elif name in gone.FIELDS:
      fault = f'is {config[name]!r:.300} and a field no more; valid is {gone.FIELDS[name]!r} or none'
    raise SettingsError(f'{prefix}{name} {fault}')
  values = {
    name: _converted(config[name], field) if field.metadata else _read(field.type, config[name], f'{prefix}{name}.')
    for name, field in known.items()
  }
  try:
    # The group names its fields as it sees them.
    return cls(**values)
  except SettingsError as error:
    raise SettingsError(f'{prefix}{error}')


def _converted(value: Any, field: dataclasses.Field) -> Any:
  """The value, with ints as floats in a field of floats, and JSON's lists as tuples."""
  kind, *_ = typing.get_args(field.type) or (field.type,)

  def entry(value: Any) -> Any:
    if kind is EndPoint and isinstance(value, dict):
      return _read(EndPoint, value, f'{field.name}.')
    return float(value) if kind is float and type(value) is int else value

  return tuple(map(entry, value)) if isinstance(value, (list, tuple)) else entry(value)
