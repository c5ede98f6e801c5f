"""Progress of long work: a bar with time left on a terminal, a plain line now and then elsewhere."""

from collections.abc import Callable, Iterator
import contextlib
import os
import sys
import time
from typing import IO

import rich.console
import rich.progress

from experiments.runtime import storage
from experiments.runtime.exit_status import Unwritten
from experiments.runtime.timing import Clock

_SECONDS_BETWEEN_LINES = 10.0
# Until the first unit of work is done.
_BEGINS = 'compiling or loading its program'

# Called with the number of units done and a short note.
Advance = Callable[[int, str], None]


@contextlib.contextmanager
def _output(file: IO[str]) -> Iterator[None]:
  """Raise Unwritten where what is printed inside cannot be written: a disk is full, or a pipe has no reader."""
  try:
    yield
    file.flush()
  except (OSError, SystemExit) as error:
    # rich exits for a broken pipe. Python writes what is left in the buffer as it ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), file.fileno())
    raise Unwritten(storage.reason(error))


def write(text: str, file: IO[str] | None = None) -> None:
  """Print text as it is, on standard output unless a file is named; raises Unwritten."""
  file = file or sys.stdout
  with _output(file):
    print(text, end='', file=file)


class Reporter:
  """The messages and progress of a run, for its user, and the clock of its phases; all raise Unwritten."""

  def __init__(self, console: rich.console.Console):
    self.console = console
    self.clock = Clock()
    self._prefix = ''

  def say(self, text: str) -> None:
    """Print one line."""
    self.show(self._prefix + text)

  def show(self, text: str) -> None:
    """Print text as it is; long lines wrap, and nothing is cut."""
    with _output(self.console.file):
      self.console.print(text, highlight=False, markup=False, soft_wrap=True)

  @contextlib.contextmanager
  def part(self, index: int, count: int, name: str) -> Iterator[None]:
    """Prefix messages inside with part `index` of `count`."""
    self._prefix = f'[{index}/{count}] {name}: '
    try:
      yield
    finally:
      self._prefix = ''

  def track(self, name: str, total: int, start: int = 0) -> contextlib.AbstractContextManager[Advance]:
    """Report progress of `total` units, of which `start` are done."""
    return (self._bar if self.console.is_terminal else self._lines)(name, total, start)

  @contextlib.contextmanager
  def _bar(self, name: str, total: int, start: int) -> Iterator[Advance]:
    done, note = rich.progress.MofNCompleteColumn(), rich.progress.TextColumn('{task.fields[note]}')
    columns = (*rich.progress.Progress.get_default_columns(), done, note)
    # Transient: only the line printed after it stays.
    with rich.progress.Progress(*columns, console=self.console, transient=True) as progress:
      # Markup would eat the brackets of the prefix.
      task = progress.add_task(rich.markup.escape(self._prefix + name), total=total, completed=start, note=_BEGINS)
      yield lambda done, note: progress.update(task, completed=done, note=note)

  @contextlib.contextmanager
  def _lines(self, name: str, total: int, start: int) -> Iterator[Advance]:
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
