"""The clock of a run: every moment counts once, and compiling apart from the phase in which it happens."""

import json
import time

import jax
import jax.numpy as jnp
import pytest

from experiments.runtime import timing

pytestmark = pytest.mark.usefixtures('without_optimisation')


def _work(seconds):
  """Keeps one thread busy."""
  end = time.process_time() + seconds
  while time.process_time() < end:
    pass


def test_phases_add_up_to_all_the_time():
  """Inside a phase the inner one counts, and after an error the outer one; what sleeps takes no CPU time."""
  before = time.process_time()
  clock = timing.Clock()
  with clock.phase('outer'):
    with pytest.raises(ZeroDivisionError), clock.phase('inner'):
      _work(0.2)
      time.sleep(0.2)
      raise ZeroDivisionError
    _work(0.1)
  spent = clock.spent()
  assert {name: cpu for name, (cpu, _) in spent.items()} == pytest.approx(
    {'the rest': 0, 'outer': 0.1, 'inner': 0.2}, abs=0.05
  )
  assert sum(cpu for cpu, _ in spent.values()) <= time.process_time() - before and spent['inner'][1] >= 0.39
  json.dumps(timing.difference(spent, {}), allow_nan=False)


def test_compiling_is_counted_once_and_apart():
  """In whatever phase; a second call adds nothing, and neither does what compiles after the count has ended."""
  clock, compiled = timing.Clock(), jax.jit(lambda x: jnp.linalg.norm(jnp.sort(x) @ x))
  with clock.counting_compilation(), clock.phase('computing'):
    compiled(jnp.ones((7, 7))).block_until_ready()
    first = clock.spent()['compile']
    compiled(jnp.ones((7, 7))).block_until_ready()
  compiled(jnp.ones((8, 8))).block_until_ready()
  spent = clock.spent()
  assert all(first > 0) and all(spent['compile'] == first) and spent['computing'][1] > 0
