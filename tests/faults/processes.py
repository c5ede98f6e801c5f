"""`python -m experiments.main` in processes forked from one that has imported JAX, which saves most of their time.

No module of ours is imported before the fork. A run leaves a line in a file where a phase begins, can send itself a
signal there, and is changed in nothing else.
"""

import contextlib
import functools
import multiprocessing
import os
import resource
import runpy
import signal
import sys
import threading
import time
import types
from typing import NamedTuple

_IMPORTED = ('jax', 'flax.linen', 'optax', 'orbax.checkpoint', 'etils.epath', 'ml_collections.config_flags')
# In the order in which a run meets them first.
PHASES = ('start', 'measuring', 'compile', 'corpus', 'pretraining', 'save', 'tuning', 'writing')
_COMPILING = '/jax/core/compile/'
_MOST_SECONDS = 300.0


class Moment(NamedTuple):
  """A run sends itself this signal where a phase begins for the `number`-th time."""

  phase: str
  number: int
  signal: int = signal.SIGKILL


class Ended(NamedTuple):
  """The exit status of a run as a shell has it, what it printed, the phases it began, and when it ended."""

  status: int
  said: str
  phases: list[str]
  time: float


class Run:
  """A run of a command line, which leaves in the folder `logs` what it prints and its phases.

  With `most_bytes` the system refuses what makes a file longer, as on a full disk.
  """

  def __init__(self, arguments, logs, moment=None, most_bytes=0):
    logs.mkdir(parents=True, exist_ok=True)
    self._log = logs / f'{time.monotonic_ns()}.log'
    self._phases = self._log.with_suffix('.phases')
    self._log.touch()
    self._phases.touch()
    self.process = forked(_run, arguments, str(self._log), str(self._phases), moment, most_bytes)

  def send(self, number):
    """Send a signal, unless the run is over."""
    with contextlib.suppress(ProcessLookupError):
      if self.process.is_alive():
        os.kill(self.process.pid, number)

  def reached(self, phase, number=1):
    """Wait until a phase begins for the `number`-th time; return whether it does before the run is over."""
    while self._phases.read_text().split('\n').count(phase) < number:
      if not self.process.is_alive():
        return False
      time.sleep(0.002)
    return True

  def end(self, seconds=_MOST_SECONDS):
    """Wait for the end, and kill a run that takes longer."""
    self.process.join(seconds)
    self.send(signal.SIGKILL)
    self.process.join()
    code, phases = self.process.exitcode, self._phases.read_text().split('\n')[:-1]
    return Ended(128 - code if code < 0 else code, self._log.read_text(errors='replace'), phases, time.monotonic())


def forked(target, *arguments):
  """A process that calls `target`; it ends where this one does."""
  process, program = _server().Process(target=target, args=arguments, daemon=True), sys.modules['__main__']
  # The program of this process would be imported there otherwise, with all that it imports.
  sys.modules['__main__'] = types.ModuleType('__main__')
  try:
    process.start()
  finally:
    sys.modules['__main__'] = program
  return process


@functools.cache
def _server():
  context = multiprocessing.get_context('forkserver')
  context.set_forkserver_preload(list(_IMPORTED))
  return context


def _run(arguments, log, phases, moment, most_bytes):
  """In the new process; as Python does, it ends an interrupt that nobody handles by that signal."""
  with open(log, 'ab', 0) as file:
    os.dup2(file.fileno(), 1)
    os.dup2(file.fileno(), 2)
  if most_bytes:
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
  # Processes that a shell starts in the background ignore it.
  signal.signal(signal.SIGINT, signal.default_int_handler)
  try:
    _watch(phases, moment)
    sys.argv = ['experiments.main', *arguments]
    runpy.run_module('experiments.main', run_name='__main__')
  except KeyboardInterrupt:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)


def _watch(path, moment):
  """Note where phases begin, and sends this process the signal at the moment, if there is one."""
  import jax
  import orbax.checkpoint as ocp

  from experiments.runtime import timing

  file, counts = os.open(path, os.O_WRONLY | os.O_APPEND), dict.fromkeys(PHASES, 0)

  def note(name):
    counts[name] += 1
    os.write(file, f'{name}\n'.encode())
    if moment and (name, counts[name]) == moment[:2]:
      os.kill(os.getpid(), moment.signal)

  def noting(function, name_of):
    @functools.wraps(function)
    def noted(*arguments, **named):
      # Leases are renewed, and checkpoints written, by threads.
      if threading.current_thread() is threading.main_thread():
        note(name_of(*arguments))
      return function(*arguments, **named)

    return noted

  timing.Clock.phase = noting(timing.Clock.phase, lambda _, name: name if name in PHASES else 'start')
  ocp.Checkpointer.save = noting(ocp.Checkpointer.save, lambda *_: 'save')
  for name in ('fsync', 'replace'):
    setattr(os, name, noting(getattr(os, name), lambda *_: 'writing'))
  jax.monitoring.register_scalar_listener(lambda event, *_, **__: event.startswith(_COMPILING) and note('compile'))
  note('start')
