"""SIGTERM and SIGINT: the first one stops a run, the second one ends its process at once.

The first is kept until work can stop: `deferred` work, which asks whether it `is_stopping`, ends with a checkpoint; all
else raises Stopped between two instructions of Python, and what is on disk is whole. It also puts the default handlers
back, which end the process at the second. Python answers in `jax.block_until_ready`, but only after a call of numpy.

Of several processes none may go a way of its own: process 0 decides, wherever all of them `check` or ask whether they
are `all_stopping`. A signal that another one alone has got is posted to process 0 there, and answered at the next look.
"""

from collections.abc import Iterator
import contextlib
import os
import signal

from experiments.runtime import distributed
from experiments.runtime.exit_status import Stopped

_ANSWERED = (signal.SIGTERM, signal.SIGINT)
_STDERR = 2

_received: list[int] = []
# One entry for each `deferred` block under way.
_deferrals: list[None] = []


@contextlib.contextmanager
def answered() -> Iterator[None]:
  """Answer the signals meanwhile; in the main thread, where alone Python lets it."""
  before = {number: signal.signal(number, _answer) for number in _ANSWERED}
  try:
    yield
  finally:
    for number, handler in before.items():
      signal.signal(number, handler)
    # The next command of this process, as in a test, has received none.
    _received.clear()


@contextlib.contextmanager
def deferred() -> Iterator[None]:
  """Put a stop off to the end, for work that asks by itself whether it `is_stopping`."""
  _deferrals.append(None)
  try:
    yield
  finally:
    _deferrals.pop()
  check()


def is_stopping() -> bool:
  """Test whether this process has received a signal."""
  return bool(_received)


def all_stopping() -> list[int]:
  """Signals that any process has received, the same list in all of them; all of them have to come here."""
  if _received and not distributed.is_writer():
    distributed.post(_received[0])
  return distributed.broadcast_from_process_0(lambda: _received or distributed.posted())


def check() -> None:
  """Raise Stopped, in all processes, where one of them has received a signal; all of them have to come here."""
  found = all_stopping()
  if found and not _deferrals:
    raise Stopped(found[0])


def _answer(number: int, *_: object) -> None:
  _received.append(number)
  for each in _ANSWERED:
    signal.signal(each, signal.SIG_DFL)
  if distributed.num_processes() == 1 and not _deferrals:
    raise Stopped(number)
  # A print may have been interrupted here, and cannot be entered twice; nobody may read any longer.
  with contextlib.suppress(OSError):
    os.write(_STDERR, f'{signal.Signals(number).name}: stops when its work is saved\n'.encode())
