"""Which phase a run is in, line by line in a file, which outlives a kill; and killing it at one of them."""

from collections.abc import Callable, Iterator
import contextlib
import functools
import os
import pathlib
import signal
import threading
import time
from typing import Any, NamedTuple

import jax
import orbax.checkpoint as ocp

from experiments.runtime import timing

# In this order a run meets them first. What has no phase is 'start'.
PHASES = ('start', 'measuring', 'compile', 'corpus', 'pretraining', 'save', 'tuning', 'writing')
# Before the time at which a run sends itself a signal.
SIGNAL = 'signal '
_COMPILING = '/jax/core/compile/'


class Moment(NamedTuple):
  """When a run sends itself a signal: `delay` seconds after the beginning of a phase of this number."""

  phase: str
  number: int
  delay: float
  signal: int = signal.SIGKILL


class _Watch:
  """The phases of the main thread, innermost last; whatever is written by others is part of a save."""

  def __init__(self, path: pathlib.Path, moment: Moment | None):
    self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    self._moment, self._stack, self._left = moment, ['start'], moment.number if moment else 0
    self._main = threading.main_thread()
    self._note('start')

  @contextlib.contextmanager
  def phase(self, name: str) -> Iterator[None]:
    self.enter(name)
    try:
      yield
    finally:
      self.leave()

  def enter(self, name: str) -> None:
    if threading.current_thread() is self._main:
      self._stack.append(name)
    self._note(name)

  def leave(self) -> None:
    if threading.current_thread() is self._main:
      self._stack.pop()
      os.write(self._file, f'({self._stack[-1]}\n'.encode())

  def _note(self, name: str) -> None:
    os.write(self._file, f'{name}\n'.encode())
    if self._moment and name == self._moment.phase:
      self._left -= 1
      if self._left == 0:
        self._signal(self._moment)

  def _signal(self, moment: Moment) -> None:
    if not moment.delay:
      self._send(moment.signal)
      return
    timer = threading.Timer(moment.delay, self._send, (moment.signal,))
    timer.daemon = True
    timer.start()

  def _send(self, number: int) -> None:
    os.write(self._file, f'{SIGNAL}{time.monotonic()}\n'.encode())
    os.kill(os.getpid(), number)


def begin(path: pathlib.Path, moment: Moment | None) -> None:
  """Follows this process from here on; sends it a signal at the moment, if there is one."""
  watch = _Watch(path, moment)
  phase = timing.Clock.phase

  @contextlib.contextmanager
  def noted(self: timing.Clock, name: str) -> Iterator[None]:
    with watch.phase(name if name in PHASES else 'start'), phase(self, name):
      yield

  timing.Clock.phase = noted  # type: ignore[method-assign]

  def start(event: str, *_: Any, **__: Any) -> None:
    if event.startswith(_COMPILING):
      watch.enter('compile')

  def end(event: str, *_: Any, **__: Any) -> None:
    if event.startswith(_COMPILING):
      watch.leave()

  jax.monitoring.register_scalar_listener(start)
  jax.monitoring.register_event_duration_secs_listener(end)
  for where, name, of in (
    (ocp.CheckpointManager, 'save', 'save'),
    (os, 'fsync', 'writing'),
    (os, 'replace', 'writing'),
  ):
    setattr(where, name, _within(watch, of, getattr(where, name)))


def _within(watch: _Watch, phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
  @functools.wraps(function)
  def noted(*arguments: Any, **named: Any) -> Any:
    with watch.phase(phase if threading.current_thread() is threading.main_thread() else 'save'):
      return function(*arguments, **named)

  return noted


def last(phases: list[str]) -> str:
  """The phase that a run was in at its end."""
  return phases[-1].removeprefix('(') if phases else 'start'


def counts(phases: list[str]) -> dict[str, int]:
  """How often each phase began."""
  return {phase: phases.count(phase) for phase in PHASES}
