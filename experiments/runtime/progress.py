"""The output of a run: messages, and a line of progress now and then."""

from collections.abc import Callable, Iterator
import contextlib
import os
import sys
import time

from experiments.runtime import signals, storage
from experiments.runtime.timing import Clock
from experiments.settings.fields import Ended, printable

_SECONDS_BETWEEN_LINES = 10.0
# Until the first unit of work is done.
_BEGINS = 'compiling or loading its program'

# Called with the number of units done and a short note.
Advance = Callable[[int, str], None]


def write(text: str) -> None:
  """Print text as it is; raise Ended if standard output cannot be written: a disk is full, or a pipe has no reader."""
  try:
    print(text, end='', flush=True)
  except OSError as error:
    # Python writes what is left in the buffer as it ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise Ended(f'standard output cannot be written ({storage.reason(error)})')


class Reporter:
  """The messages and progress of a run, unless it is quiet, and the clock of its phases and its budget in minutes."""

  def __init__(self, time_budget: float = 0.0, is_quiet: bool = False):
    self.clock = Clock(time_budget)
    self._is_quiet = is_quiet
    self._prefix = ''

  def say(self, *lines: str | None) -> None:
    """Print one line for each that is not empty."""
    for line in filter(None, lines):
      self.show(self._prefix + printable(line))

  def show(self, text: str) -> None:
    """Print a text as it is, with an end of line."""
    if not self._is_quiet:
      write(f'{text}\n')

  @contextlib.contextmanager
  def part(self, index: int, count: int, name: str) -> Iterator[None]:
    """Prefix messages inside with part `index` of `count`."""
    self._prefix = printable(f'[{index}/{count}] {name}: ')
    try:
      yield
    finally:
      self._prefix = ''

  @contextlib.contextmanager
  def track(self, name: str, total: int, start: int = 0) -> Iterator[Advance]:
    """Report progress of `total` units, of which `start` are done: at the start, each ten seconds and at the end.

    Each report but that of the end raises Stopped if the run has received a signal; all processes make it.
    """
    begun = last = time.monotonic()
    self.say(f'{name} {start}/{total}, {_BEGINS}')

    def advance(done: int, note: str) -> None:
      nonlocal last
      now = time.monotonic()
      if done == total or now - last >= _SECONDS_BETWEEN_LINES:
        left = (now - begun) / max(done - start, 1) * (total - done)
        self.say(f'{name} {done}/{total}, {left:.0f} s left, {note}')
        last = now
      if done < total:
        signals.raise_if_stopped()

    yield advance
