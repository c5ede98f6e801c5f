"""SIGTERM and SIGINT: a run stops at its next poll after the first one; the second one ends its process at once.

The handler only notes the signal and restores the default handlers. `raise_if_stopped` polls: before each unit of work
and each job of tuning, wherever progress is reported, and while a lock is waited for. Files on disk are whole at any
time. Python handles a signal inside `jax.block_until_ready`, but inside numpy only after the call.
"""

from collections.abc import Iterator
import contextlib
import contextvars
import os
import signal
import sys

from experiments.runtime import distributed
from experiments.runtime.exit_status import Stopped

_ANSWERED = (signal.SIGTERM, signal.SIGINT)
_STDERR = 2

# The signal inside `answered`, or 0: of the main thread, in which Python runs handlers.
_received: contextvars.ContextVar[int] = contextvars.ContextVar('received', default=0)


@contextlib.contextmanager
def answered() -> Iterator[None]:
  """Handle the signals inside the block, and raise Stopped at its end if none has; call it in the main thread."""
  before = {number: signal.signal(number, _handle) for number in _ANSWERED}
  hook = sys.unraisablehook
  # Of Orbax, after a checkpoint that cannot be written, whose error is raised.
  sys.unraisablehook = lambda ignored: None if str(ignored.exc_value) == 'Event loop is closed' else hook(ignored)
  try:
    yield
    raise_if_stopped()
  finally:
    sys.unraisablehook = hook
    for number, handler in before.items():
      signal.signal(number, handler)
    # The next command of this process, as in a test, starts without a signal.
    _received.set(0)


def is_stopping() -> bool:
  """Test whether this process has received a signal."""
  return bool(_received.get())


def raise_if_stopped() -> None:
  """Raise Stopped in all processes if one has received a signal; every process must call it."""
  if number := max(distributed.gathered(_received.get())):
    raise Stopped(number)


def _handle(number: int, *_: object) -> None:
  """Note the first signal."""
  _received.set(number)
  for each in _ANSWERED:
    signal.signal(each, signal.SIG_DFL)
  # No print: one may have been interrupted here, and is not reentrant. The reader may be gone.
  with contextlib.suppress(OSError):
    os.write(_STDERR, f'received {signal.Signals(number).name}: stopping soon; a second one ends at once\n'.encode())
