"""The configuration of JAX that a run asks for."""

import logging

import jax

from experiments.runtime import cache


def set_up(compilation_cache: str) -> None:
  """Configure JAX, before anything is drawn or compiled, and its logs."""
  # Orbax logs each error with its traceback; `checkpoints` raises it in a sentence.
  logging.getLogger('absl').setLevel(logging.CRITICAL)
  # A model's id covers its seed, so draws must not depend on JAX's defaults or the user's environment.
  jax.config.update('jax_default_prng_impl', 'threefry2x32')
  jax.config.update('jax_threefry_partitionable', True)
  jax.config.update('jax_enable_x64', False)
  cache.keep_programs(compilation_cache)
