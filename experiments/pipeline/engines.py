"""Who runs the trials of a grid: this process, or several of this machine, on its CPUs or one on each of its GPUs."""

from collections import deque
from collections.abc import Iterator, Sequence
import contextlib
import os
import pathlib
import subprocess
import sys
import time
from typing import Any, NamedTuple

from experiments.pipeline import memory_needs, sweep
from experiments.records import failures
from experiments.records.failures import Failure
from experiments.runtime import distributed, exit_status, locks, memory, signals, storage
from experiments.runtime.progress import Reporter
from experiments.settings.fields import require
from experiments.settings.grid import Settings

ENGINES = ('here', 'processes', 'gpus')
_SECONDS_BETWEEN_LOOKS = 0.2


class _Worker(NamedTuple):
  """A process that runs a trial, its place, the trial's name and directory, and what was kept of its failure before."""

  process: subprocess.Popen
  place: dict[str, str]
  name: str
  directory: pathlib.Path
  failure: dict[str, Any] | None

  @property
  def log(self) -> pathlib.Path:
    return self.directory / 'log.txt'


class Processes(NamedTuple):
  """Runs each trial in a process of its own: `python -m experiments.main` with the arguments of this one and --trials.

  A place is what a worker's environment has besides `environment`; no two workers have one at the same time.
  """

  name: str
  arguments: list[str]
  places: list[dict[str, str]]
  environment: dict[str, str]

  def check(self, settings: Settings, workdir: pathlib.Path) -> None:
    """Raises SettingsError where the host's memory is too small for all of them, or their logs have no directory."""
    count, valid = distributed.num_meant(settings.distributed), 'here where several processes run a trial together'
    require(count == 1, '--engine', self.name, f'{valid}: there are {count}')
    valid = 'a local directory where --engine is not here: workers leave their logs in it'
    require(not storage.is_object(workdir), '--workdir', str(workdir), valid)
    there, each = memory.available(), memory_needs.total(settings)
    if there is not None and self.name == 'processes':
      valid = f'at most {there // each:.0f}, since each takes about {each / 1e9:.1f} GB of {there / 1e9:.1f} GB'
      require(len(self.places) * each <= there, '--num_workers', len(self.places), valid)

  def fill(self, grid: sweep.Grid, numbers: Sequence[int], time_budget: float, reporter: Reporter) -> list[Failure]:
    """Gives out what is missing in the order of the numbers, each trial to the first place that is free.

    Those that another process works on come last. A trial that fails stops no other. When this ends, by a signal or
    otherwise, so have all workers, with a checkpoint; when it is killed Linux kills them, too.
    """
    trials = list(grid.values())
    missing = [number for number in numbers if trials[number].missing()]
    waiting = deque(sorted(missing, key=lambda number: locks.holder(trials[number].directory) is not None))
    free, running, failed = deque(self.places), list[_Worker](), list[Failure]()
    begun, total = time.monotonic(), len(waiting)
    with _stopped_at_the_end(running), reporter.track('trials', total) as advance:
      while running or waiting:
        if waiting and free:
          minutes = time_budget and time_budget - (time.monotonic() - begun) / 60
          if minutes < 0 and len(waiting) < total:
            waiting.clear()
          else:
            number, place = waiting.popleft(), free.popleft()
            with signals.deferred():
              try:
                running.append(self._start(grid, number, place, minutes))
              except OSError as error:
                free.append(place)
                failed.append(_not_begun(grid, number, error))
          continue
        for worker in _ended(running):
          free.append(worker.place)
          failed += _failure(worker)
          advance(total - len(waiting) - len(running), f'at work: {", ".join(one.name for one in running) or "none"}')
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    return failed

  def _start(self, grid: sweep.Grid, number: int, place: dict[str, str], minutes: float) -> _Worker:
    """Begins a trial, with what is left of the time budget (0: no limit)."""
    name, trial = list(grid.items())[number]
    flags = ['--engine=here', '--num_workers=0', f'--trials={number}', '--config.distributed.mode=off']
    flags += [f'--config.time_budget={max(minutes, 1e-9)}'] if minutes else []
    command = [sys.executable, '-m', 'experiments.main', *self.arguments, *flags]
    trial.directory.mkdir(parents=True, exist_ok=True)
    with open(trial.directory / 'log.txt', 'wb') as log:
      env = {**self.environment, **place, signals.PARENT: str(os.getpid())}
      process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    return _Worker(process, place, f'{number} ({name})', trial.directory, failures.read(trial.directory))


