"""The trials that one process runs, one after the other, beside other processes on the same workdir."""

from collections import deque
from collections.abc import Callable, Sequence
import enum
from typing import Any

from experiments.pipeline import pretraining, trial as trial_lib
from experiments.records import failures, trials
from experiments.records.failures import Failure
from experiments.records.trials import Name, TrialFolder
from experiments.runtime import cache, distributed, exit_status, locks
from experiments.runtime.progress import Reporter
from experiments.settings.fields import Ended


class End(enum.Enum):
  """The end of an attempt at a trial that did not fail."""

  COMPLETE = 'no record was missing'
  RUN = 'this process made the missing records'
  LOCKED = 'another process works on it'
  OUT_OF_TIME = 'the time budget has ended'


def fill(
  folders: Sequence[TrialFolder], numbers: Sequence[int], time_budget: float, reporter: Reporter
) -> list[Failure]:
  """Run the trials of these numbers until all are done or the budget ends; return the failures.

  Trials locked by another process are tried last, after a wait. A failure does not stop the rest; a trial that failed
  elsewhere since the start is skipped.
  """
  is_past, at_once = lambda: reporter.clock.is_past(time_budget), lambda: True
  look = lambda: [failures.read(folders[number].directory, folders[number].trial.label) for number in numbers]
  before = dict(zip(numbers, distributed.broadcast_from_process_0(look)))
  failed, queue = list[Failure](), deque((number, False) for number in numbers)
  while queue:
    number, waits = queue.popleft()
    cache.drop_programs_near_limit()
    folder, gives_up = folders[number], is_past if waits else at_once
    with reporter.part(number + 1, len(folders), str(folder.trial)):
      end = _attempt(folder, f'trial {number} ({folder.trial})', before[number], gives_up, reporter)
    if isinstance(end, Failure):
      failed.append(end)
    elif end is End.LOCKED:
      queue.append((number, True))
    has_taken_time = waits or end not in (End.COMPLETE, End.LOCKED)
    if end is End.OUT_OF_TIME or (has_taken_time and is_past()):
      break
  return failed


def _attempt(
  folder: TrialFolder, name: str, before: dict[str, Any] | None, gives_up: Callable[[], bool], reporter: Reporter
) -> End | Failure:
  """Run a trial under its lock. A failure on file other than `before` is another process's."""
  try:
    with locks.held(folder.directory, name, reporter, gives_up) as is_held:
      return _run(folder, name, before, reporter) if is_held else End.LOCKED
  except locks.Lost as lost:
    reporter.say(str(lost))
    return End.LOCKED
  except OSError as error:
    # The lock cannot be created.
    return _failure(folder, name, error, reporter)


def _run(folder: TrialFolder, name: str, before: dict[str, Any] | None, reporter: Reporter) -> End | Failure:
  """Run a trial whose lock this process has."""

  def look() -> tuple[dict[str, Any] | None, list[Name]]:
    failure = failures.read(folder.directory, folder.trial.label)
    is_new = failure is not None and failure != before
    return (failure, []) if is_new else (None, trials.plan(folder, reporter))

  try:
    failure, missing = distributed.broadcast_from_process_0(look)
    if failure:
      return Failure(f'{name} failed in another process: {failure["error"]}', failure['status'])
    if missing:
      with trials.recording_time(folder, reporter):
        trial_lib.run(folder, missing, reporter)
  except pretraining.OutOfTime:
    return End.OUT_OF_TIME
  except (locks.Lost, Ended):
    raise
  except BaseException as error:
    # A user's own model or head may exit or interrupt.
    return _failure(folder, name, error, reporter)
  failures.forget(folder.directory, folder.trial.label)
  return End.RUN if missing else End.COMPLETE


def _failure(folder: TrialFolder, name: str, error: BaseException, reporter: Reporter) -> Failure:
  """Record and report the failure of a trial; raises Lost if another process has its lock by now.

  An error that only one of several processes meets is raised again: the others wait for that one, and end with it.
  """
  if distributed.num_processes() > 1 and exit_status.error_status(error) == exit_status.FAILED:
    raise error
  locks.check_held(folder.directory)
  failure = failures.write(folder.directory, error, folder.trial.label)
  reporter.say(f'failed: {failure.sentence}')
  return failure._replace(sentence=f'{name} failed: {failure.sentence}')
