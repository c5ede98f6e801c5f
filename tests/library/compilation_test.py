"""What is compiled, and how often: counted by JAX's own events."""

import collections
import dataclasses
import stat

from conftest import compiling_fast
import jax
from jax.experimental.compilation_cache import compilation_cache
import numpy as np
import pytest
import rich.console

from configs import prompt_vs_head
from experiments.pipeline import pretraining, trial as trial_lib
from experiments.runtime import cache
from experiments.runtime.progress import Reporter
from experiments.settings.grid import Point
from experiments.studies import registry
from hmm_jax import compilation, heads, tuning
from hmm_jax.hmm import random_hmm
from hmm_jax.model import ExactModel

_EVENTS = collections.Counter()
_COMPILED = '/jax/core/compile/backend_compile_duration'
_MISSED, _FOUND = '/jax/compilation_cache/cache_misses', '/jax/compilation_cache/cache_hits'
jax.monitoring.register_event_duration_secs_listener(lambda event, seconds, **_: _EVENTS.update([event]))
jax.monitoring.register_event_listener(lambda event, **_: _EVENTS.update([event]))


@pytest.fixture(scope='module')
def settings():
  config = prompt_vs_head.get_config('smoke')
  config.update(num_states=(3,), models=('exact',), methods=('head',), num_trials=2)
  return registry.from_config(config)


@pytest.fixture
def kept_programs(tmp_path, monkeypatch):
  """A directory of one's own in place of the user's, forgotten afterwards."""
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'home'))
  before = jax.config.jax_compilation_cache_dir, jax.config.jax_persistent_cache_min_compile_time_secs
  compilation_cache.reset_cache()
  yield cache.directory()
  for name, value in zip(('jax_compilation_cache_dir', 'jax_persistent_cache_min_compile_time_secs'), before):
    jax.config.update(name, value)
  compilation_cache.reset_cache()


def _events_of_a_trial(settings, number, workdir):
  """What JAX told of while a trial ran, and the bytes of its records."""
  before = _EVENTS.copy()
  trial = trial_lib.Trial(settings, Point(3), number, workdir)
  with compiling_fast():
    trial_lib.run(trial, Reporter(rich.console.Console(quiet=True)))
  assert not trial.missing()
  return _EVENTS - before, trial.records()


def test_programs_are_compiled_once(settings, kept_programs, tmp_path):
  """A second trial of one shape compiles nothing; a process that finds all programs kept gives the same bytes."""
  jax.clear_caches()
  cache.keep_programs('auto')
  first, records = _events_of_a_trial(settings, 0, tmp_path / 'first')
  assert 0 < first[_COMPILED] <= 70
  second, others = _events_of_a_trial(settings, 1, tmp_path / 'first')
  assert not second[_COMPILED] and others != records
  jax.clear_caches()
  again, same = _events_of_a_trial(settings, 0, tmp_path / 'again')
  assert again[_FOUND] and not again[_MISSED]
  assert same == records
  assert stat.S_IMODE(kept_programs.stat().st_mode) == 0o700


def test_programs_are_kept_apart_for_each_jaxlib_and_only_if_asked(kept_programs, monkeypatch):
  """Another jaxlib has another directory, and '' keeps none, whatever was set before or is in the environment."""
  jax.config.update('jax_compilation_cache_dir', str(kept_programs))
  cache.keep_programs('')
  assert jax.config.jax_compilation_cache_dir is None and not kept_programs.exists()
  monkeypatch.setattr(cache.jaxlib, '__version__', '0.0.0')
  assert cache.directory() != kept_programs


def test_where_programs_are_kept(kept_programs, tmp_path, monkeypatch):
  """A bucket is JAX's to open and makes no directory here; ~ is the user's home; without one nothing is kept."""
  monkeypatch.chdir(tmp_path)
  cache.keep_programs('gs://bucket/programs')
  assert jax.config.jax_compilation_cache_dir == 'gs://bucket/programs' and not list(tmp_path.iterdir())
  monkeypatch.setenv('HOME', str(tmp_path / 'someone'))
  cache.keep_programs('~/programs')
  assert (tmp_path / 'someone/programs').is_dir()

  def homeless():
    raise RuntimeError('Could not determine home directory.')

  monkeypatch.delenv('XDG_CACHE_HOME')
  monkeypatch.setattr(cache.pathlib.Path, 'home', homeless)
  cache.keep_programs('auto')
  assert jax.config.jax_compilation_cache_dir is None


def test_tuners_are_equal_where_they_train_the_same(settings):
  """A head is one tuner on whichever model's features; a prompt is part of its model."""
  exact, bert = ExactModel(settings.hmm.num_tokens), pretraining.tuned_model(settings.bert_module())
  tuners = [tuning.Tuner(model, heads.Linear(2)) for model in (exact, bert)]
  left = [tuner.after_features(())[0] for tuner in tuners]
  assert left[0] == left[1] and hash(left[0]) == hash(left[1]) and left[0] != tuning.Tuner(None, heads.Linear(3))
  prompted = [dataclasses.replace(tuner, prompt=tuning.Prompt(1, 0.5)) for tuner in tuners]
  assert prompted[0].after_features(())[0] != prompted[1].after_features(())[0]
  assert prompted[0] == dataclasses.replace(tuners[0], prompt=tuning.Prompt(1, 0.5))


def test_a_compiled_draw_has_the_bits_of_one_that_is_not():
  """A pretrained model is found again by its settings, so its text must not hang on how the draw was compiled."""
  temperatures = dict(transition_temperature=0.01, initial_temperature=10.0, emission_temperature=0.01)
  draw = jax.jit(random_hmm, static_argnames=('num_states', 'num_tokens'), compiler_options=compilation.UNFUSED)
  compiled = draw(jax.random.key(0), num_states=6, num_tokens=10, **temperatures)
  for mine, eager in zip(compiled, random_hmm(jax.random.key(0), 6, 10, **temperatures), strict=True):
    np.testing.assert_array_equal(mine, eager)
