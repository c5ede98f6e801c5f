"""SIGTERM and SIGINT: the first one stops a run, the second one ends its process at once.

`deferred` work polls `is_stopping` and ends with a checkpoint. All else raises Stopped between two instructions of
Python, and files on disk are whole. The first signal also restores the default handlers, so that the second ends the
process. Python handles a signal inside `jax.block_until_ready`, but inside numpy only after the call.

Several processes must agree, so process 0 decides, wherever all of them call `raise_if_stopped` or `all_stopping`.
There another process posts its own signal to process 0, which acts on it at the next such call.
"""

from collections.abc import Iterator
import contextlib
import contextvars
import os
import signal
import sys
from typing import Any

from experiments.runtime import distributed
from experiments.runtime.exit_status import Stopped

_ANSWERED = (signal.SIGTERM, signal.SIGINT)
_STDERR = 2

# Of the main thread, in which Python runs handlers: the signals inside `answered`, and if a stop is put off.
_received: contextvars.ContextVar[tuple[int, ...]] = contextvars.ContextVar('received', default=())
_is_deferred = contextvars.ContextVar('is_deferred', default=False)


@contextlib.contextmanager
def answered() -> Iterator[None]:
  """Handle the signals inside the block; call it in the main thread, as Python requires."""
  before = {number: signal.signal(number, _handle) for number in _ANSWERED}
  hook = sys.unraisablehook

  def report(unraisable: Any) -> None:
    """Ignore what Python cannot raise: a stop in JAX's callback at garbage collection, which a poll finds later.

    Likewise of the arrays of a checkpoint after one that cannot be written, whose error is raised.
    """
    error = unraisable.exc_value
    if not isinstance(error, Stopped) and str(error) != 'Event loop is closed':
      hook(unraisable)

  sys.unraisablehook = report
  try:
    yield
  finally:
    sys.unraisablehook = hook
    for number, handler in before.items():
      signal.signal(number, handler)
    # The next command of this process, as in a test, starts without a signal.
    _received.set(())


@contextlib.contextmanager
def deferred() -> Iterator[None]:
  """Defer a stop to the end of the block, for work that polls `is_stopping` itself."""
  token = _is_deferred.set(True)
  try:
    yield
  finally:
    _is_deferred.reset(token)
  raise_if_stopped()


def is_stopping() -> bool:
  """Test whether this process has received a signal."""
  return bool(_received.get())


def all_stopping() -> list[int]:
  """Signals that any process has received, the same list in all; every process must call it."""
  received = _received.get()
  if received:
    distributed.post(received[0])
  return distributed.in_process_0(lambda: [*received] or distributed.posted())()


def raise_if_stopped() -> None:
  """Raise Stopped in all processes if one has received a signal, except in `deferred`; every process must call it."""
  received = all_stopping()
  if received and not _is_deferred.get():
    raise Stopped(received[0])


def _handle(number: int, *_: object) -> None:
  """Handle the first signal: note it, and raise Stopped unless it has to wait."""
  _received.set((number,))
  for each in _ANSWERED:
    signal.signal(each, signal.SIG_DFL)
  if distributed.num_processes() == 1 and not _is_deferred.get():
    raise Stopped(number)
  # No print: one may have been interrupted here, and is not reentrant. The reader may be gone.
  with contextlib.suppress(OSError):
    os.write(_STDERR, f'received {signal.Signals(number).name}: stopping after the next checkpoint\n'.encode())
