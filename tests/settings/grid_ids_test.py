"""What decides the id of a model, of a trial and of a record, and what the grid of each experiment is."""

import pathlib

import jax
import pytest
from settings_cases import settings_of

from configs import base
from experiments.pipeline import trial as trial_lib
from experiments.settings.grid import Point
from experiments.settings.methods import METHODS


def test_both_texts_share_the_model_of_their_first_trial():
  """What they say of pretraining and tuning is the same, so that the one pretraining a size is trial 0 of the other."""
  paper, first = settings_of('paper'), settings_of('paper_v1')
  assert first.pretraining_id(Point(4), 0) == paper.pretraining_id(Point(4), 0)
  assert first.trial_id(Point(4), 0) == paper.trial_id(Point(4), 0)


@pytest.mark.parametrize(
  'field',
  ['seed', 'hmm__num_tokens', 'corpus__num_documents', 'bert__width', 'pretrain__num_steps', 'pretrain__learning_rate'],
)
def test_what_decides_the_model_changes_both_ids(field):
  """Changing what decides the pretrained bits makes a new model and a new trial."""
  plain = settings_of()
  group, _, name = field.rpartition('__')
  value = getattr(getattr(plain, group) if group else plain, name)
  changed = settings_of(**{field: value * 2 if value else 1})
  assert changed.pretraining_id(Point(4), 0) != plain.pretraining_id(Point(4), 0)
  assert changed.trial_id(Point(4), 0) != plain.trial_id(Point(4), 0)


def test_what_decides_tasks_changes_the_trial_alone():
  """Trials that differ in tasks share one pretrained model."""
  plain, changed = settings_of(), settings_of(downstream__num_train=1400)
  assert changed.pretraining_id(Point(4), 0) == plain.pretraining_id(Point(4), 0)
  assert changed.trial_id(Point(4), 0) != plain.trial_id(Point(4), 0)


def test_what_decides_no_number_changes_no_id():
  """The figure, the devices, the checkpoints and the rest of the grid leave a trial what it is."""
  plain = settings_of()
  changed = settings_of(
    figure__dpi=300,
    figures=('attention',),
    pretrain__checkpoint_every=50,
    mesh__data=1,
    mesh__tensor=2,
    num_states=(4,),
    methods=('prompt',),
  )
  assert changed.trial_id(Point(4), 0) == plain.trial_id(Point(4), 0)


_ATTENTION = {'attention', 'prompt_attention', 'attention_converged', 'attention_blind', 'attention_constant'}
FITS = {
  'head__batch_size': {'head', 'probe'},
  'prompt__init_scale': {'prompt', 'prompt_attention', 'oracle_prompt'},
  'finetune__num_epochs': {'finetune'},
  **dict.fromkeys(('attention__temperature', 'attention__key_size', 'attention__value_size'), _ATTENTION),
  'attention__learning_rate': _ATTENTION,
  'on_test__max_rounds': {'head_best'},
  'converged__ridge': {'head_converged', 'head_best'},
  'restarts__number': {'oracle_prompt', 'attention_converged'},
}


@pytest.mark.parametrize(('field', 'methods'), FITS.items())
def test_settings_of_tuning_name_the_records_of_their_methods_alone(field, methods):
  """A trial keeps its id and the records of all other methods."""
  group, _, name = field.partition('__')
  plain = settings_of()
  changed = settings_of(**{field: getattr(getattr(plain, group), name) * 2 or 3})
  assert changed.trial_id(Point(4), 0) == plain.trial_id(Point(4), 0)
  assert {one for one in METHODS if changed.fit_id(one) != plain.fit_id(one)} == methods


def test_restarts_have_the_schedule_of_their_group_for_longer():
  settings = settings_of()
  assert settings.schedule('prompt') == settings.prompt.schedule
  assert settings.schedule('oracle_prompt') == settings.prompt.schedule._replace(num_epochs=50)
  assert [settings.num_starts(one) for one in ('prompt', 'oracle_prompt', 'attention_converged')] == [1, 8, 8]


def test_ids_tell_the_points_of_a_grid_apart():
  """Every distribution and trial has ids of its own."""
  plain = settings_of()
  points = Point(4), Point(10), Point(4, 2, 1), Point(4, 3, 1), Point(4, 2, 2)
  grid = [(point, trial) for point in points for trial in range(3)]
  assert len({plain.trial_id(*at) for at in grid}) == len(grid)
  assert len({plain.pretraining_id(*at) for at in grid}) == len(grid)


