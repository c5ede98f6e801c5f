"""Runs of experiments with the numbers of `reduce`, each once for all workers of a session."""

import contextlib
import os

import filelock
from run_cases import finished_command
from settings_cases import shipped

from experiments.settings import config as config_lib
from experiments.settings.fields import flat
from experiments.studies import registry


def configs(experiment, scale):
  """The config of an experiment at a scale, and with the numbers of `reduce`."""
  config, reduced = (config_lib.at_scale(shipped(experiment), scale) for _ in range(2))
  shipped(experiment)['reduce'](reduced)
  return config, reduced


def fields(config):
  """The fields of a config by their dotted names."""
  return flat(config.to_dict())


def finished(folder, experiment, scale):
  """The workdir in a folder of an experiment that a user runs there, with flags for the numbers."""
  workdir = folder / 'runs' / f'{experiment}-{scale}'
  config, reduced = map(fields, configs(experiment, scale))
  known = dict(config_lib.fields(registry.SETTINGS[experiment]))
  words = []
  for name, value in reduced.items():
    if value != config[name]:
      is_list = type(value) is tuple and known[name].type in (int, float)
      words.append(f'--config.{name}={",".join(map(str, value)) if is_list else value}')
  words += [f'--config.compilation_cache={os.environ["JAX_COMPILATION_CACHE_DIR"]}']
  folder.mkdir(exist_ok=True)
  with filelock.FileLock(folder / f'{experiment}-{scale}.lock'), contextlib.chdir(folder):
    if not (workdir / 'report.html').exists():
      finished_command(f'--config={experiment}:{scale}', *words)
  return workdir
