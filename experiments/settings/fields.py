"""Fields of settings, each with its meaning and valid values, checked when a group is built."""

from collections.abc import Iterator, Mapping
import contextlib
import dataclasses
import difflib
import hashlib
import json
import operator
import typing
from typing import Any

from experiments.settings import gone

# Settings by the dotted names of their fields.
Values = dict[str, Any]

_BOUNDS = {
  'least': (operator.ge, 'at least'),
  'above': (operator.gt, 'above'),
  'most': (operator.le, 'at most'),
  'below': (operator.lt, 'below'),
}
# The bound of numbers that have no other upper one: they are finite, and have 64 bits.
_LARGEST = 1e18


class SettingsError(ValueError):
  """Bad input, as one sentence for the user."""


class Ended(BaseException):
  """A run ends from outside its code; no Exception, so that code that goes on after a failure stops too."""


@contextlib.contextmanager
def users_program(field: str, value: str, valid: str) -> Iterator[None]:
  """Raise SettingsError, 'FIELD is VALUE, which raised ERROR; valid is ...', for all that a user's program may raise.

  It may exit or interrupt too. An error that says itself what is valid has the last word.
  """
  try:
    yield
  except Ended:
    raise
  except BaseException as error:
    end = '' if '; valid ' in str(error) else f'; valid is {valid}'
    raise SettingsError(f'{field} is {value!r}, which raised {error!r:.300}{end}') from error


def require(holds: Any, name: str, value: Any, valid: str) -> None:
  """Raise SettingsError, 'NAME is VALUE; valid is ...', unless it holds; cut the value at 300 characters."""
  if not holds:
    raise SettingsError(f'{name} is {value!r:.300}; valid is {valid}')


def printable(text: str, kept: str = '') -> str:
  r"""Replace unprintable characters, except those in `kept`, with escapes such as \x1b."""
  return ''.join(char if char.isprintable() or char in kept else repr(char)[1:-1] for char in text)


def setting(
  meaning: str,
  *,
  choices: tuple[str, ...] = (),
  may_be_empty: bool = False,
  earlier: Any = None,
  **bounds: float,
) -> Any:
  """A field. Numbers have `bounds`, named as in _BOUNDS, by default positive and below _LARGEST; texts may have
  `choices`. In a tuple both apply to each entry. Settings that were written before the field existed have the value
  `earlier`, with which it is no part of an id; None: it was always there."""
  if not {'least', 'above'} & set(bounds):
    bounds['above'] = 0
  if not {'most', 'below'} & set(bounds):
    bounds['below'] = _LARGEST
  allowed = dict(choices=choices, may_be_empty=may_be_empty, earlier=earlier)
  return dataclasses.field(metadata=dict(meaning=meaning, bounds=bounds, **allowed))


def _kind(field: dataclasses.Field) -> tuple[Any, bool]:
  """The type of a field, or of its entries if it is a tuple; and True if it is one."""
  entries = typing.get_args(field.type)
  return (entries[0], True) if entries else (field.type, False)


def valid_values(field: dataclasses.Field) -> str:
  """The values that a field takes, in words."""
  (entry, several), allowed = _kind(field), field.metadata
  valid = f'one of {", ".join(allowed["choices"])}' if allowed['choices'] else entry.__name__
  if entry in (int, float):
    valid += ''.join(f', {_BOUNDS[name][1]} {bound}' for name, bound in allowed['bounds'].items())
  return f'a tuple of entries, each {valid}' + ', or ()' * allowed['may_be_empty'] if several else valid


def _takes(field: dataclasses.Field, value: Any) -> bool:
  """True if the value, or each entry of a tuple, has the field's type, is one of its choices and within its bounds."""
  (entry, several), allowed = _kind(field), field.metadata
  values = value if several else (value,)
  bounds = allowed['bounds'].items() if entry in (int, float) else ()
  return (
    type(values) is tuple
    and bool(values or allowed['may_be_empty'])
    # A bool is no int here, and no NaN is within bounds.
    and all(type(x) is entry for x in values)
    and all(_BOUNDS[name][0](x, bound) for name, bound in bounds for x in values)
    and (not allowed['choices'] or set(values) <= set(allowed['choices']))
  )


