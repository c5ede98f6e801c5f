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
from experiments.settings.grid import Settings

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
  if scale != _SMOKE or _SMOKE not in valid:
    return program['get_config'](*filter(None, [scale]))
  config = program['get_config']()
  program['reduce'](config)
  config.scale = scale
  return config


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


def parse(argv: list[str], classes: Classes, modes: Collection[str]) -> tuple[Flags, Values, list[str]]:
  """The flags, the values of a config, {} if none is needed, and the fields that the command line sets.

  The last value of a repeated field counts; a field without a value is True. Raises SettingsError for a bad command
  line; values are checked with the settings.
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
  valid = ', '.join(f'--{name}' for name in vars(flags))
  texts = {}
  for word in words:
    require(word.startswith(_PREFIX), 'an argument', word, f'--config.FIELD=VALUE, {valid}')
    name, has_value, text = word.removeprefix(_PREFIX).partition('=')
    texts[name] = text if has_value else 'True'
  verifies = flags.mode == 'verify'
  require(verifies or not flags.pretrained, '--pretrained', flags.pretrained, 'empty unless --mode is verify')
  if not flags.config and (flags.help or flags.list or verifies):
    return flags, {}, []
  values = load(flags.config, classes)
  cls = class_of(values, classes)
  is_grid = cls is Settings
  valid = 'run or report, if the experiment is not a grid of trials'
  require(is_grid or flags.mode in ('run', 'report'), '--mode', flags.mode, valid)
  takes_trials = is_grid and flags.mode in ('run', 'verify')
  valid = 'empty, but for a grid of trials with --mode=run or --mode=verify'
  require(takes_trials or not flags.trials, '--trials', flags.trials, valid)
  return flags, override(values, texts, cls), [*texts]


def load(config: str, experiments: Collection[str]) -> Values:
  """The values of the config PATH[:scale] or NAME[:scale]: PATH is an existing file, NAME a shipped config.

  Raises SettingsError if there is no such file or name, or the file fails.
  """
  name, *scale = os.path.expanduser(config).split(':', 1)
  is_file = os.path.isfile(name)
  valid = f'the path of a config file, or one of {", ".join(experiments)}, with an optional :SCALE'
  require(is_file or name in experiments, '--config', config, valid)
  with users_program('--config', config, 'a Python file whose get_config returns a ConfigDict'):
    program = runpy.run_path(name) if is_file else shipped(name)
    return flat(at_scale(program, *scale).to_dict())


def override(values: Values, texts: Mapping[str, str], cls: Any) -> Values:
  """The values with those of texts by field, the last; several with commas are a list if the field takes one.

  A comma in the name of a file that exists is part of the name.
  """
  known, taking = dict(fields(cls)), lists.taking(cls)
  check_known(texts, known)
  read = {}
  for name, text in texts.items():
    require(name not in ('experiment', 'scale'), f'--config.{name}', text, 'what --config=NAME:SCALE says')
    kind = known[name].type
    if name in taking and ',' in text and not os.path.exists(os.path.expanduser(text)):
      read[name] = tuple(_value(part.strip(), kind) for part in text.split(','))
    else:
      read[name] = _value(text, kind)
  return {name: value for name, value in values.items() if name not in read} | read


def _value(text: str, kind: Any) -> Any:
  """The value that a text has in a field of this type; the text itself if it has none, which the settings refuse."""
  if kind is str:
    return text
  try:
    value = ast.literal_eval(text.capitalize() if kind is bool else text)
  except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
    value = tuple(part.strip() for part in text.split(','))
  if typing.get_args(kind):
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)
  return value if isinstance(value, (bool, int, float)) else text


def points(values: Values, cls: Any) -> list[Values]:
  """The values at each point of the product of the lists, tuples in scalar fields; the last varies fastest."""
  taking = lists.taking(cls)
  several = {name: value for name, value in values.items() if name in taking and type(value) is tuple}
  for name, value in several.items():
    scalars = all(isinstance(one, (bool, int, float, str)) for one in value)
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
