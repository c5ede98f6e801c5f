"""Checkpoints that were changed, cut, lost or not written: what is renamed, said and restored instead."""

import asyncio
import pathlib
import shutil
import subprocess
import sys
import threading

from conftest import assert_same_bits
import fsspec
import jax.numpy as jnp
import numpy as np
import pytest
import tensorstore

from configs import prompt_vs_head
from experiments.pipeline import cost, needs, trial as trial_lib
from experiments.records import checkpoints, files
from experiments.runtime import storage
from experiments.settings.fields import SettingsError
from experiments.settings.grid import Point
from experiments.studies import registry
from hmm_jax import sharding
from records.object_store_test import _Bucket


def _state(value):
  return {'weights': jnp.full((3, 2), value, jnp.float32)}


def _restored(directory):
  """The restored step, by the value of its state, and what was said."""
  like = checkpoints.sharded_like(_state(0), sharding.replicated(sharding.make_mesh()))
  with checkpoints.open_checkpoints(directory) as saved:
    restored = saved.restore(like)
  if restored is None:
    return None, saved.found
  (value,) = set(np.ravel(restored[0]['weights']).tolist())
  assert restored[1] == [{'step': value}]
  return value, saved.found


def _save(directory, *steps):
  with checkpoints.open_checkpoints(directory) as saved:
    for step in steps:
      saved.save(step, _state(step), [{'step': step}])


@pytest.fixture(scope='module')
def pristine(tmp_path_factory):
  directory = tmp_path_factory.mktemp('pristine') / checkpoints.NAME
  _save(directory, 1, 2, 3)
  return directory


@pytest.fixture
def directory(pristine, tmp_path):
  return shutil.copytree(pristine, tmp_path / pristine.parent.name / checkpoints.NAME)


