"""Fields of settings and methods that are gone, and records that name them without these."""

from typing import Any

# Each with the one value with which the other records of a folder stay what they are.
_FIELDS = {'downstream.token_classes': 0, 'downstream.partition': 0, 'masks.joint': 2}
_METHODS = ('joint', 'joint_converged')


def settings_without(content: dict[str, Any], prefix: str = '') -> dict[str, Any]:
  """Settings on record, or their group at `prefix`, without what is gone.

  A field of another value stays, so that these settings are refused.
  """
  kept = dict[str, Any]()
  for name, value in content.items():
    if isinstance(value, dict):
      kept[name] = settings_without(value, f'{prefix}{name}.')
    elif name in ('methods', 'vanilla_methods') and isinstance(value, list):
      kept[name] = [method for method in value if method not in _METHODS]
    elif (f'{prefix}{name}', value) not in _FIELDS.items():
      kept[name] = value
  return kept


def is_of_method(record: dict[str, Any]) -> bool:
  """True for a record of a method that is gone."""
  return record.get('method') in _METHODS
