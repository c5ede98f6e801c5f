"""The grid of an experiment: a list of trials, run in any order and anywhere, then the records of all."""

import collections
from collections.abc import Sequence
import pathlib

from experiments.own import code, data
from experiments.pipeline import pretraining, queue
from experiments.records import results
from experiments.records.failures import Failure
from experiments.records.results import Record
from experiments.records.trials import TrialFolder
from experiments.runtime import distributed, exit_status, locks
from experiments.runtime.progress import Reporter
from experiments.settings import config as config_lib, lists
from experiments.settings.fields import SettingsError
from experiments.settings.grid import Settings
from experiments.settings.trial import trials


class TrialsFailed(exit_status.RunError):
  """Trials have failed; the text names them and what is left."""

  def __init__(self, failed: list[Failure], left: str | None):
    super().__init__('; '.join([*(failure.sentence for failure in failed), left or 'all other trials are finished']))
    statuses = {failure.status for failure in failed}
    self.status = statuses.pop() if len(statuses) == 1 else exit_status.FAILED


def folders(grid: Sequence[Settings], workdir: pathlib.Path) -> list[TrialFolder]:
  """The folder of every trial of one or several settings, in the order of `trials`."""
  made = [TrialFolder(trial, workdir) for trial in trials(*grid, code=[code.digests(settings) for settings in grid])]
  return with_alike(made, made)


def with_alike(some: Sequence[TrialFolder], others: Sequence[TrialFolder]) -> list[TrialFolder]:
  """The folders, each with those of other trials that share its draws."""
  by_draws = collections.defaultdict[str, dict[str, TrialFolder]](dict)
  for folder in others:
    by_draws[folder.trial.draws_id][folder.trial.id] = folder
  alike = lambda trial: (one for name, one in by_draws[trial.draws_id].items() if name != trial.id)
  return [folder._replace(alike=tuple(alike(folder.trial))) for folder in some]


def run(
  grid: Sequence[Settings], workdir: pathlib.Path, reporter: Reporter, numbers: Sequence[int] | None = None
) -> str | None:
  """Make the missing records of the numbered trials (None: all), and merge all finished trials.

  Returns what is left, as a sentence. The time budget, however short, ends no earlier than after one more checkpoint or
  trial. Raises TrialsFailed.
  """
  made = folders(grid, workdir)
  numbers = range(len(made)) if numbers is None else numbers
  asked = [made[number] for number in numbers]
  distributed.raise_everywhere(lambda: pretraining.check_disk(asked))
  results.begin_grid(workdir, grid)
  for settings in grid:
    data.keep(settings, workdir)
  before = [folder for _, some in _earlier(grid, workdir, reporter) for folder in some]
  failed = queue.fill(with_alike(made, [*made, *before]), numbers, grid[0].time_budget, reporter)
  left = distributed.broadcast_from_process_0(lambda: merge(grid, workdir, reporter))
  if failed:
    raise TrialsFailed(failed, left)
  # Otherwise what is left was not asked for.
  goes_on = left and any(folder.absent() for folder in asked)
  return f'{left}; rerun the same command to resume' if goes_on else left


def _earlier(
  grid: Sequence[Settings], workdir: pathlib.Path, reporter: Reporter
) -> list[tuple[Settings, list[TrialFolder]]]:
  """Other settings on record in a workdir, each with its trials; those that cannot be read are reported."""
  found = []
  for content in results.earlier(workdir, grid):
    try:
      settings: Settings = config_lib.from_record(content, {grid[0].experiment: type(grid[0])})
      found.append((settings, folders([settings], workdir)))
    except SettingsError as error:
      reporter.say(f'records with other settings in {workdir} are left out: {error}')
  return found


def merge(grid: Sequence[Settings], workdir: pathlib.Path, reporter: Reporter) -> str | None:
  """Replace the records of a workdir by those of all finished trials, by point; return what is left, as a sentence.

  Finished trials of other settings on record follow. Processes that share the directory take turns, and one that has
  lost the lock writes nothing. An object store has no locks: there `--mode=merge` at the end finds what all have left.
  Without a finished trial the old records stay, with their table and figures.
  """
  asked = [(settings, folders([settings], workdir)) for settings in grid]
  with locks.held(workdir, 'the merge of records', reporter):
    every = [*asked, *_earlier(grid, workdir, reporter)]
    runs, seen, counts = [], set[tuple[str, pathlib.Path]](), list[int]()
    for settings, some in every:
      points, decided = list(settings.grid()), str(lists.deciding(settings))
      by_point = sorted(some, key=lambda folder: points.index(folder.trial.point))
      finished = [*filter(None, map(_finished, by_point))]
      counts.append(len(finished))
      # Two runs of the same values may have asked for the same record, and of others too.
      made = {(decided, path): record for records in finished for path, record in records.items()}
      runs.append((settings, [record for name, record in made.items() if name not in seen]))
      seen |= made.keys()
    num_finished, total = sum(counts[: len(asked)]), sum(len(some) for _, some in asked)
    if num_finished:
      results.write_grid(workdir, runs)
  return None if num_finished == total else f'{num_finished} of {total} trials are finished'


def _finished(folder: TrialFolder) -> dict[pathlib.Path, Record] | None:
  """The records of a trial by file; None if one is missing."""
  paths, records = folder.paths().values(), folder.records()
  return dict(zip(paths, records)) if len(paths) == len(records) else None
