"""What is not finite: where a run stops, what it says, what it keeps, and that it goes on from there."""

from conftest import assert_same_bits
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from run_cases import QUIET, settings_of

from experiments.pipeline import pretraining, tuning
from experiments.records import checkpoints, files
from experiments.runtime import exit_status, nan_guard
from hmm_jax import sharding
from hmm_jax.pretrain import TrainState

_FRESH = TrainState(jnp.int32(0), jnp.ones(3), {'moment': jnp.ones(2)})


@jax.jit
def _ten_steps(state):
  """Of a training whose state says how many there were."""
  return TrainState(state.step + 10, 2 * state.params, state.opt_state), jnp.arange(1.0, 11)


@pytest.fixture
def train(monkeypatch):
  """The last of 40 steps, ten a call, with a checkpoint every 20, from the newest checkpoint of a directory on.

  The loss of step `bad_loss` is a NaN, and a moment infinite after step `bad_state`.
  """

  def train(directory, bad_loss=0, bad_state=0, measured=0.5):
    def call(state):
      state, losses = _ten_steps(state)
      if 0 < bad_loss <= state.step:
        losses = losses.at[bad_loss - state.step + 9 :].set(jnp.nan)
      if state.step == bad_state:
        state = state._replace(opt_state={'moment': jnp.array([1.0, jnp.inf])})
      return state, losses

    monkeypatch.setattr(pretraining, 'measure', lambda *_: {'kl_at_mask': measured})
    like = checkpoints.sharded_like(_FRESH, sharding.replicated(sharding.make_mesh()))
    with QUIET.clock.phase('pretraining'), checkpoints.open_checkpoints(directory / checkpoints.NAME) as saved:
      state, metrics = saved.restore(like) or (_FRESH, [])
      settings = settings_of(pretrain__measure_every=40)
      return pretraining._train(settings, state, metrics, call, (), saved, directory, QUIET)

  return train


@pytest.mark.parametrize(
  ('bad', 'sentence', 'kept', 'measured'),
  [
    (dict(bad_loss=1), 'the loss of step 1 of 40', [], [0]),
    (dict(bad_loss=27), 'the loss of step 27 of 40', [20], [0]),
    (dict(bad_state=20), 'after step 20', [], [0]),
    (dict(bad_state=40), 'after step 40', [20], [0, 40]),
    (dict(measured=float('inf')), 'after step 0 .*kl_at_mask', [], []),
  ],
)
def test_a_pretraining_ends_at_what_is_not_finite(train, tmp_path, bad, sentence, kept, measured):
  """It names the step inside its call, keeps the checkpoint before and no other, and goes on from there."""
  with pytest.raises(nan_guard.Diverged, match=sentence):
    train(tmp_path, **bad)
  assert checkpoints.steps(tmp_path / checkpoints.NAME) == kept
  assert [row['step'] for row in files.read_json_lines(tmp_path / 'metrics.jsonl')] == measured
  assert_same_bits(train(tmp_path), train(tmp_path / 'none'))
  assert (tmp_path / 'metrics.jsonl').read_bytes() == (tmp_path / 'none' / 'metrics.jsonl').read_bytes()


def test_jax_looking_for_nans_ends_a_pretraining_too(train, tmp_path):
  """What it raises is told with the steps of the call, and has the status of what is not finite."""
  with pytest.raises(nan_guard.Diverged, match='steps 21 to 30') as raised, jax.debug_nans(True):
    train(tmp_path, bad_loss=27)
  assert exit_status.error_status(raised.value) == exit_status.error_status(FloatingPointError('of tuning')) == 3
  assert checkpoints.steps(tmp_path / checkpoints.NAME) == [20]


def test_every_leaf_is_looked_at():
  """One number of one leaf, in half precision as well, and integers never."""
  for dtype in (np.float32, jnp.bfloat16):
    for value, is_finite in ((1, True), (np.nan, False), (np.inf, False), (-np.inf, False)):
      leaf = np.array([1, value, 1], dtype)
      assert nan_guard.all_finite({'a': np.ones((2, 3)), 'b': [leaf, np.int32(3)]}) == is_finite


def test_tuning_ends_at_the_epoch_of_a_task_that_is_not_finite():
  """And names it among those that train beside it."""
  losses = iter([np.array([0.5, 0.7]), np.array([0.5, np.inf])])
  epochs = tuning.epochs(lambda state: (state, next(losses)), 0, 3, 'head on bert', ['task 4', 'task 7'], QUIET)
  assert next(epochs)[0] == 0
  with pytest.raises(nan_guard.Diverged, match='head on bert.* epoch 2 .*task 7'):
    next(epochs)
