"""Checkpoints that outlive a kill."""

import jax
import jax.numpy as jnp
import numpy as np

from experiments.records import checkpoints
from hmm_jax import sharding


def _state(value):
  return {'weights': jnp.full((3, 2), value), 'step': jnp.int32(7), 'key': jax.random.key(5)}


def _like(tree):
  return checkpoints.sharded_like(tree, sharding.replicated(sharding.make_mesh()))


def test_a_checkpoint_round_trips_with_its_metrics(tmp_path):
  """State and metrics come back together, the newest step's."""
  with checkpoints.open_checkpoints(tmp_path / 'c') as saved:
    assert saved.restore(_like(_state(0.0))) is None
    saved.save(1, _state(0.1), [{'loss': 1.5}])
    saved.save(2, _state(0.2), [{'loss': 1.5}, {'loss': 0.1}])
  with checkpoints.open_checkpoints(tmp_path / 'c') as saved:
    state, metrics = saved.restore(_like(_state(0.0)))
  np.testing.assert_array_equal(state['weights'], _state(0.2)['weights'])
  assert jnp.array_equal(jax.random.key_data(state['key']), jax.random.key_data(jax.random.key(5)))
  assert metrics == [{'loss': 1.5}, {'loss': 0.1}]


def test_an_unfinished_checkpoint_is_ignored(tmp_path):
  """What a kill in the middle of a save leaves behind does not count as a step."""
  with checkpoints.open_checkpoints(tmp_path / 'c') as saved:
    saved.save(1, _state(0.1), [])
  (tmp_path / 'c' / '2.orbax-checkpoint-tmp' / 'state').mkdir(parents=True)
  with checkpoints.open_checkpoints(tmp_path / 'c') as saved:
    state, _ = saved.restore(_like(_state(0.0)))
  np.testing.assert_array_equal(state['weights'], _state(0.1)['weights'])


def test_a_save_is_not_touched_by_donation(tmp_path):
  """The saved state is the one at the time of the call, though the next step takes its buffers over."""
  advance = jax.jit(lambda x: x + 1, donate_argnums=0)
  weights = jnp.zeros((512, 512))
  with checkpoints.open_checkpoints(tmp_path / 'c') as saved:
    saved.save(1, {'weights': weights}, [])
    for _ in range(10):
      weights = advance(weights)
  with checkpoints.open_checkpoints(tmp_path / 'c') as saved:
    state, _ = saved.restore(_like({'weights': weights}))
  assert float(jnp.abs(state['weights']).max()) == 0
