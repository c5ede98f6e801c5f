"""Pretraining as the experiments run it: the paper's scale, one compilation, metrics and events."""

import dataclasses
import io
import json
import re

from conftest import assert_same_bits
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rich.console

from configs import prompt_vs_head
from experiments.pipeline import pretraining, trial as trial_lib
from experiments.records import environment
from experiments.runtime.progress import Reporter
from experiments.settings.fields import SettingsError
from experiments.settings.grid import Point
from experiments.settings.groups import CorpusSettings
from experiments.studies import registry
from hmm_jax import bayes_gap, pretrain, sharding
from hmm_jax.hmm import HMM
from hmm_jax.model import ExactModel
from hmm_jax.sampling import sample_corpus

pytestmark = pytest.mark.usefixtures('without_optimisation')


def _settings(scale, **changes):
  config = prompt_vs_head.get_config(scale)
  config.update_from_flattened_dict({name.replace('__', '.'): value for name, value in changes.items()})
  return registry.from_config(config)


def _compiled(settings):
  p = settings.pretrain
  return pretraining.compiled(settings.bert_module(), p, p.num_steps, sharding.make_mesh())


def _reporter():
  return Reporter(rich.console.Console(quiet=True))


def test_the_paper_scale_builds_and_traces():
  """BERT-base with 6 layers has 43,522,571 parameters, and its training steps lower for the paper's corpus."""
  settings = _settings('paper')
  init, train_steps = _compiled(settings)
  key = jax.eval_shape(lambda: jax.random.key(0))
  state = jax.eval_shape(init, key)
  layer = 4 * (768 * 768 + 768) + 2 * 768 * 3072 + 3072 + 768 + 4 * 768
  embeddings = (11 + 512) * 768 + 2 * 768
  output = 768 * 768 + 768 + 2 * 768 + 11
  expected = 6 * layer + embeddings + output
  assert sum(x.size for x in jax.tree.leaves(state.params)) == expected == 43_522_571
  corpus = jax.ShapeDtypeStruct((settings.corpus.num_chunks, settings.corpus.chunk_length), jnp.uint8)
  assert settings.corpus.num_chunks == 100_000
  assert settings.pretrain.num_steps == 3 * settings.corpus.num_chunks // settings.pretrain.batch_size == 37_500
  lowered = train_steps.lower(state, corpus, key)
  assert jax.tree.leaves(lowered.out_info)[-1].shape == (settings.pretrain.steps_per_call,)


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
  """A trial of each model at three states, and its settings, which ask for five states too."""
  settings = _settings('smoke', num_states=(3, 5), methods=('head',))
  trial = trial_lib.Trial(settings, Point(3), 0, tmp_path_factory.mktemp('finished'))
  trial_lib.run(trial, _reporter())
  return trial


def test_a_chunk_is_of_one_document():
  """Documents are cut from their start on, and what is left of each is seen by no chunk."""
  rng = np.random.default_rng(0)
  hmm = HMM(*(jnp.float32(rng.dirichlet(np.ones(size), 3)) for size in (3, 3, 50)))
  hmm, key = hmm._replace(initial_probs=hmm.initial_probs[0]), jax.random.key(0)
  chunks = pretraining._corpus(key, hmm, CorpusSettings(num_documents=5, document_length=11, chunk_length=4))
  documents = np.asarray(sample_corpus(key, hmm, 5, 11))
  np.testing.assert_array_equal(chunks, [part for row in documents for part in (row[:4], row[4:8])])


def test_the_compiled_steps_stay_on_the_device(finished):
  """The whole state is written over the one that is donated; nothing is sent to the host, or received from it."""
  settings = finished.settings
  init, train_steps = _compiled(settings)
  key = jax.eval_shape(lambda: jax.random.key(0))
  state, corpus = jax.eval_shape(init, key), (settings.corpus.num_chunks, settings.corpus.chunk_length)
  text = train_steps.lower(state, jax.ShapeDtypeStruct(corpus, jnp.uint8), key).compile().as_text()
  aliased = [(int(out), int(into)) for out, into in re.findall(r'\{(\d+)\}: \((\d+), \{\}', text.splitlines()[0])]
  assert aliased == [(leaf, leaf) for leaf in range(len(jax.tree.leaves(state)))]
  assert not re.search(r'\b(infeed|outfeed|send|recv)(-done)?\(', text)
  assert not [target for target in re.findall(r'custom_call_target="([^"]*)"', text) if 'callback' in target]


MESH = r'mesh \(data, fsdp, tensor\) is '
REFUSED_ON_EIGHT = [
  (dict(mesh__fsdp=3), MESH + r'\(-1, 3, 1\); valid is sizes whose product is 8, the devices that there are$'),
  (dict(mesh__data=16), MESH + r'\(16, 1, 1\); valid is sizes whose product is 8, .*, or less$'),
  (dict(pretrain__batch_size=12), 'pretrain.batch_size is 12; valid is a multiple of 8, which mesh.data times'),
  (dict(mesh__tensor=4), 'bert.num_heads is 2; valid is a multiple of 4, which mesh.tensor is'),
  (dict(mesh__tensor=2, bert__ffn_width=33), 'bert.ffn_width is 33; valid is a multiple of 2, which mesh.tensor is'),
]


