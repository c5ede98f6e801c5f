"""Settings of the study of degradation: valid scales, and refusals that name the field and its value."""

import pytest

from configs import degradation
from experiments.settings.fields import SettingsError
from experiments.studies import registry


def _settings(scale='small', **changes):
  config = degradation.get_config(scale)
  config.update_from_flattened_dict(changes)
  return registry.from_config(config)


@pytest.mark.parametrize('scale', degradation.SCALES)
def test_every_scale_is_valid(scale):
  assert _settings(scale).scale == scale


def test_the_default_run_is_what_its_claims_need():
  """At least 20 HMMs a theorem; W of Theorem 3.3 leaves its left inverse a choice, that of 3.6 has too many columns."""
  settings = _settings()
  assert settings.num_hmms >= 20 and settings.largest_majority <= 0.7 and settings.converged.ridge == 1e-6
  assert settings.num_states_3_3 < settings.num_tokens < settings.num_states_3_6
  assert _settings('bert').num_hmms >= 5 and _settings('bert').models == ('bert',)


@pytest.mark.parametrize(
  ('field', 'value'),
  [
    ('models', ('exact', 'gpt')),
    ('num_states_3_3', 9),
    ('num_states_3_6', 5),
    ('conditioning', 0.0),
    ('rank_threshold', 0.0),
    ('max_nodes', 0),
    ('largest_majority', 0.5),
    ('max_draws', 0),
    ('leaks', (0.0, 0.1)),
    ('leaks', (1.0,)),
    ('noise_levels', (-0.1,)),
    ('short_context_levels', (0.0,)),
    ('reach', 0),
    ('singular_values', (0.0,)),
    ('singular_values', (0.1,)),
    ('converged.ridge', 0.0),
    ('converged.tolerance', 0.0),
    ('tuning.warmup_steps', 400),
    ('tuning.batch_size', 1001),
    ('bert.checkpoints', (0, 25)),
    ('bert.checkpoints', (100, 50)),
    ('bert.mask_rate', 1.0),
    ('bert.random_share', 0.3),
    ('bert.batch_size', 20000),
    ('bert.document_length', 33),
    ('bert.weight_decay', -0.1),
    ('bert.clip_norm', 0.0),
    ('bert.model.width', 66),
    ('bert.model.dtype', 'int8'),
  ],
)
def test_what_is_wrong_is_named(field, value):
  """One sentence with a field, a value and what would be valid; a document too long is the positions' fault too."""
  with pytest.raises(SettingsError) as error:
    _settings(**{field: value})
  message = str(error.value)
  named = {'bert.document_length': ('bert.model.max_positions', 32)}.get(field, (field, value))
  assert message.startswith(f'{named[0]} is') and repr(named[1]) in message and 'valid is' in message
  assert '\n' not in message


def test_an_input_with_its_prompt_has_a_position_in_bert():
  with pytest.raises(SettingsError, match='bert.model.max_positions is 32; valid is at least 33'):
    _settings(length=29)
