"""The clock of a run: every moment counts once."""

import contextlib
import types

from experiments.runtime import timing


def test_phases_add_up_to_all_the_time(monkeypatch):
  """Inside a phase the inner one counts, and after an error the outer one."""
  cpu, wall = iter([0, 1, 3, 7, 15, 31]), iter([0, 10, 30, 70, 150, 310])
  fake = types.SimpleNamespace(process_time=lambda: next(cpu), monotonic=lambda: next(wall))
  monkeypatch.setattr(timing, 'time', fake)
  clock = timing.Clock()
  with clock.phase('outer'), contextlib.suppress(ZeroDivisionError), clock.phase('inner'):
    raise ZeroDivisionError
  spent = {name: list(both) for name, both in clock.spent().items()}
  assert spent == {'the rest': [17, 170], 'outer': [10, 100], 'inner': [4, 40]}
