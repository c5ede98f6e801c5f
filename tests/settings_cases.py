"""Settings that tests of the runner start from."""

import functools

import jax

from experiments.pipeline import downstream, trial
from experiments.settings import config as config_lib
from experiments.studies import registry

shipped = functools.cache(config_lib.shipped)


def config_of(scale='small', experiment='prompt_vs_head', **changes):
  """The shipped config with other values of some fields; `hmm__num_tokens` is the field of a group.

  Pretrained models lie in the workdir.
  """
  config = config_lib.at_scale(shipped(experiment), scale)
  config.update({name: '' for name in ('pretrained',) if name in config})
  with config.ignore_type():
    config.update_from_flattened_dict({name.replace('__', '.'): value for name, value in changes.items()})
  return config


def settings_of(*names, **changes):
  """The settings of `config_of`."""
  return registry.from_config(config_of(*names, **changes))


def dense_settings(**changes):
  """Texts of 7 tokens, 40 of them for training, and schedules of one epoch.

  Distributions are dense, so that no two attention weights are equal up to rounding, which would decide their ranks.
  """
  small = dict(hmm__transition_temperature=0.3, hmm__emission_temperature=0.3, measure__num_documents=5)
  sizes = dict(length=7, num_positions=8, num_train=40, num_validation=8, num_test=12)
  small |= {f'downstream__{name}': size for name, size in sizes.items()}
  for method in ('head', 'attention', 'prompt'):
    small |= {f'{method}__warmup_steps': 1, f'{method}__num_epochs': 1}
  return settings_of('smoke', 'memory_cells', memory__cells=(2,), prompt__length=2, **small | changes)


def distribution_and_tasks(settings, point):
  """A distribution of a point, and its tasks."""
  distribution = trial.draw_distribution(settings, point, jax.random.key(0))
  keys = jax.random.key(1), jax.random.key(2)
  return distribution, downstream.draw(settings, distribution, *keys)
