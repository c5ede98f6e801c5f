"""Checkpoints: they come back whole, and what was changed, cut, lost or not written is renamed, said and replaced."""

import pathlib
import shutil
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from run_cases import flip, QUIET

from experiments.records import checkpoints, files
from experiments.runtime import storage
from experiments.settings.fields import SettingsError
from hmm_jax.models import sharding


def _like(tree):
  place = sharding.replicated(sharding.make_mesh())
  return jax.tree.map(lambda x: x.update(sharding=place), jax.eval_shape(lambda: tree))


def _state(value):
  return {'weights': jnp.full((3, 2), value, jnp.float32)}


def _save(directory, *steps):
  for step in steps:
    checkpoints.save(directory, step, _state(step))


def _restored(directory):
  """The restored step, by the value of its state."""
  restored = checkpoints.restore(directory, _like(_state(0)), QUIET)
  if restored is None:
    return None
  (value,) = set(np.ravel(restored['weights']).tolist())
  return value


@pytest.fixture(scope='module')
def pristine(tmp_path_factory):
  directory = tmp_path_factory.mktemp('pristine') / checkpoints.NAME
  _save(directory, 1, 2, 3)
  return directory


@pytest.fixture
def directory(pristine, tmp_path):
  return shutil.copytree(pristine, tmp_path / pristine.parent.name / checkpoints.NAME)


def test_the_two_newest_checkpoints_round_trip(directory):
  """The newest counts; what a kill left of another is removed, whether Orbax was done with it or not."""
  (directory / '4' / 'state.orbax-checkpoint-tmp').mkdir(parents=True)
  shutil.copytree(directory / '3', directory / '5')
  (directory / '5' / files.CHECKSUMS).unlink()
  assert _restored(directory) == 3 and checkpoints.steps(directory) == [3, 2]
  assert _restored(directory.parent / 'none') is None


def _lead_nowhere(path):
  """As on a disk that fails, the file cannot be read."""
  path.unlink()
  path.symlink_to('nowhere')


DAMAGES = [
  # Orbax restores a flipped bit of the arrays without a word.
  ('state/**/d/*', flip),
  ('state/_METADATA', pathlib.Path.unlink),
  ('state/_METADATA', _lead_nowhere),
  (files.CHECKSUMS, flip),
]


@pytest.mark.parametrize(('name', 'damage'), DAMAGES)
def test_a_corrupt_step_is_renamed_and_the_one_before_used(directory, name, damage):
  """Nothing is deleted, what was renamed is not picked up again, and the step can be saved once more."""
  damage(max((directory / '3').glob(name), key=lambda path: path.stat().st_size))
  kept = files.tree(directory / '3').keys()
  assert _restored(directory) == 2
  assert files.tree(directory / '3.corrupt').keys() == kept
  _save(directory, 3)
  assert _restored(directory) == 3


def test_an_intact_step_that_cannot_be_restored_is_refused(directory):
  """Its bytes are those that were written, so that it stays where it is: settings or libraries are others."""
  with pytest.raises(SettingsError, match='/3'):
    checkpoints.restore(directory, _like({'other': jnp.zeros(3)}), QUIET)
  assert _restored(directory) == 3


def test_a_step_of_another_model_is_renamed(pristine, tmp_path):
  """Its shapes may be the same, and every file as it was written."""
  directory = shutil.copytree(pristine, tmp_path / 'another' / checkpoints.NAME)
  assert _restored(directory) is None and checkpoints.steps(directory) == []


def test_a_step_that_cannot_be_written_is_one_sentence(directory, monkeypatch):
  """With the error of the system, which the store of arrays tells by its number; the last step stays."""
  full = mock.Mock(side_effect=ValueError("a page [os_error_code='28'] of words"))
  with monkeypatch.context() as patched, pytest.raises(storage.StorageError, match=f"'{directory}/4' .*No space left"):
    patched.setattr(checkpoints.ocp.Checkpointer, 'save', full)
    _save(directory, 4)
  assert _restored(directory) == 3
