"""`python -m experiments.main` in processes that are made to fail: each is forked from one that has imported it.

So a run costs what it does, and not the seconds that JAX takes to be imported. Nothing is patched in a run but what a
mutant breaks on purpose, and that it leaves a line where a phase begins, at which it may be told to be killed.
"""

from collections.abc import Callable, Iterator
import contextlib
import functools
import multiprocessing
import os
import pathlib
import runpy
import signal
import sys
import time
from typing import Any, NamedTuple

from experiments.faults import mutants, watch

# What `experiments.main` imports, but for itself, and what a run imports while it goes.
_IMPORTED = ('experiments.verify', 'experiments.usage', 'experiments.refusals', 'experiments.faults.processes')


class Moment(NamedTuple):
  """When a run is sent a signal by itself: `delay` seconds after a phase begins for the `count`-th time."""

  phase: str
  count: int
  delay: float
  signal: int = signal.SIGKILL


class Ended(NamedTuple):
  """What became of a run: its exit status as a shell has it, seconds of wall time, what it said, and its phases."""

  status: int
  seconds: float
  said: str
  phases: list[str]


class Run:
  """A run of a command line, in the folder where it leaves what it says and its phases."""

  def __init__(self, arguments: list[str], logs: pathlib.Path, moment: Moment | None = None, mutant: str = ''):
    logs.mkdir(parents=True, exist_ok=True)
    number = len(list(logs.glob('*.log')))
    self._log, self._phases = logs / f'{number}.log', logs / f'{number}.phases'
    self._log.touch()
    self._begun = time.monotonic()
    self._process = _server().Process(target=_run, args=(arguments, self._log, self._phases, moment, mutant))
    self._process.start()

  @property
  def pid(self) -> int:
    return self._process.pid or 0

  def is_over(self) -> bool:
    return not self._process.is_alive()

  def send(self, number: int) -> None:
    """A signal, unless the run is over."""
    with contextlib.suppress(ProcessLookupError):
      os.kill(self.pid, number)

  def seconds(self) -> float:
    """Since it began."""
    return time.monotonic() - self._begun

  def waited(self, seconds: float) -> bool:
    """Whether it is over within so many seconds from now."""
    self._process.join(seconds)
    return self.is_over()

  def end(self, most: float = 600.0) -> Ended:
    """Waits for it, and kills it where it takes longer."""
    if not self.waited(most):
      self.send(signal.SIGKILL)
      self._process.join()
    code = self._process.exitcode or 0
    phases = self._phases.read_text().split('\n')[:-1] if self._phases.exists() else []
    return Ended(128 - code if code < 0 else code, self.seconds(), self._log.read_text(errors='replace'), phases)


@functools.cache
def _server() -> Any:
  context = multiprocessing.get_context('forkserver')
  context.set_forkserver_preload(list(_IMPORTED))
  return context


def _run(
  arguments: list[str], log: pathlib.Path, phases: pathlib.Path, moment: Moment | None, mutant: str
) -> None:
  """In the new process."""
  with open(log, 'ab', 0) as file:
    os.dup2(file.fileno(), 1)
    os.dup2(file.fileno(), 2)
  watch.begin(phases, moment)
  if mutant:
    mutants.MUTANTS[mutant]()
  sys.argv = ['experiments.main', *arguments]
  runpy.run_module('experiments.main', run_name='__main__')
