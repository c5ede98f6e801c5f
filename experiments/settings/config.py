"""From a config file and the command line to checked settings."""

from collections.abc import Callable, Collection, Mapping
import contextlib
import dataclasses
import difflib
import itertools
import math
import operator
import os
import pathlib
import re
import runpy
import typing
from typing import Any

from absl import flags
import ml_collections
from ml_collections import config_flags

from experiments.settings import lists as lists_lib
from experiments.settings.fields import fields, require, SettingsError, users_program, valid_values
from experiments.settings.lists import Lists
from experiments.settings.plan import EndPoint
from experiments.settings.trial import trials

# The class of settings of each experiment, by its name.
Classes = Mapping[str, Any]
Flags = flags.FlagValues

# The default scale with other numbers, those of the config file's `reduce`.
_SMOKE = 'smoke'
_SHIPPED = pathlib.Path(__file__).parents[2] / 'configs'
# A word of a command line that names a field, such as --config.seed=1, --config.seed or --noconfig.debug_nans.
_FIELD = re.compile(r'--?(?:no)?config\.([^=]*)')


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
  if scale is not None and 'SCALES' in program and scale not in valid:
    raise ValueError(f'config scale is {scale!r}; valid are {", ".join(valid)}')
  if scale != _SMOKE or 'reduce' not in program:
    return program['get_config'](*[scale] * (scale is not None))
  config = program['get_config']()
  program['reduce'](config)
  config.scale = scale
  return config


def parse(
  argv: list[str],
  classes: Classes,
  grids: Collection[str],
  modes: Collection[str],
  is_kept: Callable[[str, str, str, str], bool] = lambda *field: False,
) -> tuple[Flags, Any, Lists]:
  """The flags, the config, None if none is needed, and the lists in its scalar fields.

  In the config the first of its values stands for a list. `grids` are the experiments whose fields take lists.
  `is_kept` tells for a field and a text whether a workdir, or a folder of pretrained models, has a copy of what the
  text names as a whole. Raises SettingsError for a bad command line.
  """
  values = flags.FlagValues()
  # --config.FIELD=VALUE may stand between the flags; it is parsed once the config is loaded.
  values.set_gnu_getopt()
  for name in ('config', 'workdir', 'trials', 'pretrained'):
    flags.DEFINE_string(name, '', '', flag_values=values)
  flags.DEFINE_enum('mode', 'run', list(modes), '', flag_values=values)
  flags.DEFINE_bool('help', False, '', short_name='h', flag_values=values)
  flags.DEFINE_bool('list', False, '', flag_values=values)
  config, lists = None, Lists()
  try:
    words = values(argv, known_only=True)
  except (flags.Error, ValueError) as error:
    raise SettingsError(' '.join(str(error).split()))
  verifies = values.mode == 'verify'
  is_flag = re.compile(r'--(?!(?:no)?config\.)').match
  if not any(map(is_flag, words)) and (values.config or not (values.help or values.list or verifies)):
    config = load(values.config, classes)
    folders = lambda config: (workdir(values, config), str(config.get('pretrained') or ''))
    of_config = lambda config, name, text: is_kept(name, text, *folders(config))
    config, words, lists = override(config, words, classes, grids, of_config)
  for word in [*filter(is_flag, words), *words[1:]]:
    valid = ', '.join(f'--{name}' for name in values)
    raise SettingsError(f'unknown argument {word!r}; valid are --config.FIELD=VALUE, {valid}')
  require(verifies or not values.pretrained, '--pretrained', values.pretrained, 'empty unless --mode is verify')
  if config and not verifies:
    _check_mode(values, config.experiment, config.experiment in grids)
  return values, config, lists


def workdir(values: Flags, config: Mapping[str, Any]) -> str:
  """The folder of records of a command line."""
  return values.workdir or f'runs/{config["experiment"]}-{config["scale"]}'


def _check_mode(values: Flags, experiment: str, is_grid: bool) -> None:
  """Raise SettingsError unless the experiment has the mode, and --trials can choose some."""
  valid = f'run or report: {experiment} is not a grid of trials'
  require(is_grid or values.mode in ('run', 'report'), '--mode', values.mode, valid)
  valid = 'empty unless --mode is run, on a grid of trials'
  require((is_grid and values.mode == 'run') or not values.trials, '--trials', values.trials, valid)


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
  return [match[1] for match in map(_FIELD.match, words) if match]


def override(
  config: ml_collections.ConfigDict,
  words: list[str],
  classes: Classes,
  grids: Collection[str],
  is_kept: Callable[[ml_collections.ConfigDict, str, str], bool] = lambda config, name, text: False,
) -> tuple[ml_collections.ConfigDict, list[str], Lists]:
  """The config with the fields that words of a command line set, --config.FIELD=VALUE, other words, and the lists.

  The last value of a repeated field counts. A comma in the name of a file that exists or `is_kept` is part
  of the name. Raises SettingsError for an unknown field or a value of the wrong type; lists and ranges are checked
  later.
  """
  known = dict(fields(_class(config, classes)))
  for name in named(words):
    if name in ('experiment', 'scale'):
      raise SettingsError(f'--config.{name} is set by --config=NAME:SCALE; valid is any other field')
    if name not in known:
      last = name.rpartition('.')[-1]
      alike = [field for field in known if field.rpartition('.')[-1] == last]
      alike = alike or difflib.get_close_matches(name, known, n=1, cutoff=0)
      meant = ' or '.join(f'--config.{field}' for field in alike)
      raise SettingsError(f'--config.{name} is not a field of this config; did you mean {meant}?')
  takes: dict[str, Any] = {
    name: field for name, field in known.items() if config.experiment in grids and lists_lib.takes(name, field)
  }
  lists, single, paths = Lists(), list[str](), dict[str, str]()
  for name, field in takes.items():
    # A config that lacks a field is refused with the settings.
    with contextlib.suppress(AttributeError):
      if type(values := operator.attrgetter(name)(config)) is tuple:
        lists[name] = values
        _set(config, {name: field.type()})
  config = config.copy_and_resolve_references()
  for word in words:
    flag, _, text = word.partition('=')
    name = ''.join(named([flag]))
    lists.pop(name, None)
    paths.pop(name, None)
    values = lists_lib.split(takes[name], text) if name in takes else ()
    if values and name in lists_lib.GIVEN:
      paths[name] = text
    elif values:
      lists[name] = values
    else:
      single.append(word)
  others = _parsed(config, _last_of_tuples(single, known), known)
  # Whether a comma is part of a name depends on folders that other fields name.
  for name, text in paths.items():
    if os.path.exists(os.path.expanduser(text)) or is_kept(config, name, text):
      _set(config, {name: text})
    else:
      lists[name] = lists_lib.split(takes[name], text)
  for name, values in lists.items():
    is_whole = '' not in values and len(set(values)) == len(values) > 0
    require(is_whole, name, values, 'a list of distinct values, none of them empty')
  return config, others, lists


