"""What is compiled, and how often: counted by JAX's own events."""

import collections
import dataclasses
import stat

from conftest import compiling_fast
import jax
from jax.experimental.compilation_cache import compilation_cache
import rich.console

from configs import prompt_vs_head
from experiments.pipeline import trial as trial_lib
from experiments.runtime import cache
from experiments.runtime.progress import Reporter
from experiments.settings.grid import Point
from experiments.studies import registry
from hmm_jax import heads, tuning
from hmm_jax.model import ExactModel

_COMPILED = '/jax/core/compile/backend_compile_duration'
_EVENTS = collections.Counter()
jax.monitoring.register_event_duration_secs_listener(lambda event, seconds, **_: _EVENTS.update([event]))


def test_programs_are_compiled_once(tmp_path):
  """A second trial of one shape compiles nothing."""
  config = prompt_vs_head.get_config('smoke')
  config.update(num_states=(3,), models=('exact',), methods=('head',), num_trials=2)
  counts = []
  for number in range(2):
    trial = trial_lib.Trial(registry.from_config(config), Point(3), number, tmp_path)
    with compiling_fast():
      trial_lib.run(trial, Reporter(rich.console.Console(quiet=True)))
    counts.append(_EVENTS[_COMPILED])
  assert counts[0] == counts[1] > 0


def test_where_programs_are_kept(tmp_path, monkeypatch):
  """A directory for each jaxlib, its owner's alone; '' keeps none, and a bucket is JAX's to open."""
  before = jax.config.jax_compilation_cache_dir, jax.config.jax_persistent_cache_min_compile_time_secs
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'home'))
  kept_in = lambda setting: cache.keep_programs(setting) or jax.config.jax_compilation_cache_dir
  try:
    assert kept_in('auto') == str(cache.directory())
    assert stat.S_IMODE(cache.directory().stat().st_mode) == 0o700
    assert kept_in('') is None
    monkeypatch.chdir(tmp_path / 'home')
    assert kept_in('gs://bucket/programs') == 'gs://bucket/programs' and not (tmp_path / 'home/gs:').exists()
    monkeypatch.setenv('HOME', str(tmp_path))
    assert kept_in('~/programs') == str(tmp_path / 'programs')
  finally:
    for name, value in zip(('jax_compilation_cache_dir', 'jax_persistent_cache_min_compile_time_secs'), before):
      jax.config.update(name, value)
    compilation_cache.reset_cache()
  directory = cache.directory()
  monkeypatch.setattr(cache.jaxlib, '__version__', '0.0.0')
  assert cache.directory() != directory


def test_tuners_are_equal_where_they_train_the_same():
  """A head is one tuner on whichever model's features; a prompt is part of its model."""
  tuners = [tuning.Tuner(ExactModel(num_tokens), heads.Linear(2)) for num_tokens in (4, 5)]
  left, other = (tuner.after_features(())[0] for tuner in tuners)
  assert left == other and hash(left) == hash(other) and left != tuning.Tuner(None, heads.Linear(3))
  prompted, other = (dataclasses.replace(tuner, prompt=tuning.Prompt(1, 0.5)) for tuner in tuners)
  assert prompted.after_features(())[0] != other.after_features(())[0]
