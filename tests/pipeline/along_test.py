"""Trials that are tuned along the pretraining of their BERT."""

import pathlib
import shutil

import numpy as np
import pytest
from run_cases import cut, pretraining_settings, QUIET
import scipy.stats

from experiments.pipeline import distance, pretraining, queue, sweep
from experiments.records import checkpoints, files, results
from hmm_jax.models.bayes_gap import Ideal


def _settings(**changes):
  asked = dict(num_states=(3,), models=('bert',), methods=('head', 'table'), tasks_per_trial=1, checkpoints=(4, 8))
  asked |= dict(pretrain__checkpoint_every=8)
  return pretraining_settings(**asked | changes)


def _run(workdir, **changes):
  """The folder of the only trial, run and merged."""
  settings = _settings(**changes)
  sweep.run([settings], workdir, QUIET)
  (folder,) = sweep.folders([settings], workdir)
  return folder


def _arrays(folder):
  """The bytes of what is tuned, by the step."""
  return {
    name.step: path.with_suffix('.npz').read_bytes() for name, path in folder.paths().items() if name.model == 'bert'
  }


def _metrics(folder):
  return files.read_json_lines(folder.pretrained_directory / 'metrics.jsonl')


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
  return _run(tmp_path_factory.mktemp('finished'))


@pytest.fixture
def workdir(finished, tmp_path):
  """A copy of the finished folder."""
  return shutil.copytree(finished.workdir, tmp_path / 'copy')


@pytest.mark.slow
def test_bert_has_a_record_at_each_step_and_a_reader_without_a_model_one(finished):
  """With the KL that was measured there in training."""
  records = results.load(finished.workdir)
  assert [(row['method'], row.get('step')) for row in records] == [('head', 4), ('head', 8), ('table', None)]
  kl = {row['step']: row['kl_at_mask'] for row in _metrics(finished)}
  assert [row['kl_at_mask'] for row in records] == [kl[4], kl[8], None] and kl[4] != kl[8]
  assert records[0]['unigram_gap'] == records[1]['unigram_gap'] > 0


@pytest.mark.slow
def test_the_last_step_is_that_of_a_trial_without_steps(finished, workdir):
  """They are one trial: the model is found, and only the head is tuned."""
  plain = _run(workdir, checkpoints=())
  assert plain.trial.id == finished.trial.id and _arrays(plain) == {None: _arrays(finished)[8]}


@pytest.mark.slow
def test_a_step_that_is_asked_for_later_is_made_and_nothing_else(finished, workdir):
  """Its KL is that of the first training, which is not repeated."""
  before = {path: path.stat().st_mtime_ns for path in workdir.glob('pretrained/*/m*') if path.name != 'model_2'}
  more = _run(workdir, checkpoints=(2, 4, 8))
  assert {path: path.stat().st_mtime_ns for path in before} == before and len(before) == 3
  record, *_ = more.records().values()
  assert record['step'] == 2 and record['kl_at_mask'] == _metrics(finished)[1]['kl_at_mask']
  assert _arrays(finished).items() < _arrays(more).items()


@pytest.mark.slow
@pytest.mark.parametrize('damage', [lambda _: None, cut, pathlib.Path.unlink], ids=['none', 'cut', 'lost'])
def test_a_kill_in_training_changes_no_bit(finished, tmp_path, monkeypatch, damage):
  """As the checkpoint of a step has been saved, also if its metrics are damaged then; nothing is trained apart."""
  save = checkpoints.save

  def kill(directory, step, *more):
    save(directory, step, *more)
    if step == 4:
      raise OSError

  monkeypatch.setattr(pretraining, 'params_along', None)
  with monkeypatch.context() as patched, pytest.raises(queue.UnitsFailed):
    patched.setattr(checkpoints, 'save', kill)
    _run(tmp_path)
  (metrics,) = tmp_path.glob('pretrained/*/metrics.jsonl')
  damage(metrics)
  resumed = _run(tmp_path)
  assert _arrays(resumed) == _arrays(finished) and _metrics(resumed) == _metrics(finished)


def test_the_unigram_gap_is_that_of_the_best_constant_prediction():
  """The mean KL to the mean of G, which is the least."""
  probs = np.random.default_rng(0).dirichlet([0.3] * 4, 50)
  gap = distance.unigram_gap(Ideal(None, None, None, probs[:, None]))
  assert gap == pytest.approx(scipy.stats.entropy(probs, probs.mean(0)[None], axis=1).mean())
