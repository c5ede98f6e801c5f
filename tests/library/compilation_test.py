"""Number of compiled programs, counted by JAX's own events."""

from conftest import compiling_fast, count_of_programs
import jax
import pytest
from run_cases import run_trial
from settings_cases import settings_of

from experiments.records.trials import TrialFolder
from experiments.settings.grid import Point
from experiments.settings.trial import Trial

pytestmark = pytest.mark.slow


def test_programs_are_compiled_once(tmp_path):
  """A trial of one method on the exact model compiles 16 programs, a second one of its shape nothing."""
  settings = settings_of('smoke', models=('exact',), methods=('head',))
  jax.clear_caches()
  counts = [count_of_programs()]
  with compiling_fast():
    for number in range(2):
      run_trial(TrialFolder(Trial(settings, Point(4), number), tmp_path))
      counts.append(count_of_programs())
  # Programs for single operations outside of a larger one add up: whole smoke runs had 78, and have 40.
  assert counts[0] < counts[1] == counts[2] <= counts[0] + 16
