"""Lists in scalar fields: which fields take one, what their values are, and which grids are refused."""

import copy
import functools
import operator

import pytest
from settings_cases import config_of, settings_of

from configs import base
from experiments.own.code import Function
from experiments.settings import config as config_lib
from experiments.settings.fields import flat, SettingsError
from experiments.settings.grid import Point, Settings
from experiments.settings.lists import points, taking
from experiments.settings.methods import METHODS
from experiments.settings.trial import Trial
from experiments.studies import registry


def _grid(*words, config=None):
  """The settings that a config and words, each FIELD=VALUES, ask for."""
  config = config or config_of('smoke')
  texts, cls = dict(word.split('=') for word in words), registry.SETTINGS[config.experiment]
  values = config_lib.override(flat(config.to_dict()), texts, cls)
  return [*map(registry.from_record, config_lib.points(values, cls))]


def _ids(settings):
  """The ids of model, trial and fits, of an HMM and of a memory."""
  both = [
    Trial(settings, point, 0, dict.fromkeys(('model', 'own_head'), Function(None, '')))
    for point in (Point(4), Point(4, 2, 1))
  ]
  fits = [both[0].fit_id(model, method) for model in ('bert', 'own') for method in METHODS]
  return [*fits, *((trial.id, trial.pretraining_id) for trial in both)]


def test_a_field_takes_a_list_if_it_decides_an_id():
  other = {bool: operator.not_, int: lambda x: x + 1, float: lambda x: x + 0.125, str: lambda x: f'{x}-1'}
  plain = settings_of('smoke')
  scalars = {name: field for name, field in config_lib.fields(Settings) if field.type in other}
  for name, field in scalars.items():
    changed, (*groups, last) = copy.deepcopy(plain), name.split('.')
    group = functools.reduce(getattr, groups, changed)
    object.__setattr__(group, last, other[field.type](getattr(group, last)))
    assert (_ids(changed) != _ids(plain)) == (name in taking(Settings)), name


def test_lists_make_their_product():
  """The last varies fastest. A config file says the same; names and booleans are lists too; a value counts once."""
  config = config_of('smoke')
  config.prompt.length = base.values(5, 1)
  config.head.weight_decay = base.values(0, 1)
  config.seed = base.values(0, 1)
  words = 'pretrain.optimizer=adamw, muon,adamw', 'memory.joint_prior=true,False'
  grid = _grid('seed=3', *words, config=config)
  assert grid == _grid('head.weight_decay=0,1', 'prompt.length=5,1', *words, 'seed=3')
  assert points(grid) == [
    {'pretrain.optimizer': optimizer, 'memory.joint_prior': prior, 'head.weight_decay': decay, 'prompt.length': length}
    for decay in (0.0, 1.0)
    for length in (5, 1)
    for optimizer in ('adamw', 'muon')
    for prior in (True, False)
  ]


@pytest.mark.parametrize(
  ('words', 'says'),
  [
    ('seed=1,x', "^seed is 'x'"),
    ('figure.width=3,4', r'^figure.width is \(3, 4\)'),
  ],
)
def test_grids_that_cannot_run_are_refused(words, says):
  """By the point or the field."""
  with pytest.raises(SettingsError, match=says):
    _grid(*words.split())


@pytest.mark.parametrize('value', [(), ([1],)])
def test_a_list_of_a_config_has_scalar_values(value):
  config = config_of('smoke')
  with config.ignore_type():
    config.seed = value
  with pytest.raises(SettingsError, match='^seed is .*; valid is at least one'):
    _grid(config=config)


def test_only_grids_of_trials_take_lists():
  with pytest.raises(SettingsError, match=r'^seed is \(1, 2\)'):
    _grid('seed=1,2', config=config_of('smoke', 'theory'))


def test_fields_in_which_settings_differ_have_a_column():
  """Also a tuple, as a text; and the vocabulary of two draws beside a process, which sets its own."""
  plain, wide = settings_of(), settings_of(hmm__num_tokens=12)
  given = settings_of(hmm__num_tokens=3, distribution='mess3')
  several = [settings_of('smoke', 'degradation', leaks=leaks) for leaks in ((0.1,), (0.1, 0.2))]
  assert points(several) == [{'config.leaks': '(0.1,)'}, {'config.leaks': '(0.1, 0.2)'}]
  assert points([plain, wide, given])[1] == {'hmm.num_tokens': 12, 'distribution': ''}
  assert points([plain, given])[1] == {'distribution': 'mess3'}
