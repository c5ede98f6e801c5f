"""Every experiment by its name.

Its module has `check`, which raises SettingsError where this machine cannot run it; `run`, which runs what is missing,
and may return a sentence that says what is still left; and `show`, which shows what is on record. A grid of trials also
has `trials`, the list of them, and `merge`, which makes records of those that are finished; its `run` takes a share of
the list.
"""

from collections.abc import Iterator, Mapping
import pkgutil
from types import ModuleType
from typing import Any

import ml_collections

from experiments.settings import config as config_lib

_SWEEP = 'experiments.pipeline.sweep'
_STUDIES = 'experiments.studies'
_GRID = (_SWEEP, 'experiments.settings.grid:Settings')
# The module of each, and the class of its settings, which lies apart from what plots and fits.
_NAMES = {
  'prompt_vs_head': _GRID,
  'memory_vs_vanilla': _GRID,
  'memory_cells': _GRID,
  'recipes': (f'{_STUDIES}.recipes', f'{_STUDIES}.settings:RecipeSettings'),
  'benchmark': (f'{_STUDIES}.benchmark.study', f'{_STUDIES}.benchmark.settings:BenchmarkSettings'),
  'example_4_1': (f'{_STUDIES}.example_4_1', f'{_STUDIES}.settings:ExampleSettings'),
  'theory': (f'{_STUDIES}.theory.study', f'{_STUDIES}.theory.settings:TheorySettings'),
  'degradation': (f'{_STUDIES}.degradation.study', f'{_STUDIES}.degradation.settings:DegradationSettings'),
  'which_theorem': (f'{_STUDIES}.which_theorem.study', f'{_STUDIES}.which_theorem.settings:WhichTheoremSettings'),
  'examine': (f'{_STUDIES}.theory.examine', f'{_STUDIES}.theory.settings:ExamineSettings'),
}
# The experiments of the paper's own protocol, whose records `--mode=verify` runs again.
GRIDS = tuple(name for name, (module, _) in _NAMES.items() if module == _SWEEP)


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


EXPERIMENTS: Mapping[str, ModuleType] = _OfEach(0)
# What `settings.config` needs of the experiments.
SETTINGS: config_lib.Classes = _OfEach(1)


def from_config(config: ml_collections.ConfigDict) -> Any:
  """The settings of the experiment that a config names; raises SettingsError at the first field that is wrong."""
  return config_lib.from_config(config, SETTINGS)


def from_record(recorded: dict[str, Any]) -> Any:
  """The settings of a run from its `config.json`; raises SettingsError as `settings.config.from_record` does."""
  return config_lib.from_record(recorded, SETTINGS)