@pytest.mark.parametrize(('changes', 'sentence'), REFUSED_ON_EIGHT)
def test_a_mesh_that_fits_neither_devices_nor_model_is_refused(changes, sentence, monkeypatch):
  monkeypatch.setattr(jax, 'device_count', lambda: 8)
  with pytest.raises(SettingsError, match=f'^{sentence}'):
    pretraining.check_mesh(_settings('smoke', **changes))


def test_a_mesh_takes_all_devices_or_in_one_process_fewer(monkeypatch):
  monkeypatch.setattr(jax, 'device_count', lambda: 8)
  for fits in (dict(), dict(mesh__fsdp=-1, mesh__data=2), dict(mesh__data=2, mesh__tensor=2)):
    pretraining.check_mesh(_settings('smoke', **fits))
  assert _settings('smoke', mesh__fsdp=-1, mesh__data=2).mesh.sizes(8) == (2, 4, 1)
  monkeypatch.setattr(jax, 'process_count', lambda: 2)
  with pytest.raises(SettingsError, match='product is 8, the devices that there are$'):
    pretraining.check_mesh(_settings('smoke', mesh__data=2, mesh__tensor=2))


CALLS = [('call', 10), ('call', 20)]


class _Saved:
  """Checkpoints that are told and nowhere kept."""

  def __init__(self, told):
    self.told = told

  def save(self, step, state, metrics):
    self.told.append(('saved', step, int(state.step), float(state.params)))


def _trained(settings, tmp_path, monkeypatch):
  """What happens in which order, and the last state, of a training whose call doubles its one parameter."""
  told, advance = [], jax.jit(lambda s: (s._replace(step=s.step + 10, params=2 * s.params), s.params), donate_argnums=0)

  def call(state):
    result = advance(state)
    assert state.params.is_deleted()
    told.append(('call', int(result[0].step)))
    return result[0], result[1][None]

  monkeypatch.setattr(
    pretraining, 'measure', lambda _, model, params, ideals: told.append('measured') or {'kl_at_mask': 0.5}
  )
  settings = dataclasses.replace(settings, pretrain=dataclasses.replace(settings.pretrain, measure_every=40))
  state, reporter = pretrain.TrainState(jnp.int32(0), jnp.float32(1), ()), _reporter()
  with reporter.clock.phase('pretraining'):
    metrics = [{'step': 0}]
    state = pretraining._train(settings, state, metrics, call, (), _Saved(told), tmp_path, reporter)
  return told, int(state.step)


def test_a_call_is_measured_and_saved_before_the_next_one(tmp_path, monkeypatch):
  """The state is donated to the next call: what is measured and saved of it comes first."""
  settings = _settings('smoke')
  p = settings.pretrain
  assert (p.num_steps, p.steps_per_call, p.checkpoint_every) == (40, 10, 20)
  told, step = _trained(settings, tmp_path, monkeypatch)
  assert told == [*CALLS, ('saved', 20, 20, 4), ('call', 30), ('call', 40), 'measured', ('saved', 40, 40, 16)]
  assert step == 40
  # Past a time budget the first checkpoint is the last.
  told, step = _trained(dataclasses.replace(settings, time_budget=1e-9), tmp_path, monkeypatch)
  assert told == [*CALLS, ('saved', 20, 20, 4)] and step == 20


def test_a_stop_comes_after_the_call_that_is_under_way(tmp_path, monkeypatch):
  """The checkpoint is of its last step, wherever checkpoints else are."""
  asked = iter([False, False, True])
  monkeypatch.setattr(pretraining.signals, 'all_stopping', lambda: next(asked))
  told, step = _trained(_settings('smoke'), tmp_path, monkeypatch)
  assert told == [*CALLS, ('saved', 20, 20, 4), ('call', 30), ('saved', 30, 30, 8)] and step == 30


def _some_ideals(settings):
  """Inputs and answers of no HMM, for what measures a model whatever the truth."""
  rng, num_tokens = np.random.default_rng(0), settings.hmm.num_tokens

  def ideal(count, length):
    inputs = rng.integers(num_tokens, size=(count, length), dtype=np.int32)
    positions = np.broadcast_to(np.arange(length), inputs.shape)
    weights = np.full(inputs.shape, 1 / inputs.size, np.float32)
    probs = rng.dirichlet(np.ones(num_tokens), inputs.shape).astype(np.float32)
    return bayes_gap.Ideal(*map(jnp.array, (inputs, positions, weights, probs)))

  return tuple(ideal(4, settings.downstream.length) for _ in range(3))


