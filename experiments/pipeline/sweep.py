"""The grid of an experiment: a list of trials, run in any order and anywhere, then records, table and figure of all."""

from collections import deque
from collections.abc import Sequence
import itertools
import pathlib
import re
from typing import Any

import matplotlib.figure
import pandas as pd

from experiments.analysis import error_budget, figures as figures_lib, mixture, report, statistics
from experiments.analysis.tables import Table
from experiments.pipeline import pretraining, trial as trial_lib
from experiments.records import failures, results
from experiments.records.failures import Failure
from experiments.records.trials import TrialFolder
from experiments.runtime import distributed, exit_status, locks, storage
from experiments.runtime.progress import Reporter
from experiments.settings import own_code
from experiments.settings.fields import Ended, require
from experiments.settings.grid import Settings
from experiments.settings.methods import MAIN, METHODS
from experiments.settings.trial import trials

# The function that draws each figure that settings may ask for.
FIGURES = {
  'figure_3_left': figures_lib.figure_3_left,
  'figure_3_right': figures_lib.figure_3_right,
  'nearest_tokens': figures_lib.nearest_tokens,
  'memory_cells': figures_lib.memory_cells,
  'attention': figures_lib.attention,
  'controls': figures_lib.controls,
  'budget': error_budget.figure,
  'conditioning': error_budget.conditioning,
}
# Figures that also show fits without a schedule.
_OF_FITS = ('budget', 'conditioning')


def check(settings: Settings) -> None:
  """Raise SettingsError where this machine lacks what the settings ask for."""
  if settings.has_bert:
    pretraining.check_machine(settings)
  try:
    if settings.pretrained:
      storage.check_writable(storage.located(settings.pretrained, 'pretrained'))
  except OSError as error:
    require(False, 'pretrained', settings.pretrained, f'a writable directory ({error.strerror})')


def folders(settings: Settings, workdir: pathlib.Path) -> list[TrialFolder]:
  """The folder of every trial of a grid, in the order of `trials`."""
  code = own_code.digests(settings)
  return [TrialFolder(trial, workdir, code) for trial in trials(settings)]


def chosen(text: str, count: int) -> list[int]:
  """Parse numbers below `count`, of trials, such as '0,3-5'; '' means all. Raises SettingsError."""
  found = set[int]()
  for part in text.split(',') if text else ():
    ends = re.fullmatch(r' *([0-9]{1,9})(?:-([0-9]{1,9}))? *', part)
    first, last = (int(ends[1]), int(ends[2] or ends[1])) if ends else (1, 0)
    valid = f'numbers from 0 to {count - 1}, and ranges, such as 0,3-5'
    require(first <= last < count, '--trials', text, valid)
    found |= set(range(first, last + 1))
  return sorted(found) or list(range(count))


def fill(folders: list[TrialFolder], numbers: Sequence[int], time_budget: float, reporter: Reporter) -> list[Failure]:
  """Run the trials of these numbers in this process, one after the other, until all are done or the budget ends.

  Those that another process works on come last, after a wait. A trial that fails stops no other. It is tried once, or
  not at all if it has failed in another process meanwhile.
  """
  is_past = lambda: reporter.clock.is_past(time_budget)
  at_once = lambda: True
  look = lambda: [failures.read(folders[number].directory) for number in numbers]
  before = dict(zip(numbers, distributed.broadcast_from_process_0(look)))
  failed, queue = list[Failure](), deque((number, False) for number in numbers)
  while queue:
    number, waits = queue.popleft()
    folder = folders[number]
    name = str(folder.trial)
    called = f'trial {number} ({name})'
    try:
      with (
        reporter.part(number + 1, len(folders), name),
        locks.held(folder.directory, called, reporter, is_past if waits else at_once) as is_held,
      ):
        outcome = is_held and _run(folder, called, before[number], reporter)
    except pretraining.OutOfTime:
      break
    except locks.Lost as lost:
      reporter.say(str(lost))
      is_held = outcome = False
    except OSError as error:
      # The lock cannot be created.
      is_held, outcome = True, _failure(folder, called, error, reporter)
    if isinstance(outcome, Failure):
      failed.append(outcome)
    if not is_held:
      queue.append((number, True))
    if (outcome or waits) and distributed.broadcast_from_process_0(is_past):
      break
  return failed