def _flip(path):
  data = bytearray(path.read_bytes())
  data[len(data) // 2] ^= 1
  path.write_bytes(data)


FAULTS = {
  'a flipped bit': (_flip, 'failed its checksum'),
  'cut': (lambda path: path.write_bytes(path.read_bytes()[:-1]), 'failed its checksum'),
  'lost': (pathlib.Path.unlink, 'is missing'),
}


def test_every_file_of_the_two_newest_steps_has_a_checksum(pristine):
  """What Orbax has committed, and nothing else, is left."""
  assert checkpoints.steps(pristine) == [3, 2]
  for step in (2, 3):
    there = files.tree(pristine / str(step))
    recorded = files.read_sealed(pristine / str(step) / checkpoints.CHECKSUMS)
    assert set(recorded['files']) == {*there} - {checkpoints.CHECKSUMS} and len(there) > 5
    assert recorded['of'] == pristine.parent.name
  assert _restored(pristine) == (3, [])


@pytest.mark.parametrize('name', ['state/_METADATA', 'metrics/metrics', 'commit_success.txt'])
@pytest.mark.parametrize('fault', FAULTS)
def test_a_corrupt_step_is_named_and_renamed_and_the_one_before_used(directory, fault, name):
  """Nothing is deleted, and what was renamed is not picked up again."""
  change, words = FAULTS[fault]
  change(directory / '3' / name)
  kept = {path: file.read_bytes() for path, file in files.tree(directory / '3').items()}
  value, (what, rest) = _restored(directory)
  assert value == 2 and rest == 'step 2 is intact, and is used'
  renamed = directory / '3.corrupt'
  assert f'{directory / "3"}: {name} {words}' in what and renamed.name in what
  assert {path: file.read_bytes() for path, file in files.tree(renamed).items()} == kept
  assert _restored(directory) == (2, [])


@pytest.mark.parametrize('change', [_flip, lambda path: path.write_bytes(b''), lambda path: path.write_text('[]')])
def test_a_step_whose_checksums_are_corrupt_is_renamed(directory, change):
  change(directory / '3' / checkpoints.CHECKSUMS)
  value, (what, _) = _restored(directory)
  assert value == 2 and f'{checkpoints.CHECKSUMS} ' in what


def test_the_arrays_themselves_are_compared(directory):
  """Orbax restores a flipped bit of the state without a word; so does it one file that is not its own."""
  largest = max(
    (file for name, file in files.tree(directory / '3').items() if '/d/' in name), key=lambda f: f.stat().st_size
  )
  _flip(largest)
  (directory / '2' / 'more').touch()
  value, (newest, before, rest) = _restored(directory)
  assert value is None and rest == 'no intact checkpoint is left: pretraining starts again'
  assert f'{largest.name} failed its checksum' in newest and 'more was added' in before


def test_what_was_renamed_is_never_replaced(directory):
  """The same step may be corrupt twice."""
  for _ in range(2):
    _flip(directory / '3' / 'metrics' / 'metrics')
    assert _restored(directory)[0] == 2
    _save(directory, 3)
  assert {path.name for path in directory.glob('*.corrupt*')} == {'3.corrupt', '3.corrupt-2'}
  assert _restored(directory) == (3, [])


def test_a_step_without_checksums_is_used_unless_it_cannot_be_restored(directory):
  """As after a kill between Orbax's commit, which leaves a whole step, and its checksums."""
  (directory / '3' / checkpoints.CHECKSUMS).unlink()
  assert _restored(directory) == (3, [])
  shutil.rmtree(directory / '3' / 'state')
  value, (what, _) = _restored(directory)
  assert value == 2 and 'renamed to 3.corrupt' in what


def test_an_intact_step_that_cannot_be_restored_is_refused(directory):
  """Its bytes are those that were written, so that it stays where it is: settings or libraries are others."""
  like = checkpoints.sharded_like({'other': jnp.zeros(3)}, sharding.replicated(sharding.make_mesh()))
  with (
    checkpoints.open_checkpoints(directory) as saved,
    pytest.raises(SettingsError, match=r"checkpoint is '.*/3'; valid"),
  ):
    saved.restore(like)
  assert _restored(directory) == (3, [])


def test_a_save_that_has_returned_has_its_checksums(tmp_path):
  """So that a kill later finds them."""
  directory = tmp_path / 'model' / checkpoints.NAME
  with checkpoints.open_checkpoints(directory) as saved:
    saved.save(1, _state(1), [])
    assert (directory / '1' / checkpoints.CHECKSUMS).exists()


def test_in_an_object_store_a_corrupt_step_is_copied():
  """There are no names to change, and no directories."""
  fsspec.register_implementation('gcs', _Bucket, clobber=True)
  directory = storage.located('gs://bucket') / 'model' / checkpoints.NAME
  for step in (1, 2):
    (directory / str(step) / 'state' / 'file').write_bytes(b'%d' % step)
    digests = {'state/file': files.digest(directory / str(step) / 'state' / 'file')}
    files.write_sealed(directory / str(step) / checkpoints.CHECKSUMS, {'of': 'model', 'files': digests})
  (directory / '2' / 'state' / 'file').write_bytes(b'9')
  assert checkpoints._fault(directory / '1') is None
  assert checkpoints._fault(directory / '2') == 'state/file failed its checksum'
  files.rename_corrupt(directory / '2')
  assert (directory / '2.corrupt' / 'state' / 'file').read_bytes() == b'9'
  assert not (directory / '2').exists() and set(files.tree(directory / '1')) == {'state/file', checkpoints.CHECKSUMS}


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


def _wide(trial):
  """A state as large as that of the model of a trial, in a few leaves."""
  draws, size = np.random.default_rng(0), cost.state_bytes(trial.settings)
  return {f'leaf {index}': jnp.asarray(draws.normal(size=size // 40), jnp.float32) for index in range(10)}


def _taken(directory):
  return sum(path.stat().st_blocks * 512 for path in directory.rglob('*'))


def test_a_full_disk_is_a_sentence_and_leaves_the_last_step(small, tmp_path):
  """With room again it goes on. One step takes no more than is estimated before a run."""
  trial = _trial(tmp_path, **{'bert.width': 64})
  wide = _wide(trial)
  with checkpoints.open_checkpoints(tmp_path / checkpoints.NAME) as saved:
    saved.save(1, wide, [])
  taken = _taken(tmp_path / checkpoints.NAME)
  assert cost.state_bytes(trial.settings) < taken <= cost.state_bytes(trial.settings) + needs._STEP
  directory = small(3 * taken // 2) / checkpoints.NAME
  like = checkpoints.sharded_like(wide, sharding.replicated(sharding.make_mesh()))
  sentence = (
    f"'{directory}/2' was not written .No space left on device, .* bytes are free.; .* the same command goes on"
  )
  with checkpoints.open_checkpoints(directory) as saved:
    saved.save(1, wide, [])
    with pytest.raises(storage.StorageError, match=sentence):
      saved.save(2, wide, [])
  small(4 * taken)
  with checkpoints.open_checkpoints(directory) as saved:
    state, _ = saved.restore(like)
    assert saved.manager.latest_step() == 1 and not saved.found
    saved.save(2, wide, [])
  assert_same_bits(state, wide)
  assert checkpoints.steps(directory) == [2, 1]


def test_a_full_disk_leaves_a_file_as_it_was(small):
  """The partial one is gone, and its room free again."""
  path = small('64k') / 'rows.jsonl'
  files.write_whole(path, 'old')
  with pytest.raises(
    storage.StorageError, match=rf"'{path}' was not written \(No space left on device, .* bytes are free\)"
  ):
    files.write_whole(path, b'0' * 2**17)
  assert path.read_text() == 'old' and list(path.parent.iterdir()) == [path]


def _trial(workdir, **changes):
  config = prompt_vs_head.get_config('smoke')
  config.update_from_flattened_dict(changes)
  return trial_lib.Trial(registry.from_config(config), Point(4), 0, workdir)


def test_a_step_of_another_model_is_renamed(pristine, tmp_path):
  """Its shapes may be the same, and every file as it was written."""
  directory = shutil.copytree(pristine, tmp_path / 'another' / checkpoints.NAME)
  value, said = _restored(directory)
  assert value is None and len(said) == 3 and said[-1].startswith('no intact checkpoint is left')
  assert all(f'it is of the model {pristine.parent.name}' in sentence for sentence in said[:2])


def test_a_file_that_cannot_be_read_is_corrupt(directory):
  """Such as on a disk that fails; here a link that leads nowhere."""
  path = next(path for path in sorted((directory / '3' / 'state').rglob('*')) if path.is_file())
  path.unlink()
  path.symlink_to('nowhere')
  value, said = _restored(directory)
  assert value == 2 and str(directory / '3') in said[0]


def test_what_is_named_like_a_step_and_is_none_is_left_alone(directory):
  """Such as a copy by hand."""
  shutil.copytree(directory / '3', directory / '03')
  assert checkpoints.steps(directory) == [3, 2] and _restored(directory) == (3, [])


def test_a_loop_that_orbax_closed_is_not_told_of(monkeypatch):
  """The store's futures may find it closed, in a thread, once a save has failed; all else is told as before."""
  told = []
  monkeypatch.setattr(sys, 'unraisablehook', lambda raised: told.append(str(raised.exc_value)))
  _resolve_a_future_of_a_closed_loop()
  assert told == ['Event loop is closed']
  checkpoints._hush.__wrapped__()
  _resolve_a_future_of_a_closed_loop()
  sys.unraisablehook(_Raised(RuntimeError('something else')))
  sys.unraisablehook(_Raised(ValueError('Event loop is closed')))
  assert told == ['Event loop is closed', 'something else', 'Event loop is closed']


class _Raised:
  def __init__(self, error):
    self.exc_value = error


def _resolve_a_future_of_a_closed_loop():
  promise, future = tensorstore.Promise.new()
  loop = asyncio.new_event_loop()

  async def wait():
    await future

  task = loop.create_task(wait())
  loop.run_until_complete(asyncio.sleep(0))
  loop.close()
  thread = threading.Thread(target=promise.set_result, args=(1,))
  thread.start()
  thread.join()
  # Its end is not waited for on purpose, of which asyncio would warn.
  task._log_destroy_pending = False