@typing.dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(setting,))
class Group:
  """Fields, and groups of them; each subclass is a frozen dataclass."""

  __dataclass_fields__: typing.ClassVar[dict[str, Any]]
  # Fields that are gone, whose one value is still part of ids.
  gone: typing.ClassVar[tuple[str, ...]] = ()

  def __init_subclass__(cls) -> None:
    dataclasses.dataclass(frozen=True, kw_only=True)(cls)

  def __post_init__(self) -> None:
    for field in dataclasses.fields(self):
      # A group has no metadata, and has checked itself.
      if field.metadata:
        self.require(field.name, _takes(field, getattr(self, field.name)), valid_values(field))
    self.check_fields()

  def check_fields(self) -> None:
    """Raise SettingsError if fields do not fit each other; it names them relative to this group."""

  def require(self, name: str, holds: Any, valid: str) -> None:
    """`require` of the field of this dotted name."""
    require(holds, name, operator.attrgetter(name)(self), valid)


def deciding(group: Group) -> dict[str, Any]:
  """The values of a group that ids are made of: all but the `earlier` ones of later fields, and what is gone."""
  values = {name: gone.FIELDS[name] for name in group.gone}
  for field in dataclasses.fields(group):
    value = getattr(group, field.name)
    value = deciding(value) if isinstance(value, Group) else value
    # A group of later fields alone may be empty.
    if value != field.metadata.get('earlier', {}):
      values[field.name] = value
  return values


def fields(cls: Any, prefix: str = '') -> Iterator[tuple[str, dataclasses.Field]]:
  """Every field of a class by its dotted name, those of its groups included."""
  for field in dataclasses.fields(cls):
    if field.metadata:
      yield prefix + field.name, field
    else:
      yield from fields(field.type, f'{prefix}{field.name}.')


def flat(content: Mapping[str, Any], prefix: str = '') -> Values:
  """The fields of settings by their dotted names, with tuples for lists."""
  values = Values()
  for name, value in content.items():
    dotted = f'{prefix}{name}'
    # An empty group stays, and is refused.
    if isinstance(value, dict) and value:
      values |= flat(value, f'{dotted}.')
    else:
      values[dotted] = tuple(value) if isinstance(value, list) else value
  return values


def built(cls: Any, values: Values, prefix: str = '') -> Any:
  """Settings of a class, or the group at `prefix`; raises SettingsError at the first field that is wrong."""
  check_known(values, dict(fields(cls, prefix)))
  return _group(cls, values, prefix)


def check_known(values: Mapping[str, Any], known: Mapping[str, Any]) -> None:
  """Raise SettingsError at the first name that is none of a field, with those of its group, or the nearest."""
  for name in sorted(values.keys() - known):
    of_group = [one for one in known if one.startswith(f'{name}.')]
    held = None if of_group else gone.FIELDS.get(name.rpartition('.')[2])
    require(held is None, name, values[name], f'no value: the field is gone, and {held!r} holds')
    alike = ' or '.join(of_group or difflib.get_close_matches(name, known, cutoff=0))
    raise SettingsError(f'{name} is {values[name]!r:.300}, and not a field; did you mean {alike}?')


def _group(cls: Any, values: Values, prefix: str) -> Any:
  """The group at `prefix`, whose errors name fields by their dotted names."""
  made = Values()
  for field in dataclasses.fields(cls):
    name = prefix + field.name
    if field.metadata:
      # A field that is missing is None, which it refuses.
      value = values.get(name, field.metadata['earlier'])
      made[field.name] = _converted(value, field.type, name)
    else:
      made[field.name] = _group(field.type, values, f'{name}.')
  try:
    return cls(**made)
  except SettingsError as error:
    raise SettingsError(f'{prefix}{error}')


def _converted(value: Any, kind: Any, name: str) -> Any:
  """The value in a field of this type, with ints as floats."""
  entries = typing.get_args(kind)
  if entries and isinstance(value, tuple):
    return tuple(_converted(entry, entries[0], name) for entry in value)
  if isinstance(value, dict) and dataclasses.is_dataclass(kind):
    return built(kind, flat(value, f'{name}.'), f'{name}.')
  return float(value) if kind is float and type(value) is int and abs(value) < _LARGEST else value


def digest(parts: list[Any]) -> str:
  """Twelve hexadecimal digits that name settings by their values."""
  text = json.dumps(parts, default=deciding, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()[:12]
