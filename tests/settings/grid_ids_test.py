"""What decides the id of a model, of a trial and of a record, and what is drawn of them."""

import jax
import jax.numpy as jnp
import pytest
from settings_cases import settings_of

from experiments.settings.grid import Point
from experiments.settings.methods import METHODS
from experiments.settings.trial import Trial

MODEL, TRIAL, NEITHER = (False, False), (True, False), (True, True)
MEMORY = Point(4, 2, 2)


def _same(before, after, point):
  """Whether the ids of model and trial are the same."""
  return tuple(
    getattr(Trial(before, point, 0), name) == getattr(Trial(after, point, 0), name) for name in ('pretraining_id', 'id')
  )


@pytest.mark.parametrize(
  ('what', 'point', 'changes'),
  [
    (MODEL, Point(4), dict(seed=1)),
    (MODEL, Point(4), dict(hmm__num_tokens=11)),
    (MODEL, Point(4), dict(fast_compilation=True)),
    (MODEL, MEMORY, dict(memory__joint_prior=True)),
    (TRIAL, Point(4), dict(downstream__num_train=1400)),
    (TRIAL, Point(4), dict(measure__num_inputs=16)),
    (TRIAL, MEMORY, dict(memory__label_cell=1)),
    (NEITHER, Point(4), dict(memory__joint_prior=True, memory__joint_permutations=True, memory__label_cell=1)),
    (NEITHER, Point(4), dict(pretrain__checkpoint_every=50, pretrain__measure_every=50)),
    (NEITHER, Point(4), dict(num_states=(4,), methods=('head',), tasks_per_trial=1, time_budget=1.0)),
  ],
  ids=str,
)
def test_ids_are_decided_by_what_decides_bits(what, point, changes):
  """Other values make another model or trial beside the first, which stays as it is; the rest finds both again."""
  cells = dict(num_states=(4,), memory__cells=(2,))
  assert _same(settings_of(**cells), settings_of(**{**cells, **changes}), point) == what


def test_both_texts_share_the_model_of_their_first_trial():
  """What they say of pretraining and tuning is the same, so that the one pretraining a size is trial 0 of the other."""
  assert _same(settings_of('paper'), settings_of('paper_v1'), Point(4)) == NEITHER


_REFITS = {'prompt_refit', 'oracle_refit'}
_ATTENTION = {'attention', 'prompt_attention', 'attention_converged', 'attention_blind', 'attention_constant'}


@pytest.mark.parametrize(
  ('group', 'field', 'methods'),
  [
    ('head', 'learning_rate', {'own_head', 'head', 'probe'}),
    ('prompt', 'init_scale', {'prompt', 'prompt_attention', 'oracle_prompt', *_REFITS}),
    ('attention', 'temperature', _ATTENTION),
    ('on_test', 'max_rounds', {'head_best'}),
    ('converged', 'ridge', {'tokens', 'head_converged', 'head_whitened', 'probe_converged', 'head_best', *_REFITS}),
    ('restarts', 'number', {'oracle_prompt', 'oracle_refit', 'attention_converged'}),
  ],
)
def test_settings_of_tuning_name_the_records_of_their_methods_alone(group, field, methods):
  """A trial keeps its id and the records of all other methods."""
  plain = settings_of()
  changed = settings_of(**{f'{group}__{field}': getattr(getattr(plain, group), field) * 2})
  assert _same(plain, changed, Point(4)) == NEITHER
  trials = (Trial(settings, Point(4), 0, {'own_head': ''}) for settings in (plain, changed))
  before, after = ({one: trial.fit_id('bert', one) for one in METHODS} for trial in trials)
  assert {one for one in METHODS if before[one] != after[one]} == methods


def _keys(trial):
  """The bits of all keys of a trial."""
  return [tuple(key) for key in jax.random.key_data(jnp.stack(trial.keys())).tolist()]


def test_ids_and_keys_tell_the_points_of_a_grid_apart():
  """Every distribution and trial has ids of its own, and draws by keys of its own; so does another seed."""
  settings = settings_of()
  points = Point(4), Point(10), Point(4, 2, 1), Point(4, 3, 1), MEMORY
  grid = [Trial(settings, point, number) for point in points for number in range(2)]
  assert len({trial.id for trial in grid}) == len({trial.pretraining_id for trial in grid}) == len(grid)
  keys = [*map(_keys, [*grid, Trial(settings_of(seed=1), Point(4), 0)])]
  assert len({key for some in keys for key in some}) == 6 * len(keys)


def test_experiments_share_their_pretrained_models():
  """Where they pretrain alike, experiments have one pretraining_id and the same keys for an HMM without memory."""
  one, other = (Trial(settings_of('paper', name), Point(8), 3) for name in ('prompt_vs_head', 'memory_vs_vanilla'))
  assert one.pretraining_id == other.pretraining_id and _keys(one) == _keys(other)
