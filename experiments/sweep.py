"""The grid of an experiment: every trial in turn, then the records, the table and the figure."""

from collections.abc import Callable
import importlib.util
import pathlib

import jax
import matplotlib.figure

from experiments import checkpoints
from experiments import figures
from experiments import report
from experiments import results
from experiments import trial as trial_lib
from experiments.progress import Reporter
from experiments.results import Record
from experiments.settings import FigureSettings
from experiments.settings import Settings
from experiments.settings import SettingsError

# The figures of each experiment, by file name.
FIGURES: dict[str, dict[str, Callable[[list[Record], FigureSettings], matplotlib.figure.Figure | None]]] = {
  'prompt_vs_head': {'figure_3_left': figures.figure_3_left},
  'memory_vs_vanilla': {'figure_3_right': figures.figure_3_right},
  'memory_cells': {'memory_cells': figures.memory_cells, 'attention': figures.attention},
}


def check(settings: Settings) -> None:
  """Raises SettingsError where this machine lacks what the settings ask for."""
  if settings.tensorboard and not importlib.util.find_spec('tensorboardX'):
    raise SettingsError('tensorboard is True, which needs tensorboardX; valid is False, or the extra tensorboard')
  available = len(jax.devices())
  if settings.num_devices > available:
    raise SettingsError(f'num_devices is {settings.num_devices}; valid is at most {available}, or 0 for all')
  used, batch_size = settings.num_devices or available, settings.pretrain.batch_size
  if batch_size % used:
    raise SettingsError(f'pretrain.batch_size is {batch_size}; valid is a multiple of the {used} devices')
  try:
    pathlib.Path(settings.pretrained).mkdir(parents=True, exist_ok=True)
  except OSError as error:
    valid = f'a writable directory ({error.strerror})'
    raise SettingsError(f'pretrained is {settings.pretrained!r}; valid is {valid}')


def run(settings: Settings, workdir: pathlib.Path, reporter: Reporter) -> None:
  """Runs what is missing of the grid. The records of finished trials are read back, not made again."""
  grid = [
    trial_lib.Trial(settings, point, trial, workdir)
    for point in settings.grid()
    for trial in range(settings.num_trials)
  ]
  for index, trial in enumerate(grid):
    with reporter.part(index + 1, len(grid), f'{trial.point} trial {trial.trial}'):
      trial_lib.run(trial, reporter)
  records = [record for trial in grid for record in trial.records()]
  environments = [row for trial in grid for row in checkpoints.read_json_lines(trial.environment_path)]
  results.write(workdir, settings, records, environments)


def show(settings: Settings, workdir: pathlib.Path, reporter: Reporter) -> None:
  """Draws the table and the figure of a workdir from its records."""
  records = results.load(workdir)
  overlay = settings.figure.paper_overlay
  table = report.render(records, overlay)
  reporter.show(table)
  checkpoints.write_whole(workdir / 'table.txt', table)
  for name, path in [('records', workdir / results.FILE_NAME), ('table', workdir / 'table.txt')]:
    reporter.say(f'{name}: {path}')
  for name, draw in FIGURES[settings.experiment].items():
    figure = draw(records, settings.figure)
    if figure:
      reporter.say(f'figure: {", ".join(str(path) for path in figures.save(figure, workdir / name))}')
