"""Checkpoints: they come back whole, and what was changed, cut, lost or not written is renamed, said and replaced."""

import pathlib
import shutil
import subprocess

from conftest import assert_same_bits
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from run_cases import cut, flip

from experiments.records import checkpoints, files
from experiments.runtime import storage
from experiments.settings.fields import SettingsError
from hmm_jax import sharding


def _like(tree):
  return checkpoints.sharded_like(tree, sharding.replicated(sharding.make_mesh()))


def _state(value):
  return {'weights': jnp.full((3, 2), value, jnp.float32)}


def _save(directory, *steps):
  with checkpoints.open_checkpoints(directory) as saved:
    for step in steps:
      saved.save(step, _state(step), [{'step': step}])


def _restored(directory):
  """The restored step, by the value of its state, and what was said."""
  with checkpoints.open_checkpoints(directory) as saved:
    restored = saved.restore(_like(_state(0)))
  if restored is None:
    return None, saved.found
  (value,) = set(np.ravel(restored[0]['weights']).tolist())
  assert restored[1] == [{'step': value}]
  return value, saved.found


def test_a_checkpoint_round_trips_with_its_metrics(tmp_path):
  """The newest step comes back, though its buffers were donated since; what a kill left of another is no step."""
  state = {'weights': jnp.zeros((512, 512))}
  like = _like(state)
  with checkpoints.open_checkpoints(tmp_path / 'c') as saved:
    assert saved.restore(like) is None
    saved.save(2, state, [{'loss': 1.5}, {'loss': 0.1}])
    jax.jit(lambda x: x + 1, donate_argnums=0)(state['weights']).block_until_ready()
  (tmp_path / 'c' / '3.orbax-checkpoint-tmp' / 'state').mkdir(parents=True)
  with checkpoints.open_checkpoints(tmp_path / 'c') as saved:
    restored, metrics = saved.restore(like)
  assert not restored['weights'].any() and metrics == [{'loss': 1.5}, {'loss': 0.1}]


@pytest.fixture(scope='module')
def pristine(tmp_path_factory):
  directory = tmp_path_factory.mktemp('pristine') / checkpoints.NAME
  _save(directory, 1, 2, 3)
  return directory


@pytest.fixture
def directory(pristine, tmp_path):
  return shutil.copytree(pristine, tmp_path / pristine.parent.name / checkpoints.NAME)


def test_the_two_newest_steps_are_kept(pristine):
  assert checkpoints.steps(pristine) == [3, 2] and _restored(pristine) == (3, [])


def _lead_nowhere(path):
  """As on a disk that fails, the file cannot be read."""
  path.unlink()
  path.symlink_to('nowhere')


DAMAGES = [
  ('metrics/metrics', flip, 'metrics/metrics failed its checksum'),
  ('state/_METADATA', cut, 'state/_METADATA failed its checksum'),
  # Orbax restores a flipped bit of the arrays without a word.
  ('state/**/d/*', flip, 'failed its checksum'),
  ('commit_success.txt', pathlib.Path.unlink, 'commit_success.txt is missing'),
  ('state', lambda path: (path / 'more').touch(), 'more was added'),
  ('state/_METADATA', _lead_nowhere, 'cannot be read'),
  (checkpoints.CHECKSUMS, flip, checkpoints.CHECKSUMS),
]


@pytest.mark.parametrize(('name', 'damage', 'words'), DAMAGES)
def test_a_corrupt_step_is_named_and_renamed_and_the_one_before_used(directory, name, damage, words):
  """Nothing is deleted, what was renamed is not picked up again, and the step can be saved once more."""
  damage(max((directory / '3').glob(name), key=lambda path: path.stat().st_size))
  kept = files.tree(directory / '3').keys()
  value, (what, _) = _restored(directory)
  assert value == 2 and words in what and str(directory / '3') in what and '3.corrupt' in what
  assert files.tree(directory / '3.corrupt').keys() == kept
  assert _restored(directory) == (2, [])
  _save(directory, 3)
  assert _restored(directory) == (3, [])


def test_a_step_without_checksums_is_used_unless_it_cannot_be_restored(directory):
  """As after a kill between Orbax's commit, which leaves a whole step, and its checksums."""
  (directory / '3' / checkpoints.CHECKSUMS).unlink()
  assert _restored(directory) == (3, [])
  shutil.rmtree(directory / '3' / 'state')
  value, (what, _) = _restored(directory)
  assert value == 2 and '3.corrupt' in what


def test_an_intact_step_that_cannot_be_restored_is_refused(directory):
  """Its bytes are those that were written, so that it stays where it is: settings or libraries are others."""
  with checkpoints.open_checkpoints(directory) as saved, pytest.raises(SettingsError, match='/3'):
    saved.restore(_like({'other': jnp.zeros(3)}))
  assert _restored(directory) == (3, [])


def test_a_step_of_another_model_is_renamed(pristine, tmp_path):
  """Its shapes may be the same, and every file as it was written; without a step pretraining starts again."""
  directory = shutil.copytree(pristine, tmp_path / 'another' / checkpoints.NAME)
  value, said = _restored(directory)
  assert value is None and checkpoints.steps(directory) == []
  assert [pristine.parent.name in sentence for sentence in said] == [True, True, False]


@pytest.fixture
def small(tmp_path):
  """A file system of its own, by a function of its size in bytes."""
  where = tmp_path / 'small'
  where.mkdir()

  def sized(size):
    again = ['-o', f'remount,size={size}'] if where.is_mount() else ['-t', 'tmpfs', '-o', f'size={size}', 'tmpfs']
    if subprocess.run(['mount', *again, str(where)], capture_output=True).returncode:
      pytest.skip('mounting is not permitted')
    return where

  yield sized
  if where.is_mount():
    subprocess.run(['umount', '-l', str(where)], check=True)


def test_a_full_disk_is_a_sentence_and_leaves_the_last_step(small):
  """Room for one step and a half takes one; with room again the run goes on."""
  draws = np.random.default_rng(0)
  wide = {f'leaf {index}': jnp.asarray(draws.normal(size=2**16), jnp.float32) for index in range(10)}
  size = sum(leaf.nbytes for leaf in wide.values())
  directory = small(3 * size // 2) / checkpoints.NAME
  with checkpoints.open_checkpoints(directory) as saved:
    saved.save(1, wide, [])
    with pytest.raises(storage.StorageError, match=f"'{directory}/2' was not written .No space left on device"):
      saved.save(2, wide, [])
  small(4 * size)
  with checkpoints.open_checkpoints(directory) as saved:
    restored, _ = saved.restore(_like(wide))
    assert checkpoints.steps(directory) == [1] and not saved.found
    saved.save(2, wide, [])
  assert_same_bits(restored, wide)
  assert checkpoints.steps(directory) == [2, 1]
