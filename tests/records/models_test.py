"""Finished models: what a kill, damage, an earlier version and an object store make of them."""

from conftest import assert_same_bits
import jax
import pytest
from run_cases import flip, pretraining_settings, stand_in_training

from experiments.pipeline import pretraining
from experiments.records import checkpoints, files, models
import hmm_jax as hj

SETTINGS = pretraining_settings(pretrain__checkpoint_every=4)
WEIGHTS = 'model/model.safetensors'


class Killed(BaseException):
  """The process ends here."""


@pytest.fixture
def pretrain(tmp_path, monkeypatch):
  """Pretrain in a folder: the parameters and the number of calls."""
  train = stand_in_training(monkeypatch, SETTINGS)
  return lambda name: train(tmp_path / name)


@pytest.fixture
def whole(pretrain, tmp_path):
  """The folder of a pretraining that nothing disturbed."""
  pretrain('whole')
  return tmp_path / 'whole'


def check(folder, params, whole):
  """The folder has the model of `whole` and no checkpoint, and these are its parameters."""
  assert (folder / WEIGHTS).read_bytes() == (whole / WEIGHTS).read_bytes()
  assert not (folder / checkpoints.NAME).exists()
  model, same, _ = hj.load(folder / models.NAME)
  assert model == pretraining.tuned_model(SETTINGS.bert_module())
  assert_same_bits(params, same)


def test_a_finished_model_is_read_and_trains_no_step(pretrain, whole):
  """A file and a folder that somebody has put there change nothing."""
  (whole / 'model/prompt').mkdir()
  (whole / 'model/prompt/notes').touch()
  (whole / 'model/.DS_Store').touch()
  params, calls = pretrain('whole')
  check(whole, params, whole)
  assert calls == 0 and {leaf.device for leaf in jax.tree.leaves(params)} == {jax.local_devices()[0]}
  assert 'at the [MASK]: 0.5000 nats' in (whole / 'model/README.md').read_text()


@pytest.mark.parametrize('moment', ['README.md', 'model.safetensors', files.CHECKSUMS])
def test_a_killed_run_ends_with_the_same_model_file(pretrain, whole, monkeypatch, moment):
  """As the model is begun, or before its weights or its checksums are written."""
  write_whole = files.write_whole

  def write(path, content):
    if path.name == moment and path.parent.name == models.NAME:
      raise Killed
    write_whole(path, content)

  with monkeypatch.context() as patch, pytest.raises(Killed):
    patch.setattr(files, 'write_whole', write)
    pretrain('killed')
  params, calls = pretrain('killed')
  assert calls == 0
  check(whole.with_name('killed'), params, whole)


def test_a_corrupt_model_is_renamed_and_made_again(pretrain, whole):
  before = (whole / WEIGHTS).read_bytes()
  flip(whole / WEIGHTS)
  params, calls = pretrain('whole')
  assert calls == 4 and (whole / 'model.corrupt/model.safetensors').exists()
  check(whole, params, whole)
  assert (whole / WEIGHTS).read_bytes() == before
