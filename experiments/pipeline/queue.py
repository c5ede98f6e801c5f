"""The units of work of a run: made one after the other, beside other processes on the same folder, then merged."""

from collections import deque
from collections.abc import Callable, Sequence
import enum
import pathlib
from typing import Any, NamedTuple

from experiments.records import failures, results
from experiments.records.failures import Failure
from experiments.runtime import cache, distributed, exit_status, locks, signals
from experiments.runtime.progress import Reporter
from experiments.settings.fields import Ended


class Unit(NamedTuple):
  """A unit of work: a trial of a grid, or a part of a study.

  Attributes:
    directory: where its lock and its failure lie.
    name: in messages.
    missing: (reporter) -> what of it is not on file, as JSON has it; process 0 calls it, under the lock.
    make: (missing, reporter) -> adds this to its files. Raises Lost.
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
  RUN = 'this process worked on what was missing'
  LOCKED = 'another process works on it'


def run(
  grid: Sequence[Any],
  workdir: pathlib.Path,
  units: Sequence[Unit],
  finished: Callable[[], tuple[results.Runs, str | None]],
  reporter: Reporter,
) -> str | None:
  """Make units for the settings of `grid`, then merge what is finished; return what is left, as a sentence.

  `finished` returns settings with their records, and that sentence. Each of several runs merges, so that the last to
  end has all. Raises UnitsFailed after the merge.
  """
  lock_of_merge = workdir, 'the merge of records', reporter
  with locks.held(*lock_of_merge):
    distributed.in_process_0(results.begin)(workdir, grid)
  failed = fill(units, reporter)

  @distributed.in_process_0
  def merge() -> str | None:
    locks.check_held(workdir)
    runs, left = finished()
    if any(records for _, records in runs):
      results.write(workdir, runs, reporter)
    return left

  with locks.held(*lock_of_merge):
    left = merge()
  if failed:
    raise UnitsFailed(failed, left)
  return left


def fill(units: Sequence[Unit], reporter: Reporter) -> list[Failure]:
  """Make units until all are done or the budget ends; return the failures, each of which stops no other unit.

  Units locked by another process are tried last, after a wait. The budget, however short, ends no earlier than after
  one more checkpoint or unit.
  """
  is_past, at_once = reporter.clock.is_past, lambda: True
  failed, queue = list[Failure](), deque((index, False) for index in range(len(units)))
  while queue:
    index, waits = queue.popleft()
    signals.raise_if_stopped()
    cache.drop_programs_near_limit()
    with reporter.part(index + 1, len(units), units[index].name):
      end = _attempt(units[index], is_past if waits else at_once, reporter)
    if isinstance(end, Failure):
      failed.append(end)
    if end is End.LOCKED:
      queue.append((index, True))
    has_taken_time = waits or end not in (End.COMPLETE, End.LOCKED)
    if has_taken_time and distributed.in_process_0(is_past)():
      break
  return failed


def _attempt(unit: Unit, gives_up: Callable[[], bool], reporter: Reporter) -> End | Failure:
  """Make a unit under its lock; raise StorageError if no lock can be made."""
  try:
    with locks.held(unit.directory, unit.name, reporter, gives_up) as is_held:
      return _made(unit, reporter) if is_held else End.LOCKED
  except locks.Lost as lost:
    reporter.say(str(lost))
    return End.LOCKED


def _made(unit: Unit, reporter: Reporter) -> End | Failure:
  """Make a unit whose lock this process has."""
  try:
    missing = distributed.in_process_0(unit.missing)(reporter)
    if missing:
      before = reporter.clock.spent()
      unit.make(missing, reporter)
      distributed.in_process_0(failures.add_time)(unit.directory, reporter.clock.since(before), reporter)
  except (locks.Lost, Ended):
    raise
  except BaseException as error:
    # A user's own model or head may exit or interrupt.
    return _failure(unit, error, reporter)
  distributed.in_process_0(failures.forget)(unit.directory, unit.label)
  return End.RUN if missing else End.COMPLETE


def _failure(unit: Unit, error: BaseException, reporter: Reporter) -> Failure:
  """Record and report the failure of a unit; raises Lost if another process has its lock by now.

  An error that only one of several processes meets is raised again: the others wait for that one, and end with it.
  """
  if distributed.num_processes() > 1 and exit_status.error_status(error) == exit_status.FAILED:
    raise error

  @distributed.in_process_0
  def record() -> Failure:
    locks.check_held(unit.directory)
    return failures.write(unit.directory, error, unit.label)

  sentence, status = record()
  reporter.say(f'failed: {sentence}')
  return Failure(f'{unit.name} failed: {sentence}', status)
