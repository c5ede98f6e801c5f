"""The clock of a run: every moment counts once, and compiling apart from the phase in which it happens."""

import json
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.runtime import timing

pytestmark = pytest.mark.usefixtures('without_optimisation')


def _work(seconds):
  """Keeps one thread busy."""
  end = time.process_time() + seconds
  while time.process_time() < end:
    pass


class _Watched:
  """A clock, of which all phases together must be the time between its making and its reading."""

  def __init__(self):
    self.before = timing._now()
    self.clock = timing.Clock()
    self.after = timing._now()

  def spent(self):
    last, spent = timing._now(), self.clock.spent()
    total, end = sum(spent.values()), timing._now()
    assert all(last - self.after - 1e-6 <= total) and all(total <= end - self.before + 1e-6)
    return spent


def test_phases_add_up_to_all_the_time():
  """CPU and wall seconds; inside a phase the inner one counts, and what sleeps takes no CPU time."""
  watched = _Watched()
  clock = watched.clock
  _work(0.05)
  with clock.phase('outer'):
    _work(0.1)
    with clock.phase('inner'):
      _work(0.2)
      time.sleep(0.2)
    _work(0.1)
  spent = watched.spent()
  assert {name: cpu for name, (cpu, _) in spent.items()} == pytest.approx(
    {'the rest': 0.05, 'outer': 0.2, 'inner': 0.2}, abs=0.04
  )
  assert spent['inner'][1] >= 0.39


def test_compiling_is_counted_once_and_apart():
  """In whatever phase; a second call adds nothing, and neither does what compiles after the count has ended."""
  watched, function = _Watched(), lambda x: jnp.linalg.norm(jnp.sort(x) @ x)
  clock, compiled = watched.clock, jax.jit(function)
  with clock.counting_compilation():
    with clock.phase('computing'):
      compiled(jnp.ones((7, 7))).block_until_ready()
    first = clock.spent()
    with clock.phase('computing'):
      compiled(jnp.ones((7, 7))).block_until_ready()
  assert all(first['compile'] > 0)
  jax.jit(function)(jnp.ones((8, 8))).block_until_ready()
  assert all(watched.spent()['compile'] == first['compile'])


def test_what_fails_leaves_the_phase_outside_of_it():
  """An error in a phase or while a program is traced; the time after it counts as before."""
  clock = timing.Clock()
  with clock.counting_compilation(), clock.phase('outer'):
    with pytest.raises(ZeroDivisionError), clock.phase('inner'):
      jax.jit(lambda x: x / (1 // 0))(1.0)
    before = clock.spent()
    _work(0.05)
    after = timing.difference(clock.spent(), before)
  assert set(after['cpu_seconds']) == {'outer'} and after['cpu_seconds']['outer'] == pytest.approx(0.05, abs=0.02)
  json.dumps(after, allow_nan=False)


def test_the_line_says_all_of_it(monkeypatch):
  """By phase from the longest on, what has no phase last."""
  clock = timing.Clock()
  spent = {'the rest': [200, 100], 'tuning': [1.4, 2], 'compile': [61, 50]}
  clock._spent = {name: np.array(time) for name, time in spent.items()}
  monkeypatch.setattr(timing, '_now', lambda: clock._last)
  assert clock.line() == 'CPU time 0:04:22: compile 0:01:01, tuning 0:00:01, the rest 0:03:20; wall time 0:02:32'
