"""Every experiment by its name.

Its module has SETTINGS, the class of its settings; `check`, which raises SettingsError where this machine cannot run
it; `run`, which runs what is missing, and may return a sentence that says what is still left; and `show`, which shows
what is on record. A grid of trials also has `trials`, the list of them, and `merge`, which makes records of those that
are finished; its `run` takes a share of the list.
"""

from types import ModuleType
from typing import Any

import ml_collections

from experiments.pipeline import sweep
from experiments.settings import config as config_lib
from experiments.studies import example_4_1, recipes
from experiments.studies.benchmark import study as benchmark
from experiments.studies.degradation import study as degradation
from experiments.studies.theory import examine, study
from experiments.studies.which_theorem import study as which_theorem

EXPERIMENTS: dict[str, ModuleType] = {
  'prompt_vs_head': sweep,
  'memory_vs_vanilla': sweep,
  'memory_cells': sweep,
  'recipes': recipes,
  'benchmark': benchmark,
  'example_4_1': example_4_1,
  'theory': study,
  'degradation': degradation,
  'which_theorem': which_theorem,
  'examine': examine,
}

# What `settings.config` needs of the experiments.
SETTINGS: config_lib.Classes = {name: module.SETTINGS for name, module in EXPERIMENTS.items()}


def from_config(config: ml_collections.ConfigDict) -> Any:
  """The settings of the experiment that a config names; raises SettingsError at the first field that is wrong."""
  return config_lib.from_config(config, SETTINGS)


def from_record(recorded: dict[str, Any]) -> Any:
  """The settings of a run from its `config.json`; raises SettingsError as `settings.config.from_record` does."""
  return config_lib.from_record(recorded, SETTINGS)
