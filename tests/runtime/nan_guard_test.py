"""Ends of a pretraining by non-finite numbers or a lost lock: its message and the files that stay."""

from conftest import assert_same_bits
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from run_cases import lock_elsewhere, pretraining_settings, stand_in_training

from experiments.records import checkpoints, files
from experiments.runtime import exit_status, locks
from hmm_jax._support import nan_guard
from hmm_jax.tuning import heads, tuner as tuner_lib

SETTINGS = pretraining_settings(pretrain__checkpoint_every=4, pretrain__measure_every=8)


@pytest.fixture
def train(monkeypatch):
  """Eight steps in a folder; the loss of step `bad_loss` is a NaN, and a moment infinite after step `bad_state`."""

  def train(directory, bad_loss=0, bad_state=0, measure=None):
    def disturbed(state, losses):
      if 0 < bad_loss <= state.step:
        losses = losses.at[bad_loss - state.step + 1 :].set(jnp.nan)
      if state.step == bad_state:
        state = state._replace(opt_state={'moment': jnp.array([1.0, jnp.inf])})
      return state, losses

    return stand_in_training(monkeypatch, SETTINGS, disturbed, measure)(directory)[0]

  return train


@pytest.mark.parametrize(
  ('bad', 'is_looked_for', 'sentence', 'kept', 'measured'),
  [
    (dict(bad_loss=5), False, 'the loss of step 5 of 8', [4], [0]),
    # JAX tells no step inside a call.
    (dict(bad_loss=5), True, 'steps 5 to 6', [4], [0]),
    (dict(bad_state=8), False, 'after step 8', [4], [0, 8]),
    (dict(measure=lambda *_: {'kl_at_mask': float('inf')}), False, 'after pretraining step 0: kl_at_mask', [], []),
  ],
)
def test_a_pretraining_ends_at_a_non_finite_number(train, tmp_path, bad, is_looked_for, sentence, kept, measured):
  """It names the step inside its call, keeps the checkpoint before and no other, and goes on from there."""
  ended, whole = tmp_path / 'ended', tmp_path / 'whole'
  with pytest.raises(nan_guard.Diverged, match=sentence) as raised, jax.debug_nans(is_looked_for):
    train(ended, **bad)
  assert exit_status.error_status(raised.value) == exit_status.DIVERGED
  assert checkpoints.steps(ended / checkpoints.NAME) == kept
  assert [row['step'] for row in files.read_json_lines(ended / 'metrics.jsonl')] == measured
  assert_same_bits(train(ended), train(whole))
  assert (ended / 'metrics.jsonl').read_bytes() == (whole / 'metrics.jsonl').read_bytes()


def test_tuning_ends_at_an_epoch_that_is_not_finite(monkeypatch):
  """It names the epoch and the task."""
  epoch = lambda done, *_: (done + 1, np.array([0.5, np.nan if done == 1 else 0.5]))
  monkeypatch.setattr(tuner_lib, 'init_tuning', lambda *_: 0)
  monkeypatch.setattr(tuner_lib, 'tune_epoch', epoch)
  tuner, schedule = tuner_lib.Tuner(None, heads.Linear(2)), tuner_lib.Schedule(0.1, 5, 1, 0, 0.0, 1.0)
  examples = tuner_lib.Examples(np.ones((2, 3)), np.zeros((2, 2), int), np.arange(2), ['task 0', 'task 1'])
  keys = jax.random.split(jax.random.key(0))
  states = tuner_lib.fit(keys, tuner, schedule, (), examples)
  with pytest.raises(nan_guard.Diverged, match='in epoch 2 the loss of task 1'):
    list(states)


def test_a_pretraining_that_was_taken_over_writes_no_more(train, tmp_path):
  """Neither a measurement nor a checkpoint."""
  with pytest.raises(locks.Lost):
    train(tmp_path, measure=lambda *_: lock_elsewhere(tmp_path) and {'kl_at_mask': 0.5})
  assert checkpoints.steps(tmp_path / checkpoints.NAME) == [] and not (tmp_path / 'metrics.jsonl').exists()


@pytest.mark.parametrize('value', [np.nan, np.inf, -np.inf])
def test_every_leaf_is_checked(value):
  """One number of one leaf, in half precision as well, and integers never."""
  leaf = jnp.array([1, value, 1], jnp.bfloat16)
  assert not nan_guard.all_finite({'a': np.ones((2, 3)), 'b': [leaf, np.int32(3)]})
