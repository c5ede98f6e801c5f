"""The grid of an experiment: a list of trials, run in any order and anywhere, then the records of all."""

from collections.abc import Sequence
import contextlib
import functools
import pathlib

from experiments.own import data
from experiments.own.data import NOTHING, Own
from experiments.pipeline import pretraining, queue, trial as trial_lib
from experiments.pipeline.queue import Unit
from experiments.records import results
from experiments.records.trials import Name, TrialFolder
from experiments.runtime import distributed
from experiments.runtime.progress import Reporter
from experiments.settings.grid import Settings
from experiments.settings.trial import trials


def run(
  grid: Sequence[Settings],
  workdir: pathlib.Path,
  reporter: Reporter,
  numbers: Sequence[int] | None = None,
  own: Own = NOTHING,
) -> str | None:
  """Make the missing records of the numbered trials (None: all), and merge all finished trials.

  Returns what is left, as a sentence. Raises UnitsFailed.
  """
  made = folders(grid, workdir, own)
  distributed.in_process_0(data.keep)(grid, own, workdir)
  units = [_unit(number, made[number]) for number in (range(len(made)) if numbers is None else numbers)]
  return queue.run(grid, workdir, units, lambda: _finished(grid, made), reporter)


def folders(grid: Sequence[Settings], workdir: pathlib.Path, own: Own = NOTHING) -> list[TrialFolder]:
  """The folder of every trial of one or several settings, in the order of `trials`."""
  return [TrialFolder(trial, workdir) for trial in trials(*grid, own=data.given(own))]


def _unit(number: int, folder: TrialFolder) -> Unit:
  """A trial as a unit of work."""
  name, make = f'trial {number} ({folder.trial})', functools.partial(_make, folder)
  return Unit(folder.directory, name, folder.missing, make, folder.trial.label)


def _make(folder: TrialFolder, missing: list[list], reporter: Reporter) -> None:
  """Run a trial; at the end of the time budget its checkpoint is kept."""
  with contextlib.suppress(pretraining.OutOfTime):
    trial_lib.run(folder, [Name(*name) for name in missing], reporter)


def _finished(grid: Sequence[Settings], made: Sequence[TrialFolder]) -> tuple[results.Runs, str | None]:
  """The records of the finished trials of each settings, by point, and a sentence if some are not finished."""
  runs, count = results.Runs(), 0
  for settings in grid:
    rows = list[results.Record]()
    mine = [folder for folder in made if folder.trial.settings is settings]
    for folder in sorted(mine, key=lambda folder: folder.trial.point.order):
      if not folder.missing():
        count += 1
        rows += folder.records().values()
    runs.append((settings, rows))
  return runs, None if count == len(made) else f'{count} of {len(made)} trials are finished'
