"""Pretraining as the experiments run it: the paper's scale, one compilation, metrics and events."""

import io
import json

import jax
import jax.numpy as jnp
import pytest
import rich.console

from configs import prompt_vs_head
from experiments import config as config_lib
from experiments import environment
from experiments import pretraining
from experiments import trial as trial_lib
from experiments.progress import Reporter
from experiments.settings import Point
from hmm_jax.model import exact_model


def _settings(scale, **changes):
  config = prompt_vs_head.get_config(scale)
  config.update_from_flattened_dict({name.replace('__', '.'): value for name, value in changes.items()})
  return config_lib.from_config(config)


def _reporter():
  return Reporter(rich.console.Console(quiet=True))


def test_the_paper_scale_builds_and_traces():
  """BERT-base with 6 layers has 43,522,571 parameters, and its training steps lower for the paper's corpus."""
  settings = _settings('paper')
  init, train_steps = pretraining._compiled(settings)
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


def test_all_sizes_share_one_compilation(tmp_path):
  """Pretraining on HMMs of 3 and of 5 states compiles the training steps once."""
  settings = _settings('smoke', num_states=(3, 5), methods=('head',), models=('bert',), seed=11)
  _, train_steps = pretraining._compiled(settings)
  for num_states in settings.num_states:
    trial_lib.run(trial_lib.Trial(settings, Point(num_states), 0, tmp_path), _reporter())
  assert train_steps._cache_size() == 1


def test_trials_that_differ_in_tuning_share_one_model(tmp_path):
  """A second trial with another head schedule finds the pretrained model and trains no step."""
  for batch_size in (8, 16):
    settings = _settings('smoke', num_states=(3,), methods=('head',), models=('bert',), head__batch_size=batch_size)
    trial_lib.run(trial_lib.Trial(settings, Point(3), 0, tmp_path), _reporter())
  assert len(list(tmp_path.glob('pretrained/*'))) == 1
  assert len(list(tmp_path.glob('trials/*'))) == 2


def test_metrics_and_events_are_written(tmp_path):
  """Metrics at every measured step, speed apart from them, and TensorBoard events when asked."""
  pytest.importorskip('tensorboardX', reason='the extra tensorboard is not installed')
  settings = _settings('smoke', num_states=(3,), methods=('head',), models=('bert',), tensorboard=True)
  trial_lib.run(trial_lib.Trial(settings, Point(3), 0, tmp_path), _reporter())
  (directory,) = tmp_path.glob('pretrained/*')
  rows = [json.loads(line) for line in (directory / 'metrics.jsonl').read_text().splitlines()]
  assert [row['step'] for row in rows] == [0, 20, 40]
  for row in rows:
    assert row['excess_mlm_loss'] == pytest.approx(row['mlm_loss'] - row['bayes_floor'], abs=1e-4)
    assert row['excess_mlm_loss'] > 0
  timing = [json.loads(line) for line in (directory / 'timing.jsonl').read_text().splitlines()]
  assert all(row['tokens_per_second'] > 0 for row in timing)
  assert list((directory / 'tensorboard').glob('events.*'))


def test_the_exact_model_has_no_gap(tmp_path):
  """The exact model's distance from the ideal one is zero at the [MASK] and over positions."""
  settings = _settings('smoke', num_states=(3,), models=('exact',), methods=('head',))
  trial = trial_lib.Trial(settings, Point(3), 0, tmp_path)
  trial_lib.run(trial, _reporter())
  (row, *_) = [json.loads(line) for line in trial.records_path.read_text().splitlines()]
  hmm = trial_lib.draw_distribution(settings, Point(3), trial.keys().distribution)
  assert exact_model(settings.hmm.num_tokens).embedding_size(hmm) == 3
  for name in ('kl_at_mask', 'tv_at_mask', 'kl_over_positions', 'tv_over_positions'):
    assert abs(row[name]) < 1e-5
  assert not list(tmp_path.glob('pretrained/*'))


def test_a_model_found_elsewhere_names_the_difference(tmp_path, monkeypatch):
  """What trained a model stands beside it, once a start; found again by other versions, one line says which."""
  settings, directory = _settings('smoke'), tmp_path / 'abc'
  console = rich.console.Console(file=io.StringIO())
  note = lambda done: pretraining._note_environment(settings, directory, done, Reporter(console))
  note(0)
  note(20)
  kept = (directory / 'environment.jsonl').read_bytes()
  assert [json.loads(line)['from_step'] for line in kept.splitlines()] == [0, 20]
  assert {'commit', 'packages', 'platform', 'devices', 'command'} <= set(json.loads(kept.splitlines()[0]))
  note(settings.pretrain.num_steps)
  assert not console.file.getvalue()
  here = environment.environment(jax.devices())
  elsewhere = {**here, 'packages': {**here['packages'], 'jax': '9.9.9'}, 'commit': 'another'}
  monkeypatch.setattr(pretraining, 'environment', lambda devices: elsewhere)
  note(settings.pretrain.num_steps)
  assert console.file.getvalue() == f'abc was pretrained with jax {jax.__version__} (here 9.9.9)\n'
  assert (directory / 'environment.jsonl').read_bytes() == kept
