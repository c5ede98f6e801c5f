"""The exit status of a run, and the exceptions that decide it."""

import signal

from experiments.settings.fields import Ended, SettingsError

# All that was asked for is done, or the time budget has ended.
DONE = 0
# A trial has failed, or something unexpected has.
FAILED = 1
BAD_INPUT = 2
# All that failed did so by a loss or gradient that is not finite.
DIVERGED = 3


class RunError(Exception):
  """An error that ends a run with its text, a sentence, and no traceback."""

  status = FAILED


class Stopped(Ended):
  """A signal has ended the run."""

  def __init__(self, number: int):
    super().__init__(number)
    # As shells have it: 143 after SIGTERM, 130 after SIGINT.
    self.status = 128 + number

  def __str__(self) -> str:
    return f'stopped by {signal.Signals(self.args[0]).name}; rerun the same command to resume'


class Lost(Exception):
  """Another process considered this one dead, and took its lock."""


def error_status(error: BaseException) -> int:
  """The status of a run that ends by `error`: its `status`, if its class has one.

  A FloatingPointError is Diverged, or JAX's with `debug_nans`.
  """
  if isinstance(error, SettingsError):
    return BAD_INPUT
  return DIVERGED if isinstance(error, FloatingPointError) else getattr(error, 'status', FAILED)