def processes(engine: str, num_workers: int, arguments: list[str]) -> Processes | None:
  """The workers of an engine, None where it has none; before a device is looked at. Raises SettingsError.

  This process looks at devices as a worker does, but leaves their memory to the workers.
  """
  require(num_workers >= 0, '--num_workers', num_workers, 'at least 0, as many as there are CPUs or GPUs')
  if engine == 'here':
    require(not num_workers, '--num_workers', num_workers, '0 where --engine is here')
    return None
  if engine == 'processes':
    places = [{'JAX_PLATFORMS': 'cpu'} for _ in range(num_workers or os.cpu_count() or 1)]
  else:
    gpus = _gpus()
    require(bool(gpus), '--engine', engine, 'here or processes where nvidia-smi finds no GPU')
    require(num_workers <= len(gpus), '--num_workers', num_workers, f'at most {len(gpus)}, the GPUs there are')
    places = [{'CUDA_VISIBLE_DEVICES': gpu} for gpu in gpus[: num_workers or None]]
  found = Processes(engine, arguments, places, dict(os.environ))
  os.environ.update({'XLA_PYTHON_CLIENT_PREALLOCATE': 'false', **places[0]})
  return found


def _gpus() -> list[str]:
  """The GPUs that CUDA is allowed, or else all that there are."""
  allowed = os.environ.get('CUDA_VISIBLE_DEVICES')
  if allowed is not None:
    return [gpu for gpu in allowed.split(',') if gpu]
  query = ['nvidia-smi', '--query-gpu=index', '--format=csv,noheader']
  with contextlib.suppress(OSError):
    return subprocess.run(query, capture_output=True, text=True).stdout.split()
  return []


def _ended(running: list[_Worker]) -> list[_Worker]:
  """Those whose process has ended, which are running no more."""
  ended = [worker for worker in running if worker.process.poll() is not None]
  for worker in ended:
    running.remove(worker)
  return ended


def _not_begun(grid: sweep.Grid, number: int, error: OSError) -> Failure:
  """What failed of a trial whose process could not be started, or its log not be written."""
  name, trial = list(grid.items())[number]
  failure = failures.caught(trial.directory, error)
  return failure._replace(sentence=f'trial {number} ({name}) was not begun: {failure.sentence}')


def _failure(worker: _Worker) -> list[Failure]:
  """What failed, with the last line that the worker said, unless it succeeded; kept where it could not do so itself."""
  code = worker.process.returncode
  if not code:
    return []
  try:
    said = worker.log.read_text(errors='replace')
  except OSError as error:
    said = f'its log cannot be read ({error.strerror})'
  last = next((line for line in reversed(said.split('\n')) if line.strip()), 'without a word')
  what = f'ended with exit code {code}: {last.strip()}'
  status = code if code in (exit_status.BAD_INPUT, exit_status.DIVERGED) else exit_status.FAILED
  sentence = f'trial {worker.name} {what} ({worker.log})'
  try:
    if failures.read(worker.directory) == worker.failure:
      failures.keep(worker.directory, f'its process {what}', status, said, [])
  except OSError as error:
    sentence += f' ({error})'
  return [Failure(sentence, status)]


@contextlib.contextmanager
def _stopped_at_the_end(running: list[_Worker]) -> Iterator[None]:
  """Tells what is still running to stop, by its id, and waits until it has."""
  try:
    yield
  finally:
    for worker in running:
      worker.process.terminate()
    for worker in running:
      worker.process.wait()
