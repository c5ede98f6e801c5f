"""Settings of the theory experiment: valid scales, and refusals that name the field and its value."""

import pytest

from configs import theory
from experiments.settings.fields import SettingsError
from experiments.studies import registry


def _settings(scale='small', **changes):
  config = theory.get_config(scale)
  config.update_from_flattened_dict({name.replace('__', '.'): value for name, value in changes.items()})
  return registry.from_config(config)


@pytest.mark.parametrize(
  ('field', 'value'),
  [
    ('rank_threshold', 0.0),
    ('conditioning', 0.0),
    ('verification.temperatures', (-0.1,)),
    ('verification.largest_majority', 0.5),
    ('impossibility.length', 9),
    ('prevalence.memory_sizes', (1, 2)),
    ('prevalence.support_levels', (0.0, 1.0)),
    ('impossibility.tuning.batch_size', 1001),
  ],
)
def test_what_is_wrong_is_named(field, value):
  """One sentence with the field, its value and what would be valid."""
  with pytest.raises(SettingsError) as error:
    _settings(**{field.replace('.', '__'): value})
  assert str(error.value).startswith(f'{field} is {value!r}')
