"""The units of work that one process makes, one after the other, beside other processes on the same folder."""

from collections import deque
from collections.abc import Callable, Sequence
import enum
import pathlib
from typing import Any, NamedTuple

from experiments.pipeline import pretraining
from experiments.records import failures
from experiments.records.failures import Failure
from experiments.runtime import cache, distributed, exit_status, locks
from experiments.runtime.progress import Reporter
from experiments.settings.fields import Ended


class Unit(NamedTuple):
  """A unit of work: a trial of a grid, or a part of a study.

  Attributes:
    directory: where its lock and its failure lie.
    name: in messages.
    missing: (reporter) -> what of it is not on file; process 0 calls it, which has the lock.
    make: (missing, reporter) -> adds this to its files. Raises OutOfTime as pretraining does, and Lost.
    label: tells its failure from those of other settings in the directory.
  """

  directory: pathlib.Path
  name: str
  missing: Callable[[Reporter], list[Any]]
  make: Callable[[list[Any], Reporter], Any]
  label: str = ''


class UnitsFailed(exit_status.RunError):
  """Units have failed; the text names them and what is left."""

  def __init__(self, failed: list[Failure], left: str | None):
    super().__init__('; '.join([*(failure.sentence for failure in failed), left or 'all others are finished']))
    statuses = {failure.status for failure in failed}
    self.status = statuses.pop() if len(statuses) == 1 else exit_status.FAILED


class End(enum.Enum):
  """The end of an attempt at a unit that did not fail."""

  COMPLETE = 'nothing was missing'
  RUN = 'this process made what was missing'
  LOCKED = 'another process works on it'
  OUT_OF_TIME = 'the time budget has ended'


def fill(units: Sequence[Unit], time_budget: float, reporter: Reporter) -> list[Failure]:
  """Make units until all are done or the budget ends; return the failures.

  Units locked by another process are tried last, after a wait. A failure does not stop the rest; a unit that failed
  elsewhere since the start is skipped.
  """
  is_past, at_once = lambda: reporter.clock.is_past(time_budget), lambda: True
  look = lambda: [failures.read(unit.directory, unit.label) for unit in units]
  before = distributed.broadcast_from_process_0(look)
  failed, queue = list[Failure](), deque((index, False) for index in range(len(units)))
  while queue:
    index, waits = queue.popleft()
    cache.drop_programs_near_limit()
    with reporter.part(index + 1, len(units), units[index].name):
      end = _attempt(units[index], before[index], is_past if waits else at_once, reporter)
    if isinstance(end, Failure):
      failed.append(end)
    elif end is End.LOCKED:
      queue.append((index, True))
    has_taken_time = waits or end not in (End.COMPLETE, End.LOCKED)
    if end is End.OUT_OF_TIME or (has_taken_time and is_past()):
      break
  return failed


def _attempt(
  unit: Unit, before: dict[str, Any] | None, gives_up: Callable[[], bool], reporter: Reporter
) -> End | Failure:
  """Make a unit under its lock. A failure on file other than `before` is another process's."""
  try:
    with locks.held(unit.directory, unit.name, reporter, gives_up) as is_held:
      return _made(unit, before, reporter) if is_held else End.LOCKED
  except locks.Lost as lost:
    reporter.say(str(lost))
    return End.LOCKED
  except OSError as error:
    # The lock cannot be created.
    return _failure(unit, error, reporter)


def _made(unit: Unit, before: dict[str, Any] | None, reporter: Reporter) -> End | Failure:
  """Make a unit whose lock this process has."""

  def look() -> tuple[dict[str, Any] | None, list[Any]]:
    failure = failures.read(unit.directory, unit.label)
    is_new = failure is not None and failure != before
    return (failure, []) if is_new else (None, unit.missing(reporter))

  try:
    failure, missing = distributed.broadcast_from_process_0(look)
    if failure:
      return Failure(f'{unit.name} failed in another process: {failure["error"]}', failure['status'])
    if missing:
      unit.make(missing, reporter)
  except pretraining.OutOfTime:
    return End.OUT_OF_TIME
  except (locks.Lost, Ended):
    raise
  except BaseException as error:
    # A user's own model or head may exit or interrupt.
    return _failure(unit, error, reporter)
  failures.forget(unit.directory, unit.label)
  return End.RUN if missing else End.COMPLETE


def _failure(unit: Unit, error: BaseException, reporter: Reporter) -> Failure:
  """Record and report the failure of a unit; raises Lost if another process has its lock by now.

  An error that only one of several processes meets is raised again: the others wait for that one, and end with it.
  """
  if distributed.num_processes() > 1 and exit_status.error_status(error) == exit_status.FAILED:
    raise error
  locks.check_held(unit.directory)
  failure = failures.write(unit.directory, error, unit.label)
  reporter.say(f'failed: {failure.sentence}')
  return failure._replace(sentence=f'{unit.name} failed: {failure.sentence}')
