"""The grid of an experiment: a list of trials, run in any order and anywhere, then the records of all."""

from collections.abc import Iterable, Sequence
import contextlib
import functools
import pathlib

from experiments.own import data
from experiments.own.data import NOTHING, Own
from experiments.pipeline import pretraining, queue, trial as trial_lib
from experiments.pipeline.queue import Unit
from experiments.records import results, trials as trials_lib
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
  distributed.in_process_0(data.keep)(own.arrays, workdir)
  asked = units(made, range(len(made)) if numbers is None else numbers)
  return queue.run(grid, workdir, asked, lambda: _finished(grid, workdir, own), reporter)


def folders(grid: Sequence[Settings], workdir: pathlib.Path, own: Own = NOTHING) -> list[TrialFolder]:
  """The folder of every trial of one or several settings, in the order of `trials`."""
  return [TrialFolder(trial, workdir) for trial in trials(*grid, own=own.of)]


def units(folders: Sequence[TrialFolder], numbers: Iterable[int]) -> list[Unit]:
  """The units of work of the trials of these numbers."""
  made = []
  for number in numbers:
    folder = folders[number]
    missing, make = functools.partial(trials_lib.plan, folder), functools.partial(_make, folder)
    made.append(Unit(folder.directory, f'trial {number} ({folder.trial})', missing, make, folder.trial.label))
  return made


def _make(folder: TrialFolder, missing: list[list], reporter: Reporter) -> None:
  """Run a trial; at the end of the time budget its checkpoint is kept."""
  with contextlib.suppress(pretraining.OutOfTime):
    trial_lib.run(folder, [Name(*name) for name in missing], reporter)


def _finished(grid: Sequence[Settings], workdir: pathlib.Path, own: Own) -> tuple[results.Runs, str | None]:
  """The records of the finished trials of each settings, by point, and a sentence if some are not finished."""
  runs, done, count = results.Runs(), 0, 0
  for settings in grid:
    records = list[results.Record]()
    for folder in sorted(folders([settings], workdir, own), key=lambda folder: folder.trial.point.order):
      of_trial = folder.records()
      is_done = len(of_trial) == len(folder.paths())
      records += of_trial.values() if is_done else []
      done, count = done + is_done, count + 1
    runs.append((settings, records))
  return runs, None if done == count else f'{done} of {count} trials are finished'
