"""ConfigDict in, settings out; and the configs that are shipped, by the name of their experiment."""

from collections.abc import Iterable, Iterator, Mapping
import dataclasses
import difflib
import pathlib
import runpy
from typing import Any

import ml_collections

from experiments.settings.fields import require, SettingsError

# The class of settings of each experiment, by its name.
Classes = Mapping[str, Any]

_SHIPPED = pathlib.Path(__file__).parents[2] / 'configs'


def from_config(config: ml_collections.ConfigDict, classes: Classes) -> Any:
  """The settings of the experiment that the config names; raises SettingsError at the first field that is wrong."""
  return _settings(config.to_dict(), classes)


def from_record(recorded: dict[str, Any], classes: Classes) -> Any:
  """The settings of a run from its `config.json`, where tuples are lists; raises SettingsError likewise."""

  def with_tuples(value: Any) -> Any:
    if isinstance(value, dict):
      return {name: with_tuples(entry) for name, entry in value.items()}
    return tuple(value) if isinstance(value, list) else value

  return _settings(with_tuples(recorded), classes)


def _settings(config: dict[str, Any], classes: Classes) -> Any:
  experiment = config.get('experiment')
  require(experiment in list(classes), 'experiment', experiment, f'one of {", ".join(classes)}')
  return _read(classes[str(experiment)], config, '')


def replace(settings: Any, changes: dict[str, Any]) -> Any:
  """The settings with other values of the fields of these dotted names; raises SettingsError where one is wrong."""
  config = ml_collections.ConfigDict(dataclasses.asdict(settings), type_safe=False)
  config.update_from_flattened_dict(changes)
  return _read(type(settings), config.to_dict(), '')


def _read(cls: Any, config: dict[str, Any], prefix: str) -> Any:
  names = [field.name for field in dataclasses.fields(cls)]
  for name in sorted(set(config) - set(names)):
    raise SettingsError(f'{prefix}{name} is no field of the config; valid are {", ".join(names)}')
  values = {}
  for field in dataclasses.fields(cls):
    name = prefix + field.name
    if field.name not in config:
      raise SettingsError(f'{name} is missing from the config')
    value = config[field.name]
    if field.metadata:
      values[field.name] = _converted(value, field)
    else:
      require(isinstance(value, dict), name, value, 'a group of fields')
      values[field.name] = _read(field.type, value, f'{name}.')
  try:
    return cls(**values)
  except SettingsError as error:
    raise SettingsError(f'{prefix}{error}')


def _converted(value: Any, field: dataclasses.Field) -> Any:
  """The value, with a float for an int where the field holds floats, and names between commas one by one."""
  as_float = lambda x: float(x) if type(x) is int and abs(x) < 2**53 else x
  if isinstance(value, tuple) and field.type == tuple[float, ...]:
    return tuple(map(as_float, value))
  if isinstance(value, tuple) and field.metadata['choices'] and all(isinstance(x, str) for x in value):
    return tuple(name for x in value for name in x.split(','))
  return as_float(value) if field.type is float else value


def fields(cls: Any, prefix: str = '') -> Iterator[tuple[str, dataclasses.Field]]:
  """Every field of a class by its dotted name, those of its groups included."""
  for field in dataclasses.fields(cls):
    if field.metadata:
      yield prefix + field.name, field
    else:
      yield from fields(field.type, f'{prefix}{field.name}.')


def field_names(experiment: str, classes: Classes) -> list[str]:
  """Every field of the experiment by its dotted name; of every one where there is none of that name."""
  chosen = [classes[experiment]] if experiment in classes else classes.values()
  return sorted({name for cls in chosen for name, _ in fields(cls)})


def shipped(experiment: str) -> dict[str, Any]:
  """The definitions of an experiment's shipped config file: `get_config`, `SCALES` and its docstring `__doc__`."""
  return runpy.run_path(str(_SHIPPED / f'{experiment}.py'))


def locate(config: str, experiments: Iterable[str]) -> str:
  """PATH[:scale] of PATH[:scale] or NAME[:scale].

  A path is whatever is a file, ends in .py or has a slash; anything else is the name of a shipped config. Raises
  SettingsError where there is no such file or name.
  """
  name, colon, scale = config.partition(':')
  path = pathlib.Path(name)
  try:
    is_file = path.is_file()
  except OSError as error:
    raise SettingsError(f'--config is {config[:80]!r}, which is no path ({error.strerror}); valid is a path, or a name')
  if is_file:
    return config
  if path.suffix == '.py' or '/' in name:
    what = 'is a directory' if path.is_dir() else 'does not exist'
    raise SettingsError(f'--config is {config!r}, which {what}; valid is the path of a config file, or a name')
  names = list(experiments)
  if name not in names:
    nearest = difflib.get_close_matches(name, names, n=1, cutoff=0) or names
    valid = f'a path, or one of {", ".join(names)}; the nearest is {nearest[0]}'
    raise SettingsError(f'--config is {config!r}; valid is {valid}')
  return f'{_SHIPPED / name}.py{colon}{scale}'