def _run(folder: TrialFolder, called: str, before: dict[str, Any] | None, reporter: Reporter) -> bool | Failure:
  """Run a trial whose lock this process has; return True if anything was missing, or its failure.

  A failure on file other than `before`, which was read when this run began, is another process's, and is returned.
  """
  now = distributed.broadcast_from_process_0(lambda: failures.read(folder.directory))
  if now and now != before:
    return Failure(f'{called} failed in another process: {now["error"]}', now['status'])
  try:
    is_run = trial_lib.run(folder, reporter)
  except (pretraining.OutOfTime, locks.Lost, Ended):
    raise
  except BaseException as error:
    # A user's own model or head may exit or interrupt.
    return _failure(folder, called, error, reporter)
  failures.forget(folder.directory)
  return is_run


def _failure(folder: TrialFolder, called: str, error: BaseException, reporter: Reporter) -> Failure:
  """Record and report the failure of a trial; raises Lost where another process has its lock by now.

  An error that only one of several processes meets is raised again: the others wait for that one, and end with it.
  """
  if distributed.num_processes() > 1 and exit_status.error_status(error) == exit_status.FAILED:
    raise error
  locks.check(folder.directory)
  failure = failures.caught(folder.directory, error)
  reporter.say(f'failed: {failure.sentence}')
  return failure._replace(sentence=f'{called} failed: {failure.sentence}')


class TrialsFailed(exit_status.RunError):
  """Trials have failed; the text names them and what is left."""

  def __init__(self, failed: list[Failure], left: str | None):
    super().__init__('; '.join([*(failure.sentence for failure in failed), left or 'all other trials are finished']))
    statuses = {failure.status for failure in failed}
    self.status = statuses.pop() if len(statuses) == 1 else exit_status.FAILED


def run(
  settings: Settings, workdir: pathlib.Path, reporter: Reporter, numbers: Sequence[int] | None = None
) -> str | None:
  """Make the missing records of the numbered trials (None: all), and merge all finished trials.

  Returns what is left, as a sentence. The time budget, however short, ends no earlier than after one more checkpoint or
  trial. Raises TrialsFailed.
  """
  grid = folders(settings, workdir)
  numbers = range(len(grid)) if numbers is None else numbers
  asked = [grid[number] for number in numbers]
  distributed.broadcast_from_process_0(lambda: pretraining.check_disk(asked))
  results.begin(workdir, settings)
  failed = fill(grid, numbers, settings.time_budget, reporter)
  left = distributed.broadcast_from_process_0(lambda: merge(settings, workdir, reporter))
  if failed:
    raise TrialsFailed(failed, left)
  # Otherwise what is left was not asked for.
  goes_on = left and any(folder.absent() for folder in asked)
  return f'{left}; rerun the same command to resume' if goes_on else left


def merge(settings: Settings, workdir: pathlib.Path, reporter: Reporter) -> str | None:
  """Replace the records of a workdir by those of all finished trials, by point; return what is left, as a sentence.

  Processes that share the directory take turns, and one that has lost the lock writes nothing. An object store has no
  locks: there `--mode=merge` at the end finds what all have left. Without a finished trial the old records stay, with
  their table and figures.
  """
  points, grid = list(settings.grid()), folders(settings, workdir)
  with locks.held(workdir, 'the merge of records', reporter):
    found = [(folder, folder.records()) for folder in sorted(grid, key=lambda one: points.index(one.trial.point))]
    finished = [records for folder, records in found if len(records) == len(folder.paths())]
    if finished:
      results.write(workdir, settings, list(itertools.chain(*finished)))
  return None if len(finished) == len(grid) else f'{len(finished)} of {len(grid)} trials are finished'


def tables(records: pd.DataFrame, settings: Settings) -> dict[str, Table]:
  """The tables of the records of a grid that have rows."""
  records = statistics.on_fresh_texts(records)
  of_paper = mixture.tables(records) if settings.figure.paper_overlay else {}
  return report.tables(records, settings.figure.paper_overlay) | error_budget.tables(records) | of_paper


def figures(records: pd.DataFrame, settings: Settings) -> dict[str, matplotlib.figure.Figure]:
  """The figures that the settings name and the records fill."""
  records = statistics.on_fresh_texts(records)
  trained = records[[method in MAIN or METHODS[method].fit == 'schedule' for method in records['method']]]
  drawn = {}
  for name in settings.figures:
    # Fits without a schedule are for _OF_FITS alone, unless there are no others.
    drawn[name] = FIGURES[name](records if name in _OF_FITS or trained.empty else trained, settings.figure)
  return {name: figure for name, figure in drawn.items() if figure}
