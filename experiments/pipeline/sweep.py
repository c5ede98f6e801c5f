"""The grid of an experiment: a list of trials, run in any order and anywhere, then the records of all."""

import collections
from collections.abc import Iterable, Sequence
import functools
import itertools
import pathlib

from experiments.own import code, data
from experiments.pipeline import queue, trial as trial_lib
from experiments.pipeline.queue import Unit
from experiments.records import results, trials as trials_lib
from experiments.records.trials import Name, TrialFolder
from experiments.runtime import distributed, locks
from experiments.runtime.progress import Reporter
from experiments.settings import config as config_lib
from experiments.settings.fields import SettingsError
from experiments.settings.grid import Settings
from experiments.settings.trial import trials


def folders(grid: Sequence[Settings], workdir: pathlib.Path, beside: Sequence[Settings] = ()) -> list[TrialFolder]:
  """The folder of every trial of one or several settings, in the order of `trials`.

  Each knows the trials that share its draws, of these settings and those `beside` them.
  """
  made, alike = trials(*grid, code=code.digests), collections.defaultdict[str, dict[str, None]](dict)
  for trial in [*made, *trials(*beside)]:
    alike[trial.draws_id][trial.id] = None
  return [TrialFolder(trial, workdir, tuple(alike[trial.draws_id])) for trial in made]


def units(folders: Sequence[TrialFolder], numbers: Iterable[int]) -> list[Unit]:
  """The units of work of the trials of these numbers."""
  made = []
  for number in numbers:
    folder = folders[number]
    missing, make = functools.partial(trials_lib.plan, folder), functools.partial(_make, folder)
    made.append(Unit(folder.directory, f'trial {number} ({folder.trial})', missing, make, folder.trial.label))
  return made


def _make(folder: TrialFolder, missing: list[Name], reporter: Reporter) -> None:
  with trials_lib.recording_time(folder, reporter):
    trial_lib.run(folder, missing, reporter)


def run(
  grid: Sequence[Settings], workdir: pathlib.Path, reporter: Reporter, numbers: Sequence[int] | None = None
) -> str | None:
  """Make the missing records of the numbered trials (None: all), and merge all finished trials.

  Returns what is left, as a sentence. The time budget, however short, ends no earlier than after one more checkpoint or
  trial. Raises UnitsFailed.
  """
  made = folders(grid, workdir, _earlier(grid, workdir, reporter))
  numbers = range(len(made)) if numbers is None else numbers
  asked = [made[number] for number in numbers]
  with locks.held(workdir, 'the merge of records', reporter):
    results.begin(workdir, grid)
  for settings in grid:
    data.keep(settings, workdir)
  failed = queue.fill(units(made, numbers), grid[0].time_budget, reporter)
  left = distributed.broadcast_from_process_0(lambda: merge(grid, workdir, reporter))
  if failed:
    raise queue.UnitsFailed(failed, left)
  # Otherwise what is left was not asked for.
  goes_on = left and any(folder.absent() for folder in asked)
  return f'{left}; rerun the same command to resume' if goes_on else left


def _earlier(grid: Sequence[Settings], workdir: pathlib.Path, reporter: Reporter) -> list[Settings]:
  """Other settings on record in a workdir; those that cannot be read are reported."""
  found = []
  for content in results.earlier(workdir, grid):
    try:
      settings = config_lib.from_record(content, {grid[0].experiment: type(grid[0])})
      code.digests(settings)
      found.append(settings)
    except SettingsError as error:
      reporter.say(
        f'records with other settings in {workdir} stay as they are, since their settings cannot be read: {error}'
      )
  return found


def merge(grid: Sequence[Settings], workdir: pathlib.Path, reporter: Reporter) -> str | None:
  """Merge all finished trials, by point, into the records of a workdir; return what is left, as a sentence.

  Finished trials of other settings on record follow, then records that lack their files. Processes that share the
  directory take turns, and one that has lost the lock writes nothing. An object store has no locks: there
  `--mode=merge` at the end finds what all have left. Without a finished trial the old records stay, with their table
  and figures.
  """
  with locks.held(workdir, 'the merge of records', reporter):
    every = [*grid, *_earlier(grid, workdir, reporter)]
    by_point = lambda settings: sorted(folders([settings], workdir), key=lambda folder: folder.trial.point.order)
    whole = lambda folder: records if len(records := folder.records()) == len(folder.paths()) else None
    runs = [[*filter(None, map(whole, by_point(settings)))] for settings in every]
    finished, total = sum(map(len, runs[: len(grid)])), len(trials(*grid))
    if finished:
      merged = [(settings, [*itertools.chain(*records)]) for settings, records in zip(every, runs)]
      results.write(workdir, merged)
  return None if finished == total else f'{finished} of {total} trials are finished'
