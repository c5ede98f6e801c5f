"""Settings that tests of fields and of ids share."""

from configs import memory_cells, memory_vs_vanilla, prompt_vs_head
from experiments.studies import registry

CONFIGS = {'prompt_vs_head': prompt_vs_head, 'memory_vs_vanilla': memory_vs_vanilla, 'memory_cells': memory_cells}


def settings_of(scale='small', experiment='prompt_vs_head', **changes):
  config = CONFIGS[experiment].get_config(scale)
  for name, value in changes.items():
    config.update_from_flattened_dict({name.replace('__', '.'): value})
  return registry.from_config(config)
