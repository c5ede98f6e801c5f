"""Settings that tests of the runner start from."""

import functools

import jax

from experiments.pipeline import downstream, trial
from experiments.settings import config as config_lib
from experiments.studies import registry

_shipped = functools.cache(config_lib.shipped)


def config_of(scale='small', experiment='prompt_vs_head', **changes):
  """The shipped config with other values of some fields; `hmm__num_tokens` is the field of a group.

  Pretrained models lie in the workdir.
  """
  config = config_lib.at_scale(_shipped(experiment), scale)
  config.update({name: '' for name in ('pretrained',) if name in config})
  with config.ignore_type():
    config.update_from_flattened_dict({name.replace('__', '.'): value for name, value in changes.items()})
  return config


def settings_of(*names, **changes):
  """The settings of `config_of`."""
  return registry.from_config(config_of(*names, **changes))


def distribution_and_tasks(settings, point):
  """A distribution of a point, and its tasks."""
  distribution = trial.draw_distribution(settings, point, jax.random.key(0))
  keys = jax.random.key(1), jax.random.key(2)
  return distribution, downstream.draw(settings, distribution, *keys)
