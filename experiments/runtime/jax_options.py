"""The configuration of JAX that settings ask for."""

import logging
import os

import jax

from experiments.runtime import cache
from experiments.settings.groups import Experiment

# The flag of XLA by which a GPU gives the same bits each time; on a CPU it changes nothing.
_DETERMINISTIC = '--xla_gpu_exclude_nondeterministic_ops=true'


def set_up(settings: Experiment) -> None:
  """Configure JAX, before anything is drawn or compiled, and its logs."""
  # Orbax logs each error with its traceback; `checkpoints` raises it in a sentence.
  logging.getLogger('absl').setLevel(logging.CRITICAL)
  # A model's id covers its seed, so draws must not depend on JAX's defaults or the user's environment.
  jax.config.update('jax_default_prng_impl', 'threefry2x32')
  jax.config.update('jax_threefry_partitionable', True)
  jax.config.update('jax_enable_x64', False)
  jax.config.update('jax_debug_nans', settings.debug_nans)
  # XLA reads its flags once, when JAX first looks for devices; of two with one name the last wins.
  flags_of_user = os.environ.get('XLA_FLAGS', '').split()
  # A second experiment of this process finds the flag there, and records the same environment.
  if settings.deterministic and _DETERMINISTIC not in flags_of_user:
    os.environ['XLA_FLAGS'] = ' '.join([*flags_of_user, _DETERMINISTIC])
  cache.keep_programs(settings.compilation_cache)
