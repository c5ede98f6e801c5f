"""The grid of an experiment: every trial in turn, then the records, the table and the figure."""

import importlib.util
import pathlib
import tempfile

import jax

from experiments import figures, files, memory, pretraining, report, results, trial as trial_lib
from experiments.fields import require, SettingsError
from experiments.progress import Reporter
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
    pretraining.check(settings.bert)
  # In the directory itself or the one in which it would be made, so that nothing is left of a refusal.
  directory = pathlib.Path(settings.pretrained).absolute()
  try:
    with tempfile.TemporaryFile(dir=next(path for path in (directory, *directory.parents) if path.exists())):
      pass
  except OSError as error:
    require(False, 'pretrained', settings.pretrained, f'a writable directory ({error.strerror})')
  memory.check(settings)


def run(settings: Settings, workdir: pathlib.Path, reporter: Reporter) -> None:
  """Runs what is missing of the grid. The records of finished trials are read back, not made again."""
  reporter.say(memory.line(settings))
  grid = [
    trial_lib.Trial(settings, point, trial, workdir)
    for point in settings.grid()
    for trial in range(settings.num_trials)
  ]
  for index, trial in enumerate(grid):
    with reporter.part(index + 1, len(grid), f'{trial.point} trial {trial.trial}'):
      trial_lib.run(trial, reporter)
  records = [record for trial in grid for record in trial.records()]
  environments = [row for trial in grid for row in files.read_json_lines(trial.environment_path)]
  results.write(workdir, settings, records, environments)


def show(settings: Settings, workdir: pathlib.Path, reporter: Reporter) -> None:
  """Draws the table and the figure of a workdir from its records."""
  records = results.load(workdir)
  report.show(report.render(records, settings.figure.paper_overlay), workdir, reporter)
  for name in settings.figures:
    figure = getattr(figures, name)(records, settings.figure)
    if figure:
      reporter.say(figures.saved(figure, workdir / name))
