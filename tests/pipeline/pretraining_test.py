"""Pretraining as the experiments run it: which mesh, in which order, one compilation, one model for several trials."""

import dataclasses
import json

from conftest import assert_same_bits
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rich.console
from settings_cases import settings_of

from experiments.pipeline import pretraining, trial as trial_lib
from experiments.runtime.progress import Reporter
from experiments.settings.fields import SettingsError
from experiments.settings.grid import Point
from experiments.settings.groups import CorpusSettings
from hmm_jax import pretrain, sharding
from hmm_jax.hmm import HMM
from hmm_jax.sampling import sample_corpus

pytestmark = pytest.mark.usefixtures('without_optimisation')


def _reporter():
  return Reporter(rich.console.Console(quiet=True))


def _hmm(num_states, num_tokens):
  rng = np.random.default_rng(0)
  initial, *matrices = (
    jnp.float32(rng.dirichlet(np.ones(n), num_states)) for n in (num_states, num_states, num_tokens)
  )
  return HMM(initial[0], *matrices)


def test_a_chunk_is_of_one_document():
  """Documents are cut from their start on, and what is left of each is seen by no chunk."""
  hmm, key = _hmm(3, 50), jax.random.key(0)
  chunks = pretraining._corpus(key, hmm, CorpusSettings(num_documents=5, document_length=11, chunk_length=4))
  documents = np.asarray(sample_corpus(key, hmm, 5, 11))
  np.testing.assert_array_equal(chunks, [part for row in documents for part in (row[:4], row[4:8])])


@pytest.mark.parametrize(
  ('field', 'processes', 'changes'),
  [
    (r'mesh \(data, fsdp, tensor\)', 1, dict(mesh__fsdp=3)),
    ('mesh', 1, dict(mesh__data=16)),
    ('mesh', 2, dict(mesh__data=2, mesh__tensor=2)),
    ('pretrain.batch_size is 12; valid is a multiple of 8', 1, dict(pretrain__batch_size=12)),
    ('bert.num_heads is 2; valid is a multiple of 4', 1, dict(mesh__tensor=4)),
    ('bert.ffn_width is 33; valid is a multiple of 2', 1, dict(mesh__tensor=2, bert__ffn_width=33)),
    (None, 1, dict(mesh__fsdp=-1, mesh__data=2)),
    (None, 1, dict(mesh__data=2, mesh__tensor=2)),
  ],
)
def test_a_mesh_fits_devices_and_model_or_is_refused(field, processes, changes, monkeypatch):
  """It takes all of eight devices or, in one process, fewer; its axes divide the batch and the layers."""
  monkeypatch.setattr(jax, 'device_count', lambda: 8)
  monkeypatch.setattr(jax, 'process_count', lambda: processes)
  settings = settings_of('smoke', **changes)
  if field is None:
    pretraining.check_mesh(settings)
    assert settings.mesh.sizes(8) in [(2, 4, 1), (2, 1, 2)]
  else:
    with pytest.raises(SettingsError, match=f'^{field}'):
      pretraining.check_mesh(settings)


class _Saved:
  """Checkpoints that are told and nowhere kept."""

  def __init__(self, told):
    self.told = told

  def save(self, step, state, metrics):
    self.told.append(('saved', step, float(state.params)))


def _told(tmp_path, monkeypatch, **changes):
  """What happens in which order in a training of 40 steps whose calls of 10 double its one parameter."""
  told, advance = [], jax.jit(lambda s: (s._replace(step=s.step + 10, params=2 * s.params), s.params), donate_argnums=0)

  def call(state):
    result = advance(state)
    assert state.params.is_deleted()
    told.append(('call', int(result[0].step)))
    return result[0], result[1][None]

  monkeypatch.setattr(pretraining, 'measure', lambda *_: told.append('measured') or {'kl_at_mask': 0.5})
  settings = settings_of('smoke', pretrain__measure_every=40, pretrain__checkpoint_every=20, **changes)
  state, reporter = pretrain.TrainState(jnp.int32(0), jnp.float32(1), ()), _reporter()
  with reporter.clock.phase('pretraining'):
    pretraining._train(settings, state, [{'step': 0}], call, (), _Saved(told), tmp_path, reporter)
  return told


