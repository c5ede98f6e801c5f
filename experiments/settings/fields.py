"""Fields of settings: what each means and which values it takes, said on the field, checked when a group is built."""

import dataclasses
import operator
import typing
from typing import Any

_BOUNDS = {
  'least': (operator.ge, 'at least'),
  'above': (operator.gt, 'above'),
  'most': (operator.le, 'at most'),
  'below': (operator.lt, 'below'),
}
# Characters of a value in a sentence.
_MOST_SHOWN = 300
_KINDS = {bool: 'True or False', int: 'an int', float: 'a number', str: 'a text'}


class SettingsError(ValueError):
  """Bad input, as one sentence for the user."""


def require(holds: bool, name: str, value: Any, valid: str) -> None:
  """Raises SettingsError, 'NAME is VALUE; valid is ...', unless it holds."""
  if not holds:
    raise SettingsError(f'{name} is {_shown(value)}; valid is {valid}')


def _shown(value: Any) -> str:
  """As Python writes it, cut where that is long."""
  try:
    text = repr(value)
  except ValueError:  # Python refuses to write an int of more than 4300 digits.
    return f'{type(value).__name__} too long to show'
  return text if len(text) <= _MOST_SHOWN else f'{text[:_MOST_SHOWN]}... ({len(text)} characters)'


def setting(
  meaning: str,
  *,
  choices: tuple[str, ...] = (),
  may_be_empty: bool = False,
  may_repeat: bool = False,
  **bounds: float,
) -> Any:
  """A field. Numbers have `bounds` by the names in _BOUNDS, by default positive and below 2**31, and texts
  may have `choices`; of a tuple both speak of each entry, and entries are distinct unless they `may_repeat`."""
  lower = {} if {'least', 'above'} & set(bounds) else {'above': 0}
  upper = {} if {'most', 'below'} & set(bounds) else {'below': 2**31}
  allowed = dict(may_be_empty=may_be_empty, may_repeat=may_repeat, bounds={**lower, **bounds, **upper})
  return dataclasses.field(metadata=dict(meaning=meaning, choices=choices, **allowed))


def _kind(field: dataclasses.Field) -> tuple[Any, bool]:
  """The type of a field or, where it is a tuple, of its entries; and whether it is one."""
  entries = typing.get_args(field.type)
  return (entries[0], True) if entries else (field.type, False)


def valid_values(field: dataclasses.Field) -> str:
  """The values that a field takes, in words."""
  entry, several = _kind(field)
  words = [f'{_BOUNDS[name][1]} {bound}' for name, bound in field.metadata['bounds'].items()]
  text = ' and '.join(words).replace('above 0 ', 'positive ').replace(str(2**31), '2**31')
  if entry not in (int, float):
    text = ', '.join(field.metadata['choices'])
  if several:
    ones = f'ones of {text}' if text else 'texts'
    text = f'{entry.__name__}s, each {text}' if entry is not str else ones
    distinct = '' if field.metadata['may_repeat'] else 'distinct '
    return f'a tuple of {distinct}{text}' + (', or ()' if field.metadata['may_be_empty'] else '')
  if field.metadata['choices']:
    return f'one of {text}'
  return f'{_KINDS[entry]}, {text}' if text else _KINDS[entry]


def _takes(field: dataclasses.Field, value: Any) -> bool:
  entry, several = _kind(field)
  if several and (type(value) is not tuple or not (value or field.metadata['may_be_empty'])):
    return False
  values, choices = value if several else (value,), field.metadata['choices']
  bounds = field.metadata['bounds'].items() if entry in (int, float) else ()
  fits = lambda x: type(x) is entry and all(_BOUNDS[name][0](x, bound) for name, bound in bounds)
  are_fit = all(fits(x) and (not choices or x in choices) for x in values)
  return are_fit and (field.metadata['may_repeat'] or len(set(values)) == len(values))


@typing.dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(setting,))
class Group:
  """Fields, and groups of them; each subclass is a frozen dataclass."""

  __dataclass_fields__: typing.ClassVar[dict[str, Any]]

  def __init_subclass__(cls) -> None:
    dataclasses.dataclass(frozen=True, kw_only=True)(cls)

  def __post_init__(self) -> None:
    for field in dataclasses.fields(self):
      if field.metadata:
        value = getattr(self, field.name)
        require(_takes(field, value), field.name, value, valid_values(field))
    self.check()

  def check(self) -> None:
    """Raises SettingsError where fields do not fit each other; names are as seen from this group."""
