"""The units of work of a run: made one after the other, beside other processes on the same folder, then merged."""

from collections import deque
from collections.abc import Callable, Sequence
import pathlib
from typing import Any, NamedTuple

from experiments.records import failures, results
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
  """Units have failed: their sentences, their exit statuses, and what is left."""

  def __init__(self, failed: dict[str, int], left: str | None):
    super().__init__('; '.join([*failed, left or 'all others are finished']))
    statuses = {*failed.values()}
    self.status = statuses.pop() if len(statuses) == 1 else exit_status.FAILED


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
  with locks.held(workdir, reporter):
    distributed.in_process_0(results.begin)(workdir, grid)
  failed = fill(units, reporter)

  @distributed.in_process_0
  def merge() -> str | None:
    locks.check_held(workdir)
    runs, left = finished()
    if any(records for _, records in runs):
      results.write(workdir, runs, reporter)
    return left

  with locks.held(workdir, reporter):
    left = merge()
  if failed:
    raise UnitsFailed(failed, left)
  return left


def fill(units: Sequence[Unit], reporter: Reporter) -> dict[str, int]:
  """Make units until all are done or the budget ends; return the failures, each of which stops no other unit.

  Units locked by another process are tried last, after a wait. The budget, however short, ends no earlier than after
  one more checkpoint or unit.
  """
  is_past = reporter.clock.is_past
  failed, queue = dict[str, int](), deque((index, False) for index in range(len(units)))
  while queue:
    index, waits = queue.popleft()
    unit, has_worked = units[index], waits
    signals.raise_if_stopped()
    cache.drop_programs_near_limit()
    with reporter.part(index + 1, len(units), unit.name):
      try:
        with locks.held(unit.directory, reporter, is_past if waits else lambda: True) as is_held:
          if is_held:
            has_worked |= _make(unit, failed, reporter)
          else:
            queue.append((index, True))
      except locks.Lost as lost:
        reporter.say(str(lost))
        queue.append((index, True))
    if has_worked and distributed.in_process_0(is_past)():
      break
  return failed


def _make(unit: Unit, failed: dict[str, int], reporter: Reporter) -> bool:
  """Make what is missing of a unit whose lock this process has; return whether anything was. Raises Lost.

  A failure is kept on file, and added to `failed`. An error that only one of several processes meets is raised again:
  the others wait for that one, and end with it.
  """
  try:
    missing = distributed.in_process_0(unit.missing)(reporter)
    if missing:
      before = reporter.clock.spent()
      unit.make(missing, reporter)
      distributed.in_process_0(failures.add_time)(unit.directory, reporter.clock.spent() - before, reporter)
  except (locks.Lost, Ended):
    raise
  except BaseException as error:
    # A user's own model or head may exit or interrupt.
    status = exit_status.error_status(error)
    if distributed.num_processes() > 1 and status == exit_status.FAILED:
      raise
    sentence = distributed.in_process_0(failures.write)(unit.directory, error, unit.label)
    reporter.say(f'failed: {sentence}')
    failed[f'{unit.name} failed: {sentence}'] = status
    return True
  distributed.in_process_0(failures.forget)(unit.directory, unit.label)
  return bool(missing)
