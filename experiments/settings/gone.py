"""Fields of settings and methods that are gone, and records that name them without these."""

from typing import Any

# Each with the one value with which the other records of a folder stay what they are. Some are in groups of one name.
FIELDS = {
  'attention': 'xla',
  'b2': 0.999,
  'decay': 'linear',
  'deterministic': False,
  'fast_compilation': False,
  'fsdp': 1,
  'initialization_timeout': 120,
  'joint': 2,
  'keep_checkpoints': False,
  'key_size': 0,
  'mask_share': 0.8,
  'max_certificates': 1000,
  'max_rounds': 4,
  'num_permutations': 0,
  'partition': 0,
  'place': 'before',
  'random_share': 0.1,
  'reach': 1,
  'ridges': (1e-6, 1e-4),
  'scan_layers': False,
  'short_context_levels': (1e-3, 1e-2),
  'temperature': 1.0,
  'token_classes': 0,
  'value_size': 0,
}
# Of these any value leaves all records what they are.
_OF_NO_RECORD = ('debug_nans', 'fast_compilation', 'fsdp', 'keep_checkpoints')
_METHODS = ('joint', 'joint_converged')


def settings_without(values: dict[str, Any]) -> dict[str, Any]:
  """Settings on record, by the dotted names of their fields, without what is gone.

  A field of another value stays, so that these settings are refused.
  """
  kept = dict[str, Any]()
  for name, value in values.items():
    _, _, last = name.rpartition('.')
    if isinstance(value, tuple):
      value = tuple(one for one in value if one not in _METHODS)
    if last not in _OF_NO_RECORD and (last, value) not in FIELDS.items():
      kept[name] = value
  return kept


def is_of_method(record: dict[str, Any]) -> bool:
  """True for a record of a method that is gone."""
  return record.get('method') in _METHODS
