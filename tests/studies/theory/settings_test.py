"""Settings of the theory experiment: valid scales, and refusals that name the field and its value."""

import pytest

from configs import theory
from experiments.settings.fields import SettingsError
from experiments.studies import registry


def _settings(scale='small', **changes):
  config = theory.get_config(scale)
  config.update_from_flattened_dict({name.replace('__', '.'): value for name, value in changes.items()})
  return registry.from_config(config)


@pytest.mark.parametrize('scale', ['small', 'smoke'])
def test_every_scale_is_valid(scale):
  assert _settings(scale).scale == scale


def test_the_default_run_is_large_enough():
  """At least 100 HMMs and 300,000 balanced sequences per theorem, wrong constructions on 20 HMMs and 10,000 each."""
  settings = _settings()
  v = settings.verification
  assert v.num_hmms >= 100 and v.num_mutated >= 20 and v.num_sequences_mutated >= 10_000
  assert v.num_mutated * v.num_sequences_mutated + (v.num_hmms - v.num_mutated) * v.num_sequences >= 300_000
  assert v.largest_majority <= 0.7
  assert settings.impossibility.num_hmms >= 20
  assert settings.impossibility.num_states > settings.impossibility.num_tokens


@pytest.mark.parametrize(
  ('field', 'value'),
  [
    ('support_threshold', -0.1),
    ('rank_threshold', 0.0),
    ('margin', float('nan')),
    ('max_nodes', 0),
    ('conditioning', 0.0),
    ('verification.num_hmms', 0),
    ('verification.num_sequences', 0),
    ('verification.length', 0),
    ('verification.temperatures', (-0.1,)),
    ('verification.largest_majority', 0.5),
    ('impossibility.length', 9),
    ('impossibility.converged.ridge', 0.0),
    ('prevalence.num_draws', 0),
    ('prevalence.memory_sizes', (1, 2)),
    ('prevalence.rank_levels', (0.0,)),
    ('prevalence.support_levels', (0.0, 1.0)),
    ('impossibility.tuning.batch_size', 1001),
  ],
)
def test_what_is_wrong_is_named(field, value):
  """One sentence with the field, its value and what would be valid."""
  with pytest.raises(SettingsError) as error:
    _settings(**{field.replace('.', '__'): value})
  message = str(error.value)
  assert message.startswith(f'{field} is') and repr(value) in message and 'valid is' in message and '\n' not in message
