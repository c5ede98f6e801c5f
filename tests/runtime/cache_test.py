"""Compiled programs of a process."""

from conftest import count_of_programs
import jax
import jax.numpy as jnp
import pytest

from experiments.runtime import cache


@pytest.mark.parametrize(('share', 'compiled'), [(1.0, 0), (0.0, 1)])
def test_programs_are_dropped_near_the_limit_of_memory_maps(monkeypatch, share, compiled):
  """Past it another program would end the process."""
  monkeypatch.setattr(cache, '_MAPS_SHARE', share)
  program = jax.jit(lambda x: x + 41)
  program(jnp.ones(2))
  before = count_of_programs()
  cache.drop_programs_near_limit()
  program(jnp.ones(2))
  assert (count_of_programs() > before) == bool(compiled)
