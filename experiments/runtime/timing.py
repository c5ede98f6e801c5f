"""Where the time of a run goes: CPU and wall seconds of this process, by phase."""

from collections.abc import Iterator
import contextlib
import threading
import time
from typing import Any, NamedTuple

import jax

FILE_NAME = 'timing.jsonl'

# The events by which JAX tells of tracing, lowering and compiling: a scalar at the start, a duration at the end.
_COMPILING = '/jax/core/compile/'
_COMPILE, _REST = 'compile', 'the rest'


class Time(NamedTuple):
  """Seconds: of the CPU, all threads of the process added, and of the clock on the wall."""

  cpu: float = 0.0
  wall: float = 0.0

  def plus(self, other: 'Time') -> 'Time':
    return Time(self.cpu + other.cpu, self.wall + other.wall)

  def minus(self, other: 'Time') -> 'Time':
    return Time(self.cpu - other.cpu, self.wall - other.wall)


class Clock:
  """Follows the time of this process from its making on: every moment counts for one phase, the innermost.

  Computations run behind the program's back, so that a phase ends with what it computes at hand, or it ends too early.
  """

  def __init__(self) -> None:
    self._spent: dict[str, Time] = {}
    self._phases = [_REST]
    self._begun = self._last = _now()

  def is_past(self, minutes: float) -> bool:
    """True if so many minutes of wall time have passed; 0 sets no limit."""
    return 0 < minutes <= _now().minus(self._begun).wall / 60

  def spent(self) -> dict[str, Time]:
    """The time of each phase so far; together all the time there was."""
    self._count()
    return dict(self._spent)

  @contextlib.contextmanager
  def phase(self, name: str) -> Iterator[None]:
    """Counts what runs inside as `name`."""
    depth = len(self._phases)
    self._enter(name)
    try:
      yield
    finally:
      self._leave(depth)

  @contextlib.contextmanager
  def counting_compilation(self) -> Iterator[None]:
    """Counts as `compile`, in whatever phase it happens, what this thread traces, lowers and compiles.

    Reading a compiled program that was kept counts too. CPU time is that of the whole process between start and end:
    with the threads that XLA compiles in, and with a computation that happens to run behind it.
    """
    thread, depths = threading.get_ident(), list[int]()

    def start(event: str, value: float, **_: Any) -> None:
      if event.startswith(_COMPILING) and threading.get_ident() == thread:
        depths.append(len(self._phases))
        self._enter(_COMPILE)

    def end(event: str, duration_secs: float, **_: Any) -> None:
      if event.startswith(_COMPILING) and threading.get_ident() == thread and depths:
        self._leave(depths.pop())

    jax.monitoring.register_scalar_listener(start)
    jax.monitoring.register_event_duration_secs_listener(end)
    try:
      yield
    finally:
      jax.monitoring.unregister_scalar_listener(start)
      jax.monitoring.unregister_event_duration_listener(end)

  def line(self) -> str:
    """The CPU time in words, by phase from the longest on, what has no phase last; and the wall time."""
    spent = self.spent()
    cpu, wall = (_in_words(sum(each)) for each in zip(*spent.values()))
    phases = sorted(spent, key=lambda name: (name == _REST, -spent[name].cpu))
    return f'CPU time {cpu}: {", ".join(f"{name} {_in_words(spent[name].cpu)}" for name in phases)}; wall time {wall}'

  def _enter(self, name: str) -> None:
    self._count()
    self._phases.append(name)

  def _leave(self, depth: int) -> None:
    self._count()
    del self._phases[depth:]

  def _count(self) -> None:
    """Gives what has passed to the innermost phase."""
    now, phase = _now(), self._phases[-1]
    self._spent[phase] = self._spent.get(phase, Time()).plus(now.minus(self._last))
    self._last = now


def difference(later: dict[str, Time], earlier: dict[str, Time]) -> dict[str, dict[str, float]]:
  """The time of each phase between two readings of a clock, for a record: rounded, without phases that took none."""
  passed = {name: time.minus(earlier.get(name, Time())) for name, time in later.items()}
  return {
    'cpu_seconds': {name: round(time.cpu, 3) for name, time in passed.items() if time.wall},
    'wall_seconds': {name: round(time.wall, 3) for name, time in passed.items() if time.wall},
  }


def _now() -> Time:
  return Time(time.process_time(), time.monotonic())


def _in_words(seconds: float) -> str:
  minutes, rest = divmod(round(seconds), 60)
  return f'{minutes} min {rest} s' if minutes else f'{rest} s'