def test_the_grid_of_each_experiment():
  """Figure 3 (left) has HMMs; the right one memories and the HMMs of as many joint states; the last one N cells."""
  both = ('head', 'prompt')
  assert settings_of().grid() == {Point(4): both, Point(10): both, Point(30): both}
  sizes = (2, 3, 5, 7)
  for scale in ('small', *base.OF_PAPER):
    settings = settings_of(scale, 'memory_vs_vanilla')
    grid, vanilla = settings.grid(), settings.memory.vanilla_methods
    assert vanilla and settings.methods == ('attention',)
    assert grid == {
      **{Point(4 * size): vanilla for size in sizes},
      **{Point(4, size, 1): ('attention',) for size in sizes},
    }
    assert sorted(point.joint_states for point in grid) == [8, 8, 12, 12, 20, 20, 28, 28]
  cells = settings_of(experiment='memory_cells').grid()
  assert list(cells) == [Point(6, 3, 1), Point(6, 3, 2), Point(6, 3, 3)]
  assert [point.joint_states for point in cells] == [18, 54, 162]
  assert set(cells.values()) == {('attention', 'prompt_attention', 'head')}


def test_a_size_of_zero_is_an_hmm_without_memory():
  """Memory sizes may include 0, which is one point whatever the number of cells."""
  grid = settings_of(num_states=(4,), memory__sizes=(0, 2), memory__cells=(1, 2), figures=()).grid()
  assert set(grid) == {Point(4), Point(4, 2, 1), Point(4, 2, 2)}


@pytest.mark.parametrize(
  ('scale', 'changes'),
  [('small', dict(pretrain__num_steps=2000)), *((scale, {}) for scale in (*base.OF_PAPER, 'smoke'))],
)
def test_experiments_share_their_pretrained_models(scale, changes):
  """Where they pretrain alike, experiments have one pretraining_id and the same keys for an HMM without memory."""
  experiments = [settings_of(scale, experiment, **changes) for experiment in ('prompt_vs_head', 'memory_vs_vanilla')]
  for point in (Point(8), Point(12), Point(28)):
    trials = [trial_lib.Trial(settings, point, 3, pathlib.Path('runs')) for settings in experiments]
    assert trials[0].pretraining_id == trials[1].pretraining_id
    keys = [jax.random.key_data(jax.numpy.stack(trial.keys())).tolist() for trial in trials]
    assert keys[0] == keys[1]
    assert len({tuple(key) for key in keys[0]}) == 6


def test_keys_tell_the_points_of_a_grid_apart():
  """Memories of other sizes or cells, and other trials, draw from keys of their own."""
  settings = settings_of()
  points = Point(4), Point(8), Point(4, 2, 1), Point(4, 3, 1), Point(4, 2, 2)
  keys = [
    tuple(jax.random.key_data(trial_lib.Trial(settings, point, trial, pathlib.Path('runs')).keys().distribution))
    for point in points
    for trial in range(2)
  ]
  assert len({tuple(map(int, key)) for key in keys}) == len(keys)


def test_the_seed_decides_every_key():
  """Another seed draws another distribution, corpus, task and start."""
  keys = [
    jax.random.key_data(jax.numpy.stack(trial_lib.Trial(settings_of(seed=seed), Point(4), 0, pathlib.Path()).keys()))
    for seed in (0, 1)
  ]
  assert len({tuple(key) for key in jax.numpy.concatenate(keys).tolist()}) == 12


def test_the_label_cell_changes_the_trial_alone():
  """Labels that speak of another cell share the pretrained model, and without a memory the trial too."""
  plain = settings_of(experiment='memory_cells', memory__cells=(2, 3))
  changed = settings_of(experiment='memory_cells', memory__cells=(2, 3), memory__label_cell=1)
  for point in (Point(6, 3, 2), Point(6, 3, 3)):
    assert changed.pretraining_id(point, 0) == plain.pretraining_id(point, 0)
    assert changed.trial_id(point, 0) != plain.trial_id(point, 0)
  assert changed.trial_id(Point(6), 0) == plain.trial_id(Point(6), 0)


@pytest.mark.parametrize('field', ['joint_prior', 'joint_permutations'])
def test_how_a_memory_is_drawn_changes_its_model_alone(field):
  """The released code's draw of a memory makes other models of text with a memory, and the same of text without."""
  plain, changed = settings_of(), settings_of(**{f'memory__{field}': True})
  assert changed.pretraining_id(Point(4, 2, 1), 0) != plain.pretraining_id(Point(4, 2, 1), 0)
  assert changed.pretraining_id(Point(4), 0) == plain.pretraining_id(Point(4), 0)
