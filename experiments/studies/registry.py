"""Every experiment by its name: the module whose STUDY it is, imported when it is asked for."""

from collections.abc import Callable, Iterator, Mapping
import importlib
from typing import Any, TYPE_CHECKING, TypeVar

import ml_collections

from experiments.settings import config as config_lib

if TYPE_CHECKING:
  from experiments.studies.study import Study

T = TypeVar('T')

_GRIDS = 'experiments.studies.grids'
_MODULES = {
  'prompt_vs_head': _GRIDS,
  'memory_vs_vanilla': _GRIDS,
  'memory_cells': _GRIDS,
  'recipes': 'experiments.studies.recipes',
  'benchmark': 'experiments.studies.benchmark.study',
  'example_4_1': 'experiments.studies.example_4_1',
  'theory': 'experiments.studies.theory.study',
  'degradation': 'experiments.studies.degradation.study',
  'which_theorem': 'experiments.studies.which_theorem.study',
  'examine': 'experiments.studies.theory.examine',
}
# The experiments of the paper's own protocol, whose records `--mode=verify` runs again.
GRIDS = tuple(name for name, module in _MODULES.items() if module == _GRIDS)


class _OfEach(Mapping[str, T]):
  """Something of each experiment, by its name. What plots and fits takes seconds to import, and a name takes none."""

  def __init__(self, get: Callable[[str], T]):
    self._get = get

  def __getitem__(self, name: str) -> T:
    return self._get(name)

  def __iter__(self) -> Iterator[str]:
    return iter(_MODULES)

  def __len__(self) -> int:
    return len(_MODULES)


EXPERIMENTS: Mapping[str, 'Study'] = _OfEach(lambda name: importlib.import_module(_MODULES[name]).STUDY)
# What `settings.config` needs of the experiments.
SETTINGS: config_lib.Classes = _OfEach(lambda name: EXPERIMENTS[name].settings)


def from_config(config: ml_collections.ConfigDict) -> Any:
  """The settings of the experiment that a config names; raises SettingsError at the first field that is wrong."""
  return config_lib.from_config(config, SETTINGS)


def from_record(recorded: dict[str, Any]) -> Any:
  """The settings of a run from its `config.json`; raises SettingsError as `settings.config.from_record` does."""
  return config_lib.from_record(recorded, SETTINGS)
