"""`python -m experiments.main` in processes that are made to fail: each is forked from one that has imported JAX.

So a run does not take the seconds that importing takes. None of our own modules is imported before the fork, and
nothing of a run is changed but what is asked for by name (`changes`), and that it leaves a line where a phase begins.
"""

from collections.abc import Callable, Sequence
import contextlib
import functools
import importlib
import json
import multiprocessing
import os
import pathlib
import runpy
import signal
import sys
import time
import types
from typing import Any, NamedTuple

from experiments.studies.faults import changes, watch
from experiments.studies.faults.watch import Moment

# Libraries alone: what a module of ours holds from its import on, such as a name of the process, is each run's own.
_IMPORTED = (
  *('jax', 'flax.linen', 'optax', 'orbax.checkpoint', 'scipy.stats', 'scipy.optimize', 'etils.epath'),
  *('ml_collections.config_flags', 'matplotlib.figure', 'rich.table', 'rich.progress'),
  *('matplotlib.backends.backend_agg', 'matplotlib.backends.backend_pdf', 'matplotlib.backends.backend_svg'),
)
_SECONDS_BETWEEN_LOOKS = 0.002


class Ended(NamedTuple):
  """What became of a run.

  Attributes:
    status: its exit status as a shell has it.
    ended: when it did, in seconds of `time.monotonic`.
    said: what it printed.
    phases: that it went through, one after the other, and that it came back to.
    signalled: when it sent itself a signal; None where it did not.
  """

  status: int
  ended: float
  said: str
  phases: list[str]
  signalled: float | None

  @property
  def last_words(self) -> str:
    """The last line that it said."""
    return next((line for line in reversed(self.said.splitlines()) if line.strip()), 'nothing')


class Run:
  """A run of a command line, which leaves in a folder what it says and its phases."""

  def __init__(
    self,
    arguments: Sequence[str],
    logs: pathlib.Path,
    moment: Moment | None = None,
    changed: Sequence[str] = (),
    environment: dict[str, str] | None = None,
  ):
    logs.mkdir(parents=True, exist_ok=True)
    self._log = pathlib.Path(logs, f'{time.monotonic_ns()}.log')
    self._phases = self._log.with_suffix('.phases')
    self._log.touch()
    self.begun = time.monotonic()
    self._process = forked(_run, list(arguments), self._log, self._phases, moment, list(changed), environment or {})

  @property
  def pid(self) -> int:
    return self._process.pid or 0

  def is_over(self) -> bool:
    return not self._process.is_alive()

  def send(self, number: int) -> None:
    """A signal, unless the run is over."""
    with contextlib.suppress(ProcessLookupError):
      if not self.is_over():
        os.kill(self.pid, number)

  def waited(self, seconds: float) -> bool:
    """Whether it is over within so many seconds from now."""
    self._process.join(seconds)
    return self.is_over()

  def reached(self, phase: str, count: int) -> bool:
    """Waits until a phase begins for the `count`-th time; whether it did before the run was over."""
    while self._lines().count(phase) < count:
      if self.is_over():
        return False
      time.sleep(_SECONDS_BETWEEN_LOOKS)
    return True

  def end(self, most: float) -> Ended:
    """Waits for it, and kills it where that takes longer than `most` seconds."""
    if not self.waited(most):
      self.send(signal.SIGKILL)
      self._process.join()
    ended, code, lines = time.monotonic(), self._process.exitcode or 0, self._lines()
    signalled = [float(line.removeprefix(watch.SIGNAL)) for line in lines if line.startswith(watch.SIGNAL)]
    phases = [line for line in lines if not line.startswith(watch.SIGNAL)]
    said = self._log.read_text(errors='replace')
    return Ended(128 - code if code < 0 else code, ended, said, phases, signalled[0] if signalled else None)

  def _lines(self) -> list[str]:
    return self._phases.read_text().split('\n')[:-1] if self._phases.exists() else []


def answer(module: str, *arguments: Any, path: pathlib.Path) -> Any:
  """What `answer` of a module returns in a process of its own, as JSON has it, which is left at `path`."""
  process = forked(_answer, module, arguments, path)
  process.join()
  if process.exitcode:
    raise RuntimeError(f'{module} ended with status {process.exitcode}')
  return json.loads(path.read_text())


def forked(target: Callable[..., None], *arguments: Any) -> Any:
  """A process that calls `target`, forked from one that has imported the libraries; it has begun, and is told to stop
  where this one ends."""
  process, program = _server().Process(target=target, args=arguments, daemon=True), sys.modules['__main__']
  # What this program was started by is imported there otherwise, and all that it imports.
  sys.modules['__main__'] = types.ModuleType('__main__')
  try:
    process.start()
  finally:
    sys.modules['__main__'] = program
  return process


@functools.cache
def _server() -> Any:
  context = multiprocessing.get_context('forkserver')
  context.set_forkserver_preload(list(_IMPORTED))
  return context


def _answer(module: str, arguments: tuple[Any, ...], path: pathlib.Path) -> None:
  path.write_text(json.dumps(importlib.import_module(module).answer(*arguments)))


def _run(
  arguments: list[str],
  log: pathlib.Path,
  phases: pathlib.Path,
  moment: Moment | None,
  changed: list[str],
  environment: dict[str, str],
) -> None:
  """In the new process; as Python does, it ends an interrupt that nobody answers by that signal."""
  with open(log, 'ab', 0) as file:
    os.dup2(file.fileno(), 1)
    os.dup2(file.fileno(), 2)
  os.environ.update(environment)
  # What a shell starts in the background ignores it.
  signal.signal(signal.SIGINT, signal.default_int_handler)
  try:
    watch.begin(phases, moment)
    changes.make(changed)
    sys.argv = ['experiments.main', *arguments]
    runpy.run_module('experiments.main', run_name='__main__')
  except KeyboardInterrupt:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
