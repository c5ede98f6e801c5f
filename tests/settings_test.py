"""Settings: what is refused, and what names a trial."""

import pytest

from configs import base
from configs import prompt_vs_head
from experiments import settings as settings_lib
from experiments.settings import Point
from experiments.settings import SettingsError


def _settings(scale='small', **changes):
  config = prompt_vs_head.get_config(scale)
  for name, value in changes.items():
    config.update_from_flattened_dict({name.replace('__', '.'): value})
  return settings_lib.from_config(config)


@pytest.mark.parametrize('scale', base.SCALES)
def test_every_scale_is_valid(scale):
  """Each scale of the config passes its own validation."""
  assert _settings(scale).scale == scale


def test_an_unknown_scale_names_the_valid_ones():
  """The config's argument is checked too."""
  with pytest.raises(ValueError, match='small, paper, official, smoke'):
    prompt_vs_head.get_config('large')


@pytest.mark.parametrize(
  ('field', 'value'),
  [
    ('hmm.num_tokens', 1),
    ('corpus.document_length', -5),
    ('corpus.chunk_length', 20000),
    ('bert.width', 130),
    ('bert.width', 0),
    ('bert.dtype', 'int8'),
    ('bert.dropout_rate', 1.0),
    ('bert.max_positions', 40),
    ('pretrain.mask_rate', 0.0),
    ('pretrain.mask_rate', 1.0),
    ('pretrain.mask_rate', float('nan')),
    ('pretrain.random_share', 0.3),
    ('pretrain.num_steps', 1251),
    ('pretrain.warmup_steps', 1250),
    ('pretrain.batch_size', 10**6),
    ('pretrain.learning_rate', float('inf')),
    ('downstream.length', 1),
    ('downstream.num_test', 0),
    ('head.batch_size', 10**6),
    ('head.warmup_steps', 10**6),
    ('prompt.init', 'zeros'),
    ('num_trials', 0),
    ('seed', -1),
    ('models', ('gpt',)),
    ('methods', ('head', 'head')),
    ('num_states', (4, 0)),
    ('num_states', ()),
  ],
)
def test_bad_values_are_refused_by_name(field, value):
  """One sentence that names the field and says what would be valid."""
  config = prompt_vs_head.get_config()
  with config.ignore_type():
    config.update_from_flattened_dict({field: value})
  with pytest.raises(SettingsError, match=field) as error:
    settings_lib.from_config(config)
  assert 'valid is' in str(error.value)
  assert '\n' not in str(error.value)


def test_wrong_types_are_refused():
  """A string is no number, a float is no count, and an int is a fine float."""
  config = prompt_vs_head.get_config()
  with config.ignore_type():
    config.head.batch_size = 2.5
  with pytest.raises(SettingsError, match=r'head\.batch_size is 2\.5; valid is a value of type int'):
    settings_lib.from_config(config)
  assert _settings(hmm__initial_temperature=3.0).hmm.initial_temperature == 3.0


def test_prompt_must_fit_the_positions():
  """Prompt and input together are at most max_positions, and the sentence does the sum."""
  with pytest.raises(SettingsError, match=r'prompt\.length is 40; valid is at most 31'):
    _settings(prompt__length=40)


def test_a_field_too_many_or_too_few_is_named():
  """A config file with a field of its own, or one that lost a field, is refused."""
  config = prompt_vs_head.get_config()
  config.bert.depth = 3
  with pytest.raises(SettingsError, match=r'bert\.depth is no field'):
    settings_lib.from_config(config)
  config = prompt_vs_head.get_config()
  del config.seed
  with pytest.raises(SettingsError, match='seed is missing'):
    settings_lib.from_config(config)


@pytest.mark.parametrize(
  'field',
  ['seed', 'hmm__num_tokens', 'corpus__num_documents', 'bert__width', 'pretrain__num_steps', 'pretrain__learning_rate'],
)
def test_what_decides_the_model_changes_both_ids(field):
  """Changing what decides the pretrained bits makes a new model and a new trial."""
  plain = _settings()
  group, _, name = field.rpartition('__')
  value = getattr(getattr(plain, group) if group else plain, name)
  changed = _settings(**{field: value * 2 if value else 1})
  assert changed.pretraining_id(Point(4), 0) != plain.pretraining_id(Point(4), 0)
  assert changed.trial_id(Point(4), 0) != plain.trial_id(Point(4), 0)


def test_what_decides_tasks_or_tuning_changes_the_trial_alone():
  """Trials that differ in tasks or methods share one pretrained model."""
  plain = _settings()
  for changed in (_settings(prompt__length=10), _settings(downstream__num_train=1400), _settings(head__batch_size=16)):
    assert changed.pretraining_id(Point(4), 0) == plain.pretraining_id(Point(4), 0)
    assert changed.trial_id(Point(4), 0) != plain.trial_id(Point(4), 0)


def test_what_decides_no_number_changes_no_id():
  """The figure, the devices, the checkpoints and the rest of the grid leave a trial what it is."""
  plain = _settings()
  changed = _settings(
    figure__dpi=300,
    pretrain__checkpoint_every=50,
    num_devices=1,
    num_states=(4,),
    methods=('prompt',),
    tensorboard=True,
  )
  assert changed.trial_id(Point(4), 0) == plain.trial_id(Point(4), 0)


def test_ids_tell_the_points_of_a_grid_apart():
  """Every distribution and trial has ids of its own."""
  plain = _settings()
  points = Point(4), Point(10), Point(4, 2, 1), Point(4, 3, 1), Point(4, 2, 2)
  grid = [(point, trial) for point in points for trial in range(3)]
  assert len({plain.trial_id(*at) for at in grid}) == len(grid)
  assert len({plain.pretraining_id(*at) for at in grid}) == len(grid)
