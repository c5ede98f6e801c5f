"""What is compiled, and how often: counted by JAX's own events."""

import collections

from conftest import compiling_fast
import jax
import pytest
from run_cases import QUIET
from settings_cases import settings_of

from experiments.pipeline import trial as trial_lib
from experiments.settings.grid import Point

pytestmark = pytest.mark.slow

_COMPILED = '/jax/core/compile/backend_compile_duration'
_EVENTS = collections.Counter()
jax.monitoring.register_event_duration_secs_listener(lambda event, seconds, **_: _EVENTS.update([event]))


def test_programs_are_compiled_once(tmp_path):
  """A second trial of one shape compiles nothing."""
  settings = settings_of('smoke', models=('exact',), methods=('head',))
  counts = []
  for number in range(2):
    trial = trial_lib.Trial(settings, Point(4), number, tmp_path)
    with compiling_fast():
      trial_lib.run(trial, QUIET)
    counts.append(_EVENTS[_COMPILED])
  assert counts[0] == counts[1] > 0