def test_all_sizes_share_one_compilation(finished, tmp_path):
  """After a trial of 3 states, pretraining on an HMM of 5 states compiles no training step; and it trains."""
  settings, rng = finished.settings, np.random.default_rng(1)
  _, train_steps = _compiled(settings)
  assert train_steps._cache_size() == 1
  hmm = HMM(*(jnp.float32(rng.dirichlet(np.ones(size), 5)) for size in (5, 5, settings.hmm.num_tokens)))
  hmm = hmm._replace(initial_probs=hmm.initial_probs[0])
  pretraining.pretrained_params(settings, hmm, _some_ideals(settings), jax.random.key(1), tmp_path, _reporter())
  assert train_steps._cache_size() == 1
  assert _lines(tmp_path / 'metrics.jsonl')[-1]['step'] == settings.pretrain.num_steps


def test_parameters_along_a_pretraining_are_its_own(finished):
  """At its last step those that it ends with, bit by bit, and others before it."""
  settings, key = finished.settings, finished.keys().pretraining
  with trial_lib.precisely():
    hmm, _ = trial_lib.draw(finished)
    along = dict(pretraining.params_along(settings, hmm, key, (0, 20, 40), _reporter()))
    where = finished.pretrained_directory
    whole = pretraining.pretrained_params(settings, hmm, _some_ideals(settings), key, where, _reporter())
  assert_same_bits(along[40], whole)
  first, middle, last = (np.concatenate([x.ravel() for x in jax.tree.leaves(params)]) for params in along.values())
  assert (first != middle).any() and (middle != last).any()


def _lines(path):
  return [json.loads(line) for line in path.read_text().splitlines()]


def test_metrics_are_written(finished):
  """At every measured step."""
  (directory,) = finished.workdir.glob('pretrained/*')
  rows = _lines(directory / 'metrics.jsonl')
  assert [row['step'] for row in rows] == [0, 20, 40]
  for row in rows:
    assert row['excess_mlm_loss'] == pytest.approx(row['mlm_loss'] - row['bayes_floor'], abs=1e-4)
    assert row['excess_mlm_loss'] > 0


def test_trials_that_differ_in_tasks_share_one_model(finished):
  """A second trial with other downstream data finds the pretrained model and trains no step."""
  (directory,) = finished.workdir.glob('pretrained/*')
  before = {path: path.read_bytes() for path in directory.glob('*.jsonl')}
  assert {path.name for path in before} == {'environment.jsonl', 'metrics.jsonl'}
  settings = finished.settings
  tasks = dataclasses.replace(settings.downstream, num_test=settings.downstream.num_test // 2)
  settings = dataclasses.replace(settings, downstream=tasks, models=('bert',))
  trial_lib.run(finished._replace(settings=settings), _reporter())
  assert list(finished.workdir.glob('pretrained/*')) == [directory]
  assert {path: path.read_bytes() for path in directory.glob('*.jsonl')} == before
  assert len(list(finished.workdir.glob('trials/*'))) == 2


def test_the_exact_model_has_no_gap(finished, tmp_path):
  """The exact model's distance from the ideal one is zero at the [MASK] and over positions; it needs no pretraining."""
  settings = dataclasses.replace(finished.settings, models=('exact',))
  trial = trial_lib.Trial(settings, Point(3), 0, tmp_path)
  trial_lib.run(trial, _reporter())
  assert not list(tmp_path.glob('pretrained/*'))
  for records in (trial.records(), finished.records()):
    (row, *_) = [row for row in records if row['model'] == 'exact']
    for name in ('kl_at_mask', 'tv_at_mask', 'kl_over_positions', 'tv_over_positions'):
      assert abs(row[name]) < 1e-5
  hmm = trial_lib.draw_distribution(settings, Point(3), trial.keys().distribution)
  assert ExactModel(settings.hmm.num_tokens).embedding_size(hmm) == 3


def test_a_model_found_elsewhere_names_the_difference(tmp_path, monkeypatch):
  """What trained a model stands beside it, once per start; found again by other versions, one line says which."""
  settings, directory = _settings('smoke'), tmp_path / 'abc'
  console = rich.console.Console(file=io.StringIO())
  note = lambda done: pretraining._note_environment(settings, directory, done, Reporter(console))
  note(0)
  note(20)
  kept = (directory / 'environment.jsonl').read_bytes()
  assert [json.loads(line)['from_step'] for line in kept.splitlines()] == [0, 20]
  assert {'commit', 'packages', 'platform', 'devices'} <= set(json.loads(kept.splitlines()[0]))
  note(settings.pretrain.num_steps)
  assert not console.file.getvalue()
  here = environment.environment(jax.devices())
  elsewhere = {**here, 'packages': {**here['packages'], 'jax': '9.9.9'}, 'commit': 'another'}
  monkeypatch.setattr(environment, 'environment', lambda devices: elsewhere)
  note(settings.pretrain.num_steps)
  assert console.file.getvalue() == f'abc was pretrained with jax {jax.__version__} (here 9.9.9)\n'
  assert (directory / 'environment.jsonl').read_bytes() == kept
