"""The time of a run: CPU and wall seconds of this process by phase."""

from collections.abc import Iterator
import contextlib
import datetime
import time
from typing import Any

import jax
import numpy as np

# The events by which JAX tells of tracing, lowering and compiling: a scalar at the start, a duration at the end.
_COMPILING = '/jax/core/compile/'
_COMPILE, _REST = 'compile', 'the rest'


class Clock:
  """A clock of this process, from its creation on: every moment counts for one phase, the innermost.

  Its time budget is some `minutes` of wall time; 0 sets no limit.

  Times are arrays, float64 [2]: CPU seconds, summed over all threads, and wall seconds. JAX computes asynchronously, so
  block on the results of a phase before it ends.
  """

  def __init__(self, minutes: float = 0.0) -> None:
    self._minutes = minutes
    self._spent: dict[str, np.ndarray] = {}
    self._phase = _REST
    self._begun = self._last = _now()

  def is_past(self) -> bool:
    """True once the time budget has passed in this process."""
    return 0 < self._minutes <= float((_now() - self._begun)[1] / 60)

  def spent(self) -> dict[str, np.ndarray]:
    """The time of each phase so far; together all the time there was."""
    self._enter(self._phase)
    return dict(self._spent)

  def since(self, before: dict[str, np.ndarray]) -> dict[str, float]:
    """The wall seconds of each phase since an earlier reading of `spent`."""
    return {name: round(float((time - before.get(name, 0.0))[1]), 3) for name, time in self.spent().items()}

  @contextlib.contextmanager
  def phase(self, name: str) -> Iterator[None]:
    """Count the time inside as `name`."""
    outer = self._enter(name)
    try:
      yield
    finally:
      self._enter(outer)

  @contextlib.contextmanager
  def counting_compilation(self) -> Iterator[None]:
    """Count the tracing, lowering and compiling as `compile`, in any phase.

    Reading the compilation cache counts too. CPU time is that of the whole process meanwhile, XLA's compiler threads
    and any computation in the background included.
    """
    # A traced function may call another one that is compiled, so that starts and ends nest.
    outer = list[str]()

    def start(event: str, value: float, **_: Any) -> None:
      if event.startswith(_COMPILING):
        outer.append(self._enter(_COMPILE))

    def end(event: str, duration_secs: float, **_: Any) -> None:
      if event.startswith(_COMPILING) and outer:
        self._enter(outer.pop())

    jax.monitoring.register_scalar_listener(start)
    jax.monitoring.register_event_duration_secs_listener(end)
    try:
      yield
    finally:
      jax.monitoring.unregister_scalar_listener(start)
      jax.monitoring.unregister_event_duration_listener(end)

  def line(self) -> str:
    """The CPU time in words, by phase from the longest on, and the wall time."""
    spent = self.spent()
    cpu, wall = map(in_words, np.sum(list(spent.values()), axis=0))
    phases = sorted(spent, key=lambda name: -spent[name][0])
    words = ', '.join(f'{name} {in_words(spent[name][0])}' for name in phases)
    return f'CPU time {cpu}: {words}; wall time {wall}'

  def _enter(self, name: str) -> str:
    """Begin a phase; the time since the last one began counts for that one, whose name is returned."""
    now, before = _now(), self._phase
    self._spent[before] = self._spent.get(before, 0.0) + now - self._last
    self._phase, self._last = name, now
    return before


def _now() -> np.ndarray:
  return np.array([time.process_time(), time.monotonic()])


def in_words(seconds: float) -> str:
  """Hours, minutes and seconds, such as 0:04:22."""
  return str(datetime.timedelta(seconds=round(seconds)))
