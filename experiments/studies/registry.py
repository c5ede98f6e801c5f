"""Every experiment by its name: its STUDY and the class of its settings, imported when they are asked for."""

from collections.abc import Iterator, Mapping
import pkgutil
from typing import Any

import ml_collections

from experiments.settings import config as config_lib

_STUDIES = 'experiments.studies'
_GRID = (f'{_STUDIES}.grids:STUDY', 'experiments.settings.grid:Settings')
# The class of settings lies apart from what plots and fits.
_NAMES = {
  'prompt_vs_head': _GRID,
  'memory_vs_vanilla': _GRID,
  'memory_cells': _GRID,
  'recipes': (f'{_STUDIES}.recipes:STUDY', f'{_STUDIES}.settings:RecipeSettings'),
  'benchmark': (f'{_STUDIES}.benchmark.study:STUDY', f'{_STUDIES}.benchmark.settings:BenchmarkSettings'),
  'example_4_1': (f'{_STUDIES}.example_4_1:STUDY', f'{_STUDIES}.settings:ExampleSettings'),
  'theory': (f'{_STUDIES}.theory.study:STUDY', f'{_STUDIES}.theory.settings:TheorySettings'),
  'degradation': (f'{_STUDIES}.degradation.study:STUDY', f'{_STUDIES}.degradation.settings:DegradationSettings'),
  'which_theorem': (f'{_STUDIES}.which_theorem.study:STUDY', f'{_STUDIES}.which_theorem.settings:WhichTheoremSettings'),
  'examine': (f'{_STUDIES}.theory.examine:STUDY', f'{_STUDIES}.theory.settings:ExamineSettings'),
}
# The experiments of the paper's own protocol, whose records `--mode=verify` runs again.
GRIDS = tuple(name for name, where in _NAMES.items() if where == _GRID)


class _OfEach(Mapping[str, Any]):
  """One of the names of each experiment, imported when it is asked for: a name alone takes no time."""

  def __init__(self, index: int):
    self._index = index

  def __getitem__(self, name: str) -> Any:
    return pkgutil.resolve_name(_NAMES[name][self._index])

  def __iter__(self) -> Iterator[str]:
    return iter(_NAMES)

  def __len__(self) -> int:
    return len(_NAMES)


EXPERIMENTS: Mapping[str, Any] = _OfEach(0)
# What `settings.config` needs of the experiments.
SETTINGS: config_lib.Classes = _OfEach(1)


def from_config(config: ml_collections.ConfigDict) -> Any:
  """The settings of the experiment that a config names; raises SettingsError at the first field that is wrong."""
  return config_lib.from_record(config.to_dict(), SETTINGS)


def from_record(recorded: dict[str, Any]) -> Any:
  """The settings of a run from its `config.json`; raises SettingsError as `settings.config.from_record` does."""
  return config_lib.from_record(recorded, SETTINGS)
