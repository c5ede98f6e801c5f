"""What is compiled, and how often: counted by JAX's own events."""

from conftest import compiling_fast, count_of_programs
import pytest
from run_cases import QUIET
from settings_cases import settings_of

from experiments.pipeline import trial as trial_lib
from experiments.settings.grid import Point

pytestmark = pytest.mark.slow


def test_programs_are_compiled_once(tmp_path):
  """A second trial of one shape compiles nothing."""
  settings = settings_of('smoke', models=('exact',), methods=('head',))
  counts = []
  for number in range(2):
    trial = trial_lib.Trial(settings, Point(4), number, tmp_path)
    with compiling_fast():
      trial_lib.run(trial, QUIET)
    counts.append(count_of_programs())
  assert counts[0] == counts[1] > 0
