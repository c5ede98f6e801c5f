"""Every experiment by its name.

Its module has SETTINGS, the class of its settings; `check`, which raises SettingsError where this machine cannot run
it; `run`, which runs what is missing, and may return a sentence that says what is still left; and `show`, which shows
what is on record. A grid of trials also has `trials`, the list of them, and `merge`, which makes records of those that
are finished; its `run` takes a share of the list.
"""

from types import ModuleType

from experiments import example_4_1, recipes, sweep
from experiments.benchmark import study as benchmark
from experiments.degradation import study as degradation
from experiments.faults import study as faults
from experiments.theory import examine, study
from experiments.which_theorem import study as which_theorem

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
  'faults': faults,
}
