"""The time of a run: wall seconds of this process by phase."""

from collections import Counter
from collections.abc import Iterator
import contextlib
import datetime
import time
from typing import Any

import jax

# The event by which JAX tells at the end how long it has compiled.
_COMPILED = '/jax/core/compile/backend_compile_duration'
_COMPILE, _REST = 'compile', 'the rest'


class Clock:
  """A clock of this process, from its creation on: every moment counts for one phase, the innermost.

  Its time budget is some `minutes`; 0 sets no limit. JAX computes asynchronously, so block on the results of a phase
  before it ends.
  """

  def __init__(self, minutes: float = 0.0) -> None:
    self._minutes = minutes
    # Of floats, which the type of a Counter has no place for.
    self._spent: Any = Counter()
    self._phase = _REST
    self._begun = self._last = time.monotonic()
    self._cpu = time.process_time()

  def is_past(self) -> bool:
    """True once the time budget has passed in this process."""
    return 0 < 60 * self._minutes <= time.monotonic() - self._begun

  def spent(self) -> Any:
    """A Counter of the seconds of each phase so far; together all the time there was."""
    self._enter(self._phase)
    return self._spent.copy()

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
    """Count compiling as `compile`, in any phase; reading a program from its cache counts too."""

    def end(event: str, duration_secs: float, **_: Any) -> None:
      if event == _COMPILED:
        self._spent[_COMPILE] += duration_secs
        self._spent[self._phase] -= duration_secs

    jax.monitoring.register_event_duration_secs_listener(end)
    try:
      yield
    finally:
      jax.monitoring.unregister_event_duration_listener(end)

  def line(self) -> str:
    """The wall time in words, by phase from the longest on, and the CPU time, summed over all threads."""
    spent = self.spent()
    phases = ', '.join(f'{name} {in_words(seconds)}' for name, seconds in spent.most_common())
    return f'wall time {in_words(spent.total())}: {phases}; CPU time {in_words(time.process_time() - self._cpu)}'

  def _enter(self, name: str) -> str:
    """Begin a phase; the time since the last one began counts for that one, whose name is returned."""
    now, before = time.monotonic(), self._phase
    self._spent[before] += now - self._last
    self._phase, self._last = name, now
    return before


def in_words(seconds: float) -> str:
  """Hours, minutes and seconds, such as 0:04:22."""
  return str(datetime.timedelta(seconds=round(seconds)))
