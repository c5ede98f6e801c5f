"""Lists in scalar fields: which fields take one, what their values are, and which grids are refused."""

import copy
import operator

import pytest
from settings_cases import config_of, settings_of

from configs import base
from experiments.settings import config as config_lib
from experiments.settings.fields import SettingsError
from experiments.settings.grid import Point, Settings
from experiments.settings.lists import points, takes_list
from experiments.settings.methods import METHODS
from experiments.settings.trial import Trial, trials
from experiments.studies import registry


def _grid(*words, config='--config=prompt_vs_head:smoke'):
  """The settings that a command line asks for."""
  _, config, lists = config_lib.parse(['main', config, *words], registry.SETTINGS, registry.GRIDS, ['run'])
  return config_lib.expanded(config, lists, registry.from_config)


def _ids(settings):
  """The ids of model, trial and fits, of an HMM and of a memory."""
  code = {'model': '', 'own_head': ''}
  both = [Trial(settings, point, 0, code) for point in (Point(4), Point(4, 2, 1))]
  fits = [both[0].fit_id(model, method) for model in ('bert', 'own') for method in METHODS]
  return [*fits, *((trial.id, trial.pretraining_id) for trial in both)]


_OTHER = {bool: operator.not_, int: lambda x: x + 1, float: lambda x: x + 0.125, str: lambda x: f'{x}-1'}


def test_a_field_takes_a_list_if_it_decides_an_id():
  """`fast_compilation`, which does too, has one value in a process."""
  plain = settings_of('smoke')
  ids, scalars = _ids(plain), 0
  for name, field in config_lib.fields(Settings):
    if field.type in _OTHER:
      changed, (*groups, last) = copy.deepcopy(plain), name.split('.')
      group = operator.attrgetter('.'.join(groups))(changed) if groups else changed
      object.__setattr__(group, last, _OTHER[field.type](getattr(group, last)))
      assert (_ids(changed) != ids) == (takes_list(name, field) or name == 'fast_compilation'), name
      scalars += 1
  assert scalars > 100


def test_lists_make_their_product():
  """Words and a config file say the same; names have commas between them, and numbers their own type."""
  grid = _grid(
    '--config.prompt.length=5, 1', '--config.pretrain.optimizer=adamw,muon', '--config.head.weight_decay=0,1'
  )
  assert points(grid) == [
    {'pretrain.optimizer': optimizer, 'head.weight_decay': float(decay), 'prompt.length': length}
    for length in (5, 1)
    for optimizer in ('adamw', 'muon')
    for decay in (0, 1)
  ]
  config = config_of('smoke')
  config.prompt.length = base.values(5, 1)
  config.memory.joint_prior = base.values(True, False)
  config.pretrain.optimizer = base.values('adamw', 'muon')
  made, words, lists = config_lib.override(
    config, ['', '--config.memory.joint_prior=False'], registry.SETTINGS, registry.GRIDS
  )
  assert lists == {'prompt.length': (5, 1), 'pretrain.optimizer': ('adamw', 'muon')} and words == ['']
  from_file = config_lib.expanded(made, lists, registry.from_config)
  assert from_file == _grid('--config.pretrain.optimizer=adamw,muon', '--config.prompt.length=5,1')
  assert _grid('--config.prompt.length=5,1', '--config.prompt.length=3') == _grid('--config.prompt.length=3')


def test_the_order_of_values_changes_no_id():
  """Trials of all values advance together."""
  one, other = (_grid(f'--config.seed={seeds}', '--config.num_trials=2') for seeds in ('0,1', '1,0'))
  assert {trial.id for trial in trials(*one)} == {trial.id for trial in trials(*other)}
  names = [str(trial) for trial in trials(*one)]
  assert names[:3] == ['seed=0 |H|=4 trial 0', 'seed=1 |H|=4 trial 0', 'seed=0 |H|=6 trial 0']
  assert [trial.number for trial in trials(*one)] == [0] * 4 + [1] * 4


def test_what_a_field_does_not_decide_is_shared():
  """A prompt shares model and trial, a learning rate of pretraining the draws alone, and texts nothing."""
  for field, shared in (
    ('prompt.length=1,2', 'id'),
    ('pretrain.learning_rate=1e-3,2e-3', 'draws_id'),
    ('seed=0,1', ''),
  ):
    pair = trials(*_grid(f'--config.{field}', '--config.num_states=4'))
    same = [name for name in ('id', 'pretraining_id', 'draws_id') if len({getattr(one, name) for one in pair}) == 1]
    assert same == {'id': ['id', 'pretraining_id', 'draws_id'], 'draws_id': ['draws_id'], '': []}[shared]


def test_a_file_may_have_a_comma_in_its_name(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  word = '--config.distribution=a,b.json'
  assert [settings.distribution for settings in _grid(word)] == ['a', 'b.json']
  (tmp_path / 'a,b.json').touch()
  assert [settings.distribution for settings in _grid(word)] == ['a,b.json']
  assert [settings.pretrained for settings in _grid('--config.pretrained=a,b')] == ['a,b']


@pytest.mark.parametrize(
  ('words', 'says'),
  [
    ('--config.downstream.num_train=30,8', r'^at downstream.num_train=8: head.warmup_steps is 4; valid is below the 2'),
    ('--config.seed=1,1', r'^seed is \(1, 1\); valid is a list of distinct values'),
    ('--config.seed=1,x', r"^at seed=x: seed is 'x'; valid is an int"),
    ('--config.figure.width=3,4', r"^figure.width is '3,4'; valid is one value: a number"),
    ('--config.num_trials=1,2', r"^num_trials is '1,2'; valid is one value: an int"),
    ('--config.fast_compilation=True,False', r"^fast_compilation is 'True,False'; valid is one value: True or False"),
    ('--config.distribution=mess3,', r"^distribution is 'mess3,'; valid is a list without an empty value"),
    ('--config.prompt.length=1,[2]', r"^at prompt.length=\[2\]: prompt.length is '\[2\]'; valid is an int"),
    ('--config.seed=1,2 --config.num_trials=5000', r'trials of the grid is 20000; valid is at most 10,000'),
  ],
)
def test_grids_that_cannot_run_are_refused(words, says):
  """By the point, or the field, or the size."""
  with pytest.raises(SettingsError, match=says):
    _grid(*words.split())


def test_only_grids_of_trials_take_lists():
  with pytest.raises(SettingsError, match=r"^seed is '1,2'; valid is one value: an int"):
    _grid('--config.seed=1,2', config='--config=theory:smoke')


def test_fields_in_which_settings_differ_have_a_column():
  """Also a tuple, as a text; and the vocabulary of two draws beside a process, which sets its own."""
  flags = '', 'on_test.ridges=1e-6', 'hmm.num_tokens=12', 'hmm.num_tokens=3 distribution=mess3'
  plain, ridges, wide, given = (_grid(*(f'--config.{word}' for word in words.split()))[0] for words in flags)
  (ridge,) = {*points([plain, ridges])[1].values()}
  assert ridge == '1e-06'
  assert points([plain, wide, given])[1] == {'hmm.num_tokens': 12, 'distribution': ''}
  assert points([plain, given])[1].keys() == {'distribution'}


def test_a_list_of_booleans_is_written_as_one_is():
  assert [settings.memory.joint_prior for settings in _grid('--config.memory.joint_prior=true,False')] == [True, False]
