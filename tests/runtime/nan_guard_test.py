"""Ends of a pretraining by non-finite numbers or a lost lock: its message and the files that stay."""

from conftest import assert_same_bits
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from run_cases import lock_elsewhere, QUIET
from settings_cases import settings_of

from experiments.pipeline import distance, pretraining
from experiments.records import checkpoints, files
from experiments.runtime import exit_status, locks
from hmm_jax._support import nan_guard
from hmm_jax.models import sharding
from hmm_jax.models.pretraining import TrainState
from hmm_jax.tuning import heads, tuner as tuner_lib

_FRESH = TrainState(jnp.int32(0), jnp.ones(3), {'moment': jnp.ones(2)})


@jax.jit
def _ten_steps(state):
  """Ten steps of a training whose state counts its steps."""
  return TrainState(state.step + 10, 2 * state.params, state.opt_state), jnp.arange(1.0, 11)


@pytest.fixture
def train(monkeypatch):
  """The last of 40 steps, ten a call, with a checkpoint every 20, from the newest checkpoint of a directory on.

  The loss of step `bad_loss` is a NaN, and a moment infinite after step `bad_state`.
  """

  def train(directory, bad_loss=0, bad_state=0, measured=0.5, during=lambda _: None):
    def call(state):
      state, losses = _ten_steps(state)
      if 0 < bad_loss <= state.step:
        losses = losses.at[bad_loss - state.step + 9 :].set(jnp.nan)
      if state.step == bad_state:
        state = state._replace(opt_state={'moment': jnp.array([1.0, jnp.inf])})
      return state, losses

    def measure(*_):
      during(directory)
      return {'kl_at_mask': measured}

    monkeypatch.setattr(distance, 'measure', measure)
    like = checkpoints.sharded_like(_FRESH, sharding.replicated(sharding.make_mesh()))
    lock, phase = locks.held(directory, 'it', QUIET), QUIET.clock.phase('pretraining')
    with lock, phase, checkpoints.open_checkpoints(directory / checkpoints.NAME, QUIET) as saved:
      state, metrics = saved.restore(like) or (_FRESH, [])
      settings = settings_of('smoke', pretrain__measure_every=40)
      run = pretraining.planned(settings, None, None, directory=directory)
      return pretraining.train(run, state, metrics, call, saved, QUIET)

  return train


@pytest.mark.parametrize(
  ('bad', 'is_looked_for', 'sentence', 'kept', 'measured'),
  [
    (dict(bad_loss=27), False, 'the loss of step 27 of 40', [20], [0]),
    # JAX tells no step inside a call.
    (dict(bad_loss=27), True, 'steps 21 to 30', [20], [0]),
    (dict(bad_state=40), False, 'after step 40', [20], [0, 40]),
    (dict(measured=float('inf')), False, 'after pretraining step 0: kl_at_mask', [], []),
  ],
)
def test_a_pretraining_ends_at_a_non_finite_number(train, tmp_path, bad, is_looked_for, sentence, kept, measured):
  """It names the step inside its call, keeps the checkpoint before and no other, and goes on from there."""
  with pytest.raises(nan_guard.Diverged, match=sentence) as raised, jax.debug_nans(is_looked_for):
    train(tmp_path, **bad)
  assert exit_status.error_status(raised.value) == exit_status.DIVERGED
  assert checkpoints.steps(tmp_path / checkpoints.NAME) == kept
  assert [row['step'] for row in files.read_json_lines(tmp_path / 'metrics.jsonl')] == measured
  assert_same_bits(train(tmp_path), train(tmp_path / 'none'))
  assert (tmp_path / 'metrics.jsonl').read_bytes() == (tmp_path / 'none' / 'metrics.jsonl').read_bytes()


def test_tuning_ends_at_an_epoch_that_is_not_finite():
  """It names the epoch and the task."""
  epoch = lambda done, *_: (done + 1, np.array([0.5, np.nan if done == 1 else 0.5]))
  tuner, schedule = tuner_lib.Tuner(None, heads.Linear(2)), tuner_lib.Schedule(0.1, 5, 1, 0, 0.0, 1.0)
  examples = tuner_lib.Examples(np.ones((2, 3)), np.zeros((2, 2), int), np.arange(2), ['task 0', 'task 1'])
  keys = jax.random.split(jax.random.key(0))
  states = tuner_lib.fit(keys, tuner, schedule, (), examples, (lambda *_: 0, epoch))
  with pytest.raises(nan_guard.Diverged, match='in epoch 2 the loss of task 1'):
    list(states)


def test_a_pretraining_that_was_taken_over_writes_no_more(train, tmp_path):
  """Neither a measurement nor a checkpoint."""
  with pytest.raises(locks.Lost):
    train(tmp_path, during=lock_elsewhere)
  assert checkpoints.steps(tmp_path / checkpoints.NAME) == [] and not (tmp_path / 'metrics.jsonl').exists()


@pytest.mark.parametrize('value', [np.nan, np.inf, -np.inf])
def test_every_leaf_is_checked(value):
  """One number of one leaf, in half precision as well, and integers never."""
  leaf = jnp.array([1, value, 1], jnp.bfloat16)
  assert not nan_guard.all_finite({'a': np.ones((2, 3)), 'b': [leaf, np.int32(3)]})
