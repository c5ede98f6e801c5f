"""ConfigDict in, settings out; and the configs that are shipped, by the name of their experiment."""

from collections.abc import Iterable, Iterator, Mapping
import dataclasses
import difflib
import pathlib
import runpy
from typing import Any

import ml_collections

from experiments.settings.fields import require, SettingsError

# Fields that runs on record may lack since they came later, by the value that says what those runs did; and groups of
# them that say nothing of what those runs did.
_CAME_LATER = {
  'debug_nans': False,
  'downstream.num_positions': 0,
  'downstream.label_state': 'first',
  'num_trials_by_size': (),
} | {
  f'distributed.{name}': value
  for name, value in dict(
    mode='off', coordinator_address='', num_processes=0, process_id=0, initialization_timeout=1, heartbeat_timeout=1
  ).items()
}
_UNUSED_THEN = ('on_test.', 'converged.', 'restarts.')

# The class of settings of each experiment, by its name.
Classes = Mapping[str, Any]

_SHIPPED = pathlib.Path(__file__).parents[2] / 'configs'


def from_config(config: ml_collections.ConfigDict, classes: Classes) -> Any:
  """The settings of the experiment that the config names; raises SettingsError at the first field that is wrong."""
  experiment = config.get('experiment')
  require(experiment in list(classes), 'experiment', experiment, f'one of {", ".join(classes)}')
  return _read(classes[experiment], config, '')


def replace(settings: Any, changes: dict[str, Any]) -> Any:
  """The settings with other values of the fields of these dotted names; raises SettingsError where one is wrong."""
  config = ml_collections.ConfigDict(dataclasses.asdict(settings), type_safe=False)
  config.update_from_flattened_dict(changes)
  return _read(type(settings), config, '')


def _read(cls: Any, config: Any, prefix: str) -> Any:
  names = [field.name for field in dataclasses.fields(cls)]
  for name in sorted(set(config.keys()) - set(names)):
    raise SettingsError(f'{prefix}{name} is no field of the config; valid are {", ".join(names)}')
  values = {}
  for field in dataclasses.fields(cls):
    name = prefix + field.name
    if field.name not in config:
      raise SettingsError(f'{name} is missing from the config')
    value = config[field.name]
    if field.metadata:
      values[field.name] = _as_floats(value, field.type)
    else:
      require(isinstance(value, ml_collections.ConfigDict), name, value, 'a group of fields')
      values[field.name] = _read(field.type, value, f'{name}.')
  try:
    return cls(**values)
  except SettingsError as error:
    raise SettingsError(f'{prefix}{error}')


def _as_floats(value: Any, kind: Any) -> Any:
  """The value, with a float for an int where the field holds floats."""
  if kind == tuple[float, ...] and isinstance(value, tuple):
    return tuple(_as_floats(x, float) for x in value)
  return float(value) if kind is float and type(value) is int and abs(value) < 2**53 else value


def from_record(recorded: dict[str, Any], classes: Classes) -> Any:
  """The settings of a run from its `config.json`.

  Raises SettingsError for a field that is missing, unless it came later than some records, and for one that is none.
  """

  def read(value: Any) -> Any:
    if isinstance(value, dict):
      return {name: read(entry) for name, entry in value.items()}
    return tuple(value) if isinstance(value, list) else value

  experiment, scale = str(recorded.get('experiment')), recorded.get('scale')
  require(experiment in list(classes), 'experiment', experiment, f'one of {", ".join(classes)}')
  scales = shipped(experiment)['SCALES']
  require(scale in scales, 'scale', scale, f'one of {", ".join(scales)}')
  config = shipped(experiment)['get_config'](scale)
  names = {name for name in _names(config.to_dict()) if not name.startswith(_UNUSED_THEN)}
  lacking = names - set(_names(recorded))
  unknown = sorted(lacking - set(_CAME_LATER))
  if unknown:
    raise SettingsError(f'a record lacks {", ".join(unknown)}; valid is one of a run that had all fields')
  config.update_from_flattened_dict({name: _CAME_LATER[name] for name in lacking})
  try:
    config.update(read(recorded))
  except (AttributeError, KeyError, TypeError, ValueError) as error:
    raise SettingsError(f'a record has fields that are none of {experiment}, {error}; valid is one of this version')
  return from_config(config, classes)


def _names(fields: dict[str, Any], prefix: str = '') -> list[str]:
  """Of all fields, with those of groups behind a dot."""
  one = lambda name, value: _names(value, f'{prefix}{name}.') if isinstance(value, dict) else [prefix + name]
  return [found for name, value in fields.items() for found in one(name, value)]


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
  """What the shipped config file of an experiment defines: `get_config`, `SCALES` and its docstring `__doc__`."""
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
