"""What is not finite: where a run stops, what it says, what it keeps, and that it goes on from there."""

import dataclasses
import json

from conftest import assert_same_bits
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rich.console

from configs import prompt_vs_head
from experiments.pipeline import pretraining, tuning
from experiments.records import checkpoints, files
from experiments.runtime import exit_status, nan_guard, storage
from experiments.runtime.progress import Reporter
from experiments.settings import config as config_lib
from experiments.studies import registry, study
from hmm_jax import sharding
from hmm_jax.pretrain import TrainState


@pytest.fixture(scope='module')
def settings():
  """40 steps, 10 a call, a checkpoint every 20."""
  config = prompt_vs_head.get_config('smoke')
  config.pretrain.measure_every = 40
  return registry.from_config(config)


def _fresh():
  return TrainState(jnp.int32(0), jnp.ones(3), {'moment': jnp.ones(2)})


# Ten steps of a training whose state says how many there were.
_ten_steps = jax.jit(lambda s: (TrainState(s.step + 10, 2 * s.params, s.opt_state), jnp.arange(1.0, 11)))


def _call(state, bad_loss=0, bad_state=0):
  """With a NaN for the loss of step `bad_loss`, and a moment that is infinite after step `bad_state`."""
  state, losses = _ten_steps(state)
  index = bad_loss - int(state.step) + 9
  if 0 <= index < 10:
    losses = losses.at[index:].set(jnp.nan)
  if int(state.step) == bad_state:
    state = state._replace(opt_state={'moment': jnp.array([1.0, jnp.inf])})
  return state, losses


def _train(settings, directory, monkeypatch, measured=0.5, **bad):
  """The last state of a pretraining by `_call`, from its newest checkpoint on."""
  monkeypatch.setattr(pretraining, 'measure', lambda *_: {'kl_at_mask': measured})
  like = checkpoints.sharded_like(_fresh(), sharding.replicated(sharding.make_mesh()))
  reporter = Reporter(rich.console.Console(quiet=True))
  with reporter.clock.phase('pretraining'), checkpoints.open_checkpoints(directory / checkpoints.NAME) as saved:
    state, metrics = saved.restore(like) or (_fresh(), [])
    call = lambda state: _call(state, **bad)
    return pretraining._train(settings, state, metrics, call, (), saved, directory, reporter)


@pytest.mark.parametrize(
  ('bad', 'sentence', 'kept'),
  [
    (dict(bad_loss=1), 'the loss of step 1 of 40 is not finite', []),
    (dict(bad_loss=20), 'the loss of step 20 of 40 is not finite', []),
    (dict(bad_loss=27), 'the loss of step 27 of 40 is not finite', [20]),
    (dict(bad_loss=40), 'the loss of step 40 of 40 is not finite', [20]),
    (dict(bad_state=20), 'a parameter or a moment is not finite after step 20', []),
    (dict(bad_state=40), 'a parameter or a moment is not finite after step 40', [20]),
  ],
)
def test_a_pretraining_ends_at_what_is_not_finite(settings, tmp_path, monkeypatch, bad, sentence, kept):
  """It names the step inside its call, keeps the checkpoint before and no other, and goes on from there."""
  with pytest.raises(nan_guard.Diverged, match=sentence):
    _train(settings, tmp_path, monkeypatch, **bad)
  assert checkpoints.steps(tmp_path / checkpoints.NAME) == kept
  for line in (tmp_path / 'metrics.jsonl').read_text().splitlines():
    assert 'NaN' not in line and json.loads(line)['step'] in (0, bad.get('bad_state'))
  with_none = tmp_path / 'none'
  assert_same_bits(_train(settings, tmp_path, monkeypatch), _train(settings, with_none, monkeypatch))
  assert (tmp_path / 'metrics.jsonl').read_bytes() == (with_none / 'metrics.jsonl').read_bytes()


def test_a_distance_that_is_not_finite_is_not_recorded(settings, tmp_path, monkeypatch):
  with pytest.raises(nan_guard.Diverged, match='^after step 0 of pretraining kl_at_mask is not finite$'):
    _train(settings, tmp_path, monkeypatch, measured=float('inf'))
  assert not (tmp_path / 'metrics.jsonl').exists()


def test_a_save_that_failed_ends_a_pretraining(settings, tmp_path, monkeypatch):
  """Nothing more is measured, and the step without checksums is whole."""

  def full(path, content):
    raise storage.StorageError(storage.not_written(path, OSError(28, 'No space left on device')))

  sentence = r"20/.*' was not written \(No space left on device"
  with monkeypatch.context() as patched, pytest.raises(storage.StorageError, match=sentence):
    patched.setattr(files, 'write_sealed', full)
    _train(settings, tmp_path, monkeypatch)
  assert [json.loads(line)['step'] for line in (tmp_path / 'metrics.jsonl').read_text().splitlines()] == [0]
  state = _train(settings, tmp_path, monkeypatch)
  assert int(state.step) == 40 and checkpoints.steps(tmp_path / 'checkpoints') == [40, 20]


def test_every_leaf_is_looked_at():
  """One number of one leaf, in half precision as well, and integers never."""
  tree = {'a': np.ones((2, 3), np.float32), 'b': [np.ones(4, jnp.bfloat16), np.int32(3)]}
  assert nan_guard.all_finite(tree) and nan_guard.all_finite({'step': np.int32(1)})
  for leaf in (tree['a'], tree['b'][0]):
    for value in (np.nan, np.inf, -np.inf):
      leaf.flat[1] = value
      assert not nan_guard.all_finite(tree)
    leaf.flat[1] = 1


def test_tuning_ends_at_the_epoch_of_a_task_that_is_not_finite():
  """And names it among those that train beside it."""
  losses = iter([np.array([0.5, 0.7]), np.array([0.5, np.inf]), np.array([0.5, 0.5])])
  epochs = tuning.epochs(
    lambda state: (state, next(losses)),
    0,
    3,
    'head on bert',
    ['task 4', 'task 7'],
    Reporter(rich.console.Console(quiet=True)),
  )
  assert next(epochs)[0] == 0
  with pytest.raises(nan_guard.Diverged, match='^head on bert: in epoch 2 the loss of task 7 is not finite$'):
    next(epochs)


def test_jax_looking_for_nans_ends_a_pretraining_too(settings, tmp_path, monkeypatch):
  """What it raises is told with the steps of the call, and has the status of what is not finite."""
  raises = pytest.raises(nan_guard.Diverged, match=r'invalid value \(nan\).* in the call of steps 21 to 30;')
  with raises as raised, jax.debug_nans(True):
    _train(settings, tmp_path, monkeypatch, bad_loss=27)
  assert exit_status.error_status(raised.value) == exit_status.error_status(FloatingPointError('of tuning')) == 3
  assert checkpoints.steps(tmp_path / checkpoints.NAME) == [20]


def test_looking_for_nans_names_no_other_run(settings, tmp_path):
  """Neither models, trials nor parts."""
  looking = dataclasses.replace(settings, debug_nans=True)
  for point, trial in settings.draws():
    assert looking.trial_id(point, trial) == settings.trial_id(point, trial)
  of_parts = registry.from_config(config_lib.shipped('example_4_1')['get_config']())
  assert study._id(dataclasses.replace(of_parts, debug_nans=True)) == study._id(of_parts)
  assert study._id(dataclasses.replace(of_parts, seed=1)) != study._id(of_parts)
