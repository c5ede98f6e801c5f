"""Ids of models, trials and records: the settings that decide them, and the draws that follow."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest
from settings_cases import settings_of

from experiments.own.code import Function
from experiments.settings.fields import SettingsError
from experiments.settings.grid import Point
from experiments.settings.methods import METHODS
from experiments.settings.trial import Trial
from experiments.studies import registry

MODEL, TRIAL, NEITHER = (False, False), (True, False), (True, True)
PLAIN = Point(4)
MEMORY = Point(4, 2, 2)


def _same(before, after, point):
  """True for each of the ids of model and trial that are equal."""
  return tuple(
    getattr(Trial(before, point, 0), name) == getattr(Trial(after, point, 0), name) for name in ('pretraining_id', 'id')
  )


@pytest.mark.parametrize(
  ('what', 'point', 'changes'),
  [
    (MODEL, PLAIN, dict(seed=1)),
    (MODEL, PLAIN, dict(hmm__num_tokens=11)),
    (MODEL, PLAIN, dict(bert__causal=True)),
    (MODEL, MEMORY, dict(memory__joint_prior=True)),
    (TRIAL, PLAIN, dict(downstream__hidden='last')),
    (TRIAL, PLAIN, dict(downstream__num_train=1400)),
    (TRIAL, PLAIN, dict(measure__num_inputs=16)),
    (TRIAL, MEMORY, dict(memory__label_cell=1)),
    (NEITHER, PLAIN, dict(memory__joint_prior=True, memory__joint_permutations=True, memory__label_cell=1)),
    (NEITHER, PLAIN, dict(pretrain__checkpoint_every=50, pretrain__measure_every=50)),
    (NEITHER, PLAIN, dict(num_states=(4,), methods=('head',), tasks_per_trial=1, time_budget=1.0)),
  ],
  ids=str,
)
def test_settings_that_decide_bits_decide_ids(what, point, changes):
  """Other values make another model or trial beside the first, which stays as it is; the rest finds both again."""
  cells = dict(num_states=(4,), memory__cells=(2,))
  assert _same(settings_of(**cells), settings_of(**{**cells, **changes}), point) == what


def test_both_texts_share_the_model_of_their_first_trial():
  """Their settings of pretraining and tuning agree, so that the one pretraining per size is trial 0 of the other."""
  assert _same(settings_of('paper'), settings_of('paper_v1'), PLAIN) == NEITHER


@pytest.mark.parametrize(
  ('group', 'field'),
  [
    ('head', 'learning_rate'),
    ('prompt', 'init_scale'),
    ('attention', 'learning_rate'),
    ('on_test', 'tolerance'),
    ('converged', 'ridge'),
    ('masks', 'number'),
    ('restarts', 'number'),
  ],
)
def test_settings_of_tuning_name_only_the_records_of_their_methods(group, field):
  """A trial keeps its id and the records of all other methods; tuning_test has that methods read what they name."""
  methods = {name for name, method in METHODS.items() if group in method.settings}
  plain = settings_of()
  changed = settings_of(**{f'{group}__{field}': getattr(getattr(plain, group), field) * 2})
  assert _same(plain, changed, PLAIN) == NEITHER
  trials = (Trial(settings, PLAIN, 0, {'own_head': Function(None, '')}) for settings in (plain, changed))
  before, after = ({one: trial.fit_id('bert', one) for one in METHODS} for trial in trials)
  assert {one for one in METHODS if before[one] != after[one]} == methods


def test_settings_from_before_a_field_have_the_same_ids():
  """Settings without it are those of its earlier value, and the digests of both are equal."""
  settings = settings_of()
  recorded = dataclasses.asdict(settings)
  del recorded['masks'], recorded['bert']['causal']
  assert registry.from_record(recorded) == settings
  del recorded['prompt']['length']
  with pytest.raises(SettingsError, match='^prompt.length is None'):
    registry.from_record(recorded)


def _keys(trial):
  """The bits of all keys of a trial."""
  return [tuple(key) for key in jax.random.key_data(jnp.stack(trial.keys())).tolist()]


def test_ids_and_keys_tell_the_points_of_a_grid_apart():
  """Every distribution and trial has ids of its own, and draws by keys of its own; so does another seed."""
  settings = settings_of()
  points = PLAIN, Point(10), Point(4, 2, 1), Point(4, 3, 1), MEMORY
  grid = [Trial(settings, point, number) for point in points for number in range(2)]
  assert len({trial.id for trial in grid}) == len({trial.pretraining_id for trial in grid}) == len(grid)
  keys = [*map(_keys, [*grid, Trial(settings_of(seed=1), PLAIN, 0)])]
  assert len({key for some in keys for key in some}) == 6 * len(keys)


def test_experiments_share_their_pretrained_models():
  """Experiments that pretrain alike share a pretraining_id and the keys for an HMM without memory."""
  one, other = (Trial(settings_of('paper', name), Point(8), 3) for name in ('prompt_vs_head', 'memory_vs_vanilla'))
  assert one.pretraining_id == other.pretraining_id and _keys(one) == _keys(other)
