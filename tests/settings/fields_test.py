"""Fields: which values they take, and that each refuses bad input by its name."""

import pytest

from experiments.settings import config as config_lib
from experiments.settings.fields import Group, setting, SettingsError
from experiments.studies import registry
from experiments.studies.registry import EXPERIMENTS


class Fields(Group):
  """One field of each kind."""

  count: int = setting('positive')
  size: int = setting('within bounds that belong to it', least=2, most=5)
  share: float = setting('within bounds that do not', above=0, below=1)
  flag: bool = setting('a truth value')
  name: str = setting('a choice', choices=('paper', 'official'))
  numbers: tuple[int, ...] = setting('numbers', least=0)
  choices: tuple[str, ...] = setting('any number of choices', choices=('a', 'b'), may_be_empty=True)


GOOD = dict(count=1, size=2, share=0.5, flag=True, name='paper', numbers=(1,), choices=('a',))


@pytest.mark.parametrize(
  ('field', 'taken', 'refused'),
  [
    ('count', [1, 2**40], [0, 1.0, True, '1', None]),
    ('size', [2, 5], [1, 6]),
    ('share', [1e-300, 0.999], [0.0, 1.0, float('nan'), '0.5']),
    ('flag', [False], [1, None]),
    ('name', ['official'], ['Paper', None]),
    ('numbers', [(0, 1), (3,)], [(), 1, [1], (-1,), (True,)]),
    ('choices', [(), ('b', 'a')], ['a', ('c',)]),
  ],
)
def test_a_field_takes_only_its_type_and_range(field, taken, refused):
  """Each bound belongs to the range or not, as its name says; the refusal names field, value and what is valid."""
  for value in taken:
    assert getattr(Fields(**{**GOOD, field: value}), field) == value
  for value in refused:
    with pytest.raises(SettingsError) as error:
      Fields(**{**GOOD, field: value})
    assert str(error.value).startswith(f'{field} is {value!r:.300}; valid is ') and '\n' not in str(error.value)


@pytest.mark.parametrize('experiment', EXPERIMENTS)
def test_every_field_has_a_range(experiment):
  """A config may hold anything else: the settings refuse it by the field's dotted name."""
  shipped = config_lib.shipped(experiment)
  for name, _ in config_lib.fields(registry.SETTINGS[experiment]):
    config = config_lib.at_scale(shipped)
    with config.ignore_type():
      config.update_from_flattened_dict({name: b'bytes'})
    with pytest.raises(SettingsError, match=rf"^{name} is b'bytes'; valid is "):
      registry.from_config(config)
