"""Every experiment by its name: its STUDY and the class of its settings, imported when they are asked for."""

import collections
from collections.abc import Mapping
import pkgutil
from typing import Any

import ml_collections

from experiments.settings import config as config_lib

# Grids of trials, whose records `--mode=verify` runs again.
_GRID = 'studies.grids', 'settings.grid:Settings'
# The module of STUDY, and the class of settings, apart from code that plots and fits.
_PLACES = {
  'prompt_vs_head': _GRID,
  'memory_vs_vanilla': _GRID,
  'memory_cells': _GRID,
  'beyond': _GRID,
  'next_token': _GRID,
  'plateau': ('studies.along', 'settings.grid:Settings'),
  'hard_tasks': ('studies.along', 'settings.grid:Settings'),
  'labels': ('studies.labels', 'settings.grid:Settings'),
  'benchmark': ('studies.benchmark', 'studies.settings:BenchmarkSettings'),
  'example_4_1': ('studies.example_4_1', 'studies.settings:ExampleSettings'),
  'theory': ('studies.theory.study', 'studies.theory.settings:TheorySettings'),
  'belief_states': ('studies.belief_states', 'studies.settings:BeliefSettings'),
  'degradation': ('studies.degradation', 'studies.settings:DegradationSettings'),
  'examine': ('studies.theory.examine', 'studies.theory.settings:ExamineSettings'),
}
GRIDS = tuple(name for name, (_, settings) in _PLACES.items() if settings == _GRID[1])


class _Imported(collections.UserDict[str, Any]):
  """Values that are imported on access: names alone take no time."""

  def __getitem__(self, name: str) -> Any:
    return pkgutil.resolve_name(f'experiments.{self.data[name]}')


EXPERIMENTS: Mapping[str, Any] = _Imported({name: f'{module}:STUDY' for name, (module, _) in _PLACES.items()})
# The experiments as `settings.config` needs them.
SETTINGS: config_lib.Classes = _Imported({name: settings for name, (_, settings) in _PLACES.items()})


def from_config(config: ml_collections.ConfigDict) -> Any:
  """The settings of the experiment that a config names; raises SettingsError as `settings.config.from_config` does."""
  return config_lib.from_config(config, SETTINGS)


def from_record(recorded: dict[str, Any]) -> Any:
  """The settings of a run from its `config.json`; raises SettingsError as `settings.config.from_record` does."""
  return config_lib.from_record(recorded, SETTINGS)
