"""The configuration of JAX that settings ask for."""

import os
import subprocess
import sys

import jax

from experiments.runtime import cache
from experiments.settings.fields import require
from experiments.settings.groups import Experiment

# The flag of XLA by which a GPU gives the same bits each time; on a CPU it changes nothing.
_DETERMINISTIC = '--xla_gpu_exclude_nondeterministic_ops=true'


def set_up(settings: Experiment) -> None:
  """Configure JAX, before anything is drawn or compiled."""
  # A model's id covers its seed, so draws must not depend on JAX's defaults or the user's environment.
  jax.config.update('jax_default_prng_impl', 'threefry2x32')
  jax.config.update('jax_threefry_partitionable', True)
  jax.config.update('jax_enable_x64', False)
  jax.config.update('jax_disable_most_optimizations', settings.fast_compilation)
  jax.config.update('jax_debug_nans', settings.debug_nans)
  # XLA reads its flags once, when JAX first looks for devices; of two with one name the last wins.
  flags_of_user = os.environ.get('XLA_FLAGS', '').split()
  # A second experiment of this process finds the flag there, and records the same environment.
  if settings.deterministic and _DETERMINISTIC not in flags_of_user:
    known = f'False, since this version of JAX, {jax.__version__}, does not know {_DETERMINISTIC}'
    require(_is_known(_DETERMINISTIC), '--config.deterministic', True, known)
    os.environ['XLA_FLAGS'] = ' '.join([*flags_of_user, _DETERMINISTIC])
  cache.keep_programs(settings.compilation_cache)


def _is_known(flag: str) -> bool:
  """Try the flag in a process of its own, which XLA ends if it does not know it."""
  environment = os.environ | {'XLA_FLAGS': flag, 'JAX_PLATFORMS': 'cpu'}
  command = [sys.executable, '-c', 'import jax; jax.devices()']
  return subprocess.run(command, env=environment, capture_output=True).returncode == 0