def _last_of_tuples(words: list[str], known: Mapping[str, dataclasses.Field]) -> list[str]:
  """The words without those of a tuple that a later word sets: absl would join the values."""
  kept, seen = list[str](), set[str]()
  for word in reversed(words):
    name = ''.join(named([word]))
    is_earlier = name and name in seen and typing.get_args(known[name].type)
    has_value = '=' in word or (kept and not kept[-1].startswith('-'))
    if not is_earlier or not has_value or word.startswith('--no'):
      kept.append(word)
    elif '=' not in word:
      # The next word is its value.
      kept.pop()
    seen.add(name)
  return kept[::-1]


def _set(config: ml_collections.ConfigDict, values: Mapping[str, Any]) -> None:
  """Set fields by their dotted names; their types are checked with the settings."""
  try:
    config.update_from_flattened_dict(values)
  except (TypeError, ValueError):
    # Slow, so the plain way is tried first.
    with config.ignore_type():
      config.update_from_flattened_dict(values)


def _parsed(config: ml_collections.ConfigDict, words: list[str], known: Mapping[str, dataclasses.Field]) -> list[str]:
  """Set the fields that words name; return the other words."""
  values = flags.FlagValues()
  # As in `main`: other words may stand between those of fields.
  values.set_gnu_getopt()
  try:
    config_flags.DEFINE_config_dict('config', config, flag_values=values, sys_argv=words)
    return values(words, known_only=True)
  except Exception as error:
    # Errors of absl, of ml_collections and of their parsers have no class in common. Those of a value begin alike.
    reason = ' '.join(str(error).split())
    name = reason.removeprefix('flag --config.').partition('=')[0]
    raise SettingsError(f'{reason}; valid is {valid_values(known[name])}' if name in known else reason)


def expanded(
  config: ml_collections.ConfigDict, lists: Lists, read: Callable[[ml_collections.ConfigDict], Any]
) -> list[Any]:
  """The results of `read` for the config at every point of the product of the lists, the last list varying fastest.

  Raises SettingsError, by the name of the point, if one is refused.
  """
  grid = list[Any]()
  for values in itertools.product(*lists.values()):
    point, one = dict(zip(lists, values)), config.copy_and_resolve_references()
    _set(one, point)
    with lists_lib.at(point):
      grid.append(read(one))
    if lists and len(grid) == 1:
      count = len(trials(grid[0])) * math.prod(map(len, lists.values()))
      require(count <= lists_lib.MOST, 'the number of trials of the grid', count, f'at most {lists_lib.MOST:,}')
  for name in lists.keys() & set(lists_lib.GIVEN):
    # The same content by two names would make every record twice.
    contents = {getattr(settings, name).rpartition('-')[2] for settings in grid}
    require(len(contents) == len(lists[name]), name, lists[name], 'a list without two names of one content')
  return grid


def _class(config: Mapping[str, Any], classes: Classes) -> Any:
  experiment = config.get('experiment')
  require(experiment in list(classes), 'experiment', experiment, f'one of {", ".join(classes)}')
  return classes[str(experiment)]


def from_record(config: dict[str, Any], classes: Classes) -> Any:
  """The settings of the experiment that a config names, of a ConfigDict or of the `config.json` of a run.

  Raises SettingsError at the first field that is wrong.
  """
  return _read(_class(config, classes), config, '')


def _read(cls: Any, config: Any, prefix: str) -> Any:
  """An instance of the class, settings or the group at `prefix`, from a config with exactly its fields."""
  require(isinstance(config, dict), prefix, config, 'a group of fields')
  known = {field.name: field for field in dataclasses.fields(cls)}
  earlier = {name: field.metadata.get('earlier', {}) for name, field in known.items()}
  config = {name: value for name, value in earlier.items() if value is not None} | config
  for name in sorted(set(config) ^ set(known)):
    fault = 'is missing from the config' if name in known else f'is not a field; valid are {", ".join(known)}'
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
  """The value, with ints as floats in a field of floats, comma-separated names split, and JSON's lists as tuples."""
  holds_floats = field.type in (float, tuple[float, ...])
  as_float = lambda x: float(x) if holds_floats and type(x) is int else x
  if not isinstance(value, (list, tuple)):
    return as_float(value)
  entry = typing.get_args(field.type)[:1]
  if entry == (EndPoint,):
    return tuple(_read(EndPoint, one, f'{field.name}.') for one in value)
  if value and field.metadata['choices'] and all(isinstance(x, str) for x in value):
    return tuple(map(str.strip, ','.join(value).split(',')))
  return tuple(map(as_float, value))
