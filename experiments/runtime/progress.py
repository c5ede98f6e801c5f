"""The output of a run: messages, and a line of progress now and then."""

from collections.abc import Callable, Iterator
import contextlib
import errno
import os
import sys
import time

import rich.console

from experiments.runtime import storage
from experiments.runtime.timing import Clock
from experiments.settings.fields import Ended, printable

_SECONDS_BETWEEN_LINES = 10.0
# Until the first unit of work is done.
_BEGINS = 'compiling or loading its program'

# Called with the number of units done and a short note.
Advance = Callable[[int, str], None]


@contextlib.contextmanager
def _output() -> Iterator[None]:
  """Raise Ended if standard output cannot be written inside: a disk is full, or a pipe has no reader."""
  try:
    yield
    sys.stdout.flush()
  except (OSError, SystemExit) as error:
    # Python writes what is left in the buffer as it ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    # rich exits for a broken pipe.
    broken = isinstance(error, SystemExit)
    reason = os.strerror(errno.EPIPE) if broken else storage.reason(error)
    raise Ended(f'standard output cannot be written ({reason})')


def write(text: str) -> None:
  """Print text as it is."""
  with _output():
    print(text, end='')


class Reporter:
  """The messages and progress of a run, for its user, and the clock of its phases and its time budget in minutes."""

  def __init__(self, console: rich.console.Console, time_budget: float = 0.0):
    self.console = console
    self.clock = Clock(time_budget)
    self._prefix = ''

  def say(self, *lines: str | None) -> None:
    """Print one line for each that is not empty."""
    for line in filter(None, lines):
      self.show(self._prefix + printable(line))

  def show(self, text: str) -> None:
    """Print text as it is; long lines wrap, and nothing is cut."""
    with _output():
      self.console.print(text, highlight=False, markup=False, soft_wrap=True)

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
    """Report progress of `total` units, of which `start` are done: at the start, each ten seconds and at the end."""
    begun = last = time.monotonic()
    self.say(f'{name} {start}/{total}, {_BEGINS}')

    def advance(done: int, note: str) -> None:
      nonlocal last
      now = time.monotonic()
      if done == total or now - last >= _SECONDS_BETWEEN_LINES:
        left = (now - begun) / max(done - start, 1) * (total - done)
        self.say(f'{name} {done}/{total}, {left:.0f} s left, {note}')
        last = now

    yield advance
