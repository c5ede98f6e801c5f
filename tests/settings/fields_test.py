"""Bad input of every field: one sentence with field, value and what is valid, 2, and nothing left."""

import math
import operator
import typing

from faults import bad_inputs
from hypothesis import given, settings as hypothesis_settings, strategies as st
import pytest

from experiments.settings import config as config_lib
from experiments.settings.fields import SettingsError
from experiments.studies import registry
from experiments.studies.registry import EXPERIMENTS

from . import bad_values

BOUNDS = {'least': operator.ge, 'above': operator.gt, 'most': operator.le, 'below': operator.lt}
FIELDS = [
  (experiment, name, field) for experiment, cls in registry.SETTINGS.items() for name, field in config_lib.fields(cls)
]


def _bad_field_values():
  """Every bad value of every field of every experiment that says what it takes."""
  for experiment, name, field in FIELDS:
    if name not in ('experiment', 'scale'):
      for _, text in bad_values.bad_texts(field):
        arguments = (f'--config={experiment}:smoke', '--mode=report', f'--config.{name}={text}')
        yield bad_inputs.Bad(arguments, (name, 'valid is'), any_of=bad_values.shown(text))


def _wrong(cases):
  return [f'{bad.arguments}: {why}' for bad in cases if (why := bad_inputs.verdict(bad))]


def _one_of_each_field():
  """Of the bad values of each field name one, each time the next in its list, so that every kind of each is met."""
  by_name = {}
  for bad in _bad_field_values():
    by_name.setdefault(bad.says[0], []).append(bad)
  return [cases[index % len(cases)] for index, cases in enumerate(by_name.values())]


def test_every_field_refuses_what_is_bad():
  """Below and above its range, no number at all, of another kind, twice, nested or torn: whatever it says of itself."""
  cases = _one_of_each_field()
  takes_any = {name for _, name, field in FIELDS if field.type is str and not field.metadata['choices']}
  assert {bad.says[0] for bad in cases} == {name for _, name, _ in FIELDS} - takes_any
  assert len(takes_any) < 10 and not _wrong(cases)


def _keeps(field, value):
  """Whether a value is what the field says: written apart from how it is checked."""
  entries, metadata = typing.get_args(field.type), field.metadata
  if entries:
    one = {**metadata, 'may_be_empty': False}
    is_tuple = type(value) is tuple and (value or metadata['may_be_empty'])
    return bool(is_tuple) and all(_is_one(entries[0], one, x) for x in value) and len({*value}) == len(value)
  return _is_one(field.type, metadata, value)


def _is_one(kind, metadata, value):
  if type(value) is not kind or (metadata['choices'] and value not in metadata['choices']):
    return False
  if kind in (int, float):
    return not math.isnan(value) and all(BOUNDS[name](value, bound) for name, bound in metadata['bounds'].items())
  return True


ATOMS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=3)
VALUES = st.recursive(ATOMS, lambda inner: st.lists(inner, max_size=3).map(tuple) | st.lists(inner, max_size=2))


@pytest.fixture(scope='module')
def configs():
  return {name: config_lib.shipped(name)['get_config']('smoke') for name in EXPERIMENTS}


@hypothesis_settings(max_examples=100)
@given(which=st.sampled_from(FIELDS), value=VALUES)
def test_any_value_is_refused_by_name_or_kept(configs, which, value):
  """A config may hold anything: settings keep what their field takes, and refuse all else by its name."""
  experiment, name, field = which
  config = configs[experiment].copy_and_resolve_references()
  with config.ignore_type():
    config.update_from_flattened_dict({name: value})
  try:
    settings = registry.from_config(config)
  except SettingsError as error:
    assert '\n' not in str(error) and 'valid' in str(error)
    assert name.rpartition('.')[2] in str(error) or _keeps(field, value)
  else:
    assert _keeps(field, operator.attrgetter(name)(settings))