BEGINNING = [('call', 10), ('call', 20), ('saved', 20, 4)]


def test_a_call_is_measured_and_saved_before_the_next_one(tmp_path, monkeypatch):
  """The state is donated to the next call: what is measured and saved of it comes first.

  Past a time budget the first checkpoint is the last.
  """
  told = _told(tmp_path, monkeypatch)
  assert told == [*BEGINNING, ('call', 30), ('call', 40), 'measured', ('saved', 40, 16)]
  assert _told(tmp_path, monkeypatch, time_budget=1e-9) == BEGINNING


def test_a_stop_comes_after_the_call_that_is_under_way(tmp_path, monkeypatch):
  """The checkpoint is of its last step, wherever checkpoints else are."""
  asked = iter([False, False, True])
  monkeypatch.setattr(pretraining.signals, 'all_stopping', lambda: next(asked))
  assert _told(tmp_path, monkeypatch) == [*BEGINNING, ('call', 30), ('saved', 30, 8)]


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
  """A trial of each model at three states that has been run."""
  settings = settings_of('smoke', num_states=(3,), methods=('head',))
  trial = trial_lib.Trial(settings, Point(3), 0, tmp_path_factory.mktemp('finished'))
  trial_lib.run(trial, _reporter())
  return trial


def test_parameters_along_a_pretraining_are_its_own(finished):
  """At its last step those that it ends with, bit by bit, and others before it.

  An HMM of five states then compiles no training step.
  """
  settings, key = finished.settings, finished.keys().pretraining
  with trial_lib.precisely():
    hmm, _ = trial_lib.draw(finished)
    along = dict(pretraining.params_along(settings, hmm, key, (0, 20, 40), _reporter()))
    whole = pretraining.pretrained_params(settings, hmm, (), key, finished.pretrained_directory, _reporter())
  assert_same_bits(along[40], whole)
  flat = [np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(params)]) for params in along.values()]
  assert (flat[0] != flat[1]).any() and (flat[1] != flat[2]).any()
  p = settings.pretrain
  _, train_steps = pretraining.compiled(settings.bert_module(), p, p.num_steps, sharding.make_mesh())
  assert [step for step, _ in pretraining.params_along(settings, _hmm(5, 10), key, (10,), _reporter())] == [10]
  assert train_steps._cache_size() == 1


def test_trials_that_differ_in_tasks_share_one_model(finished):
  """A second trial with other downstream data finds the pretrained model and trains no step."""
  contents = lambda: {path: path.read_bytes() for path in finished.workdir.glob('pretrained/*/*.jsonl')}
  before = contents()
  assert {path.name for path in before} == {'environment.jsonl', 'metrics.jsonl'} and len(before) == 2
  tasks = dataclasses.replace(finished.settings.downstream, num_test=finished.settings.downstream.num_test // 2)
  settings = dataclasses.replace(finished.settings, downstream=tasks, models=('bert',))
  trial_lib.run(finished._replace(settings=settings), _reporter())
  assert contents() == before and len(list(finished.workdir.glob('trials/*'))) == 2


def test_the_distance_from_the_ideal_model_is_recorded(finished):
  """At every measured step of BERT its loss is above the Bayes floor; the exact model has no distance."""
  lines = (finished.pretrained_directory / 'metrics.jsonl').read_text().splitlines()
  rows = [json.loads(line) for line in lines]
  assert [row['step'] for row in rows] == [0, 20, 40]
  for row in rows:
    assert 0 < row['excess_mlm_loss'] == pytest.approx(row['mlm_loss'] - row['bayes_floor'], abs=1e-4)
  (exact, *_) = [row for row in finished.records() if row['model'] == 'exact']
  for name in ('kl_at_mask', 'tv_at_mask', 'kl_over_positions', 'tv_over_positions'):
    assert abs(exact[name]) < 1e-5
