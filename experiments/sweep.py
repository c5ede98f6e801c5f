"""The grid of an experiment: every trial in turn, then the records, the table and the figure."""

import contextlib
import importlib.util
import itertools
import pathlib
import tempfile

import jax

from experiments import figures, files, memory, pretraining, report, results, timing, trial as trial_lib
from experiments.fields import require, SettingsError
from experiments.progress import Reporter
from experiments.results import Record
from experiments.settings import Settings

SETTINGS = Settings


def check(settings: Settings) -> None:
  """Raises SettingsError where this machine lacks what the settings ask for."""
  if settings.tensorboard and not importlib.util.find_spec('tensorboardX'):
    raise SettingsError('tensorboard is True, which needs tensorboardX; valid is False, or the extra tensorboard')
  available, wanted, batch_size = len(jax.devices()), settings.num_devices, settings.pretrain.batch_size
  require(wanted <= available, 'num_devices', wanted, f'at most {available}, or 0 for all')
  used = wanted or available
  require(batch_size % used == 0, 'pretrain.batch_size', batch_size, f'a multiple of the {used} devices')
  if 'bert' in settings.models:
    pretraining.check(settings.bert, 'bert')
  # In the directory itself or the one in which it would be made, so that nothing is left of a refusal.
  directory = pathlib.Path(settings.pretrained).absolute()
  try:
    with tempfile.TemporaryFile(dir=next(path for path in (directory, *directory.parents) if path.exists())):
      pass
  except OSError as error:
    require(False, 'pretrained', settings.pretrained, f'a writable directory ({error.strerror})')
  memory.check(settings)


def run(settings: Settings, workdir: pathlib.Path, reporter: Reporter) -> str | None:
  """Runs what is missing of the grid. The records of finished trials are read back, not made again.

  Where the time budget ends first, the records are those of the trials that are finished, and what is left is returned
  in a sentence. However short, it ends no earlier than with a checkpoint or a trial more than there was.
  """
  reporter.say(memory.line(settings))
  points, numbers = settings.grid(), range(settings.num_trials)
  # By trial first: wherever it stops, no point is ahead of another by more than one.
  grid = [trial_lib.Trial(settings, point, trial, workdir) for trial in numbers for point in points]
  fill({str(trial): trial for trial in grid}, settings.time_budget, reporter)
  finished = [[trial for trial in grid if trial.point == point and not trial.missing()] for point in points]
  trials = list(itertools.chain(*finished))
  write(workdir, settings, trials, [record for trial in trials for record in trial.records()], reporter)
  if len(trials) == len(grid):
    return None
  counts = ', '.join(f'{point}: {len(of_point)}' for point, of_point in zip(points, finished))
  return f'{len(trials)} of {len(grid)} trials are finished ({counts}); the same command goes on'


def fill(grid: dict[str, trial_lib.Trial], time_budget: float, reporter: Reporter) -> None:
  """Runs the trials, each by its name, until all are done or the budget ends."""
  with contextlib.suppress(pretraining.OutOfTime):
    for index, (name, trial) in enumerate(grid.items()):
      was_missing = trial.missing()
      with reporter.part(index + 1, len(grid), name):
        trial_lib.run(trial, reporter)
      if was_missing and reporter.clock.is_past(time_budget):
        break


def write(
  workdir: pathlib.Path, settings: Settings, trials: list[trial_lib.Trial], records: list[Record], reporter: Reporter
) -> None:
  """Replaces the records of a workdir, with what stands beside them of the trials that they are of.

  Without a trial all is left as it is, so that table and figures of before keep their records.
  """
  if not trials:
    if results.load(workdir):
      reporter.say(f'no trial of these settings is finished; {workdir} keeps the records of others')
    return
  environments = [row for trial in trials for row in files.read_json_lines(trial.environment_path)]
  results.write(workdir, settings, records, environments)
  timings = [row for trial in trials for row in files.read_json_lines(trial.timing_path)]
  files.write_json_lines(workdir / timing.FILE_NAME, timings)


def show(settings: Settings, workdir: pathlib.Path, reporter: Reporter) -> None:
  """Draws the table and the figure of a workdir from its records, if it has any."""
  records = results.load(workdir)
  if not records:
    return
  report.show(report.render(records, settings.figure.paper_overlay), workdir, reporter)
  for name in settings.figures:
    figure = getattr(figures, name)(records, settings.figure)
    if figure:
      reporter.say(figures.saved(figure, workdir / name))
