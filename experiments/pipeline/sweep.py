"""The grid of an experiment: a list of trials, run in any order and anywhere, then the records of all."""

from collections.abc import Sequence
import itertools
import pathlib

from experiments.own import code, data
from experiments.pipeline import pretraining, queue
from experiments.records import results
from experiments.records.failures import Failure
from experiments.records.trials import TrialFolder
from experiments.runtime import distributed, exit_status, locks
from experiments.runtime.progress import Reporter
from experiments.settings.grid import Settings
from experiments.settings.trial import trials


class TrialsFailed(exit_status.RunError):
  """Trials have failed; the text names them and what is left."""

  def __init__(self, failed: list[Failure], left: str | None):
    super().__init__('; '.join([*(failure.sentence for failure in failed), left or 'all other trials are finished']))
    statuses = {failure.status for failure in failed}
    self.status = statuses.pop() if len(statuses) == 1 else exit_status.FAILED


def folders(settings: Settings, workdir: pathlib.Path) -> list[TrialFolder]:
  """The folder of every trial of a grid, in the order of `trials`."""
  return [TrialFolder(trial, workdir) for trial in trials(settings, code.digests(settings))]


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
  distributed.raise_everywhere(lambda: pretraining.check_disk(asked))
  results.begin(workdir, settings)
  data.keep(settings, workdir)
  failed = queue.fill(grid, numbers, settings.time_budget, reporter)
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
    by_point = sorted(grid, key=lambda folder: points.index(folder.trial.point))
    records = [folder.records() for folder in by_point]
    finished = [some for folder, some in zip(by_point, records) if len(some) == len(folder.paths())]
    if finished:
      results.write(workdir, settings, list(itertools.chain(*finished)))
  return None if len(finished) == len(grid) else f'{len(finished)} of {len(grid)} trials are finished'
