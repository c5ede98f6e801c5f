"""SIGTERM and SIGINT: how a run that is told to stop does so.

The first one ends what the process is at by raising Stopped between two instructions of Python: what is finished is on
disk, and files are written whole or not at all. A compilation, or a call of a compiled program, ends first. Where more
can be kept, in pretraining, it is put off (`deferred`) until that is saved. The second one ends the process at once, by
a thread, which hears of it also while the main one is inside a program: there Python calls no handler.

Of several processes that run a trial together none may go a way of its own: process 0 decides, wherever all of them
`check`. A signal that another one alone has got is answered when process 0 has got one, too.
"""

from collections.abc import Iterator
import contextlib
import os
import signal
import threading

from experiments.runtime import distributed, exit_status
from experiments.runtime.exit_status import Stopped

_ANSWERED = (signal.SIGTERM, signal.SIGINT)
_STDERR = 2

_received: list[int] = []
# As many as there are reasons to put a stop off.
_deferrals: list[None] = []


@contextlib.contextmanager
def answered() -> Iterator[None]:
  """Answers the signals meanwhile; in the main thread, where alone Python lets it."""
  if threading.current_thread() is not threading.main_thread():
    yield
    return
  before = {number: signal.signal(number, _answer) for number in _ANSWERED}
  try:
    with _counted():
      yield
  finally:
    for number, handler in before.items():
      signal.signal(number, signal.SIG_DFL if handler is None else handler)
    _received.clear()


@contextlib.contextmanager
def _counted() -> Iterator[None]:
  """Ends the process at the second signal meanwhile."""
  reader, writer = os.pipe()
  os.set_blocking(writer, False)
  before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
  thread = threading.Thread(target=_end_at_second, args=(reader,), name='signals', daemon=True)
  thread.start()
  try:
    yield
  finally:
    signal.set_wakeup_fd(before)
    os.close(writer)
    thread.join()
    os.close(reader)


def _end_at_second(reader: int) -> None:
  """Reads a byte for each signal, until the pipe is closed."""
  is_told = False
  while number := os.read(reader, 1):
    if number[0] in _ANSWERED:
      if is_told:
        os._exit(exit_status.signal_status(number[0]))
      is_told = True


@contextlib.contextmanager
def deferred() -> Iterator[None]:
  """Puts a stop off to the end, for work that asks by itself whether it `is_stopping`."""
  _deferrals.append(None)
  try:
    yield
  finally:
    _deferrals.pop()
  check()


def is_stopping() -> bool:
  """Whether this process has been told to stop."""
  return bool(_received)


def check() -> None:
  """Raises Stopped, in all processes, where process 0 has been told to stop; all of them have to come here."""
  found = distributed.broadcast_from_process_0(lambda: list(_received))
  if found and not _deferrals:
    raise Stopped(found[0])


def _answer(number: int, *_: object) -> None:
  if _received:
    return
  _received.append(number)
  if distributed.num_processes() == 1 and not _deferrals:
    raise Stopped(number)
  # A print may have been interrupted here, and cannot be entered twice; nobody may read any longer.
  with contextlib.suppress(OSError):
    os.write(_STDERR, f'{signal.Signals(number).name}: stops when its work is saved\n'.encode())
