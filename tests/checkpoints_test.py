"""Files that are written whole, and checkpoints that outlive a kill."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import checkpoints
from experiments.settings import SettingsError
from hmm_jax import sharding


def test_write_whole_keeps_the_old_file_when_the_write_fails(tmp_path, monkeypatch):
  """A failure before the replacement leaves the old content in place."""
  path = tmp_path / 'file'
  checkpoints.write_whole(path, 'old')

  def fail(*_):
    raise OSError('disk full')

  monkeypatch.setattr(checkpoints.os, 'fsync', fail)
  with pytest.raises(OSError, match='disk full'):
    checkpoints.write_whole(path, 'new')
  assert path.read_text() == 'old'


def test_json_lines_round_trip_every_bit(tmp_path):
  """Floats come back as they went, and a NaN is refused before anything is written."""
  rows = [{'a': 0.1 + 0.2, 'b': 1e-300}, {'a': 3, 'b': 'x'}]
  checkpoints.write_json_lines(tmp_path / 'rows', rows)
  assert checkpoints.read_json_lines(tmp_path / 'rows') == rows
  with pytest.raises(ValueError, match='JSON'):
    checkpoints.write_json_lines(tmp_path / 'rows', [{'a': float('nan')}])
  assert checkpoints.read_json_lines(tmp_path / 'rows') == rows
  assert checkpoints.read_json_lines(tmp_path / 'none') == []


def _state(value):
  return {'weights': jnp.full((3, 2), value), 'step': jnp.int32(7), 'key': jax.random.key(5)}


def _like(tree):
  return checkpoints.sharded_like(tree, sharding.replicated(sharding.data_mesh(1)))


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


def test_a_line_is_added_to_those_that_are_there(tmp_path, monkeypatch):
  """The first line makes the file; a failure while a line is added leaves those before it."""
  path = tmp_path / 'lines'
  checkpoints.append_json_line(path, {'a': 1})
  checkpoints.append_json_line(path, {'a': 2})
  monkeypatch.setattr(checkpoints.os, 'replace', None)
  with pytest.raises(TypeError):
    checkpoints.append_json_line(path, {'a': 3})
  assert checkpoints.read_json_lines(path) == [{'a': 1}, {'a': 2}]


@pytest.mark.parametrize('content', [b'{"a": 1}\n{"a": ', b'{"a": 1}\n\n', b'\xff\xfe', b'[1, 2]\n'])
def test_a_damaged_file_is_named(tmp_path, content):
  """Lines that are cut off, empty, no text or no object are one sentence with the file's name, not a traceback."""
  path = tmp_path / 'results.jsonl'
  path.write_bytes(content)
  with pytest.raises(SettingsError, match=r"results.jsonl' is damaged; valid is "):
    checkpoints.read_json_lines(path)
