"""The grid of an experiment: every trial in turn, then the records, the table and the figure."""

import dataclasses
import importlib.metadata
import json
import pathlib
import platform
import subprocess
import sys

import jax

from experiments import checkpoints
from experiments import figures
from experiments import report
from experiments import results
from experiments import trial as trial_lib
from experiments.progress import Reporter
from experiments.settings import Settings

_PACKAGES = (
  'jax',
  'jaxlib',
  'flax',
  'optax',
  'orbax-checkpoint',
  'numpy',
  'scipy',
  'ml_collections',
  'absl-py',
  'matplotlib',
)


def run(settings: Settings, workdir: pathlib.Path, reporter: Reporter) -> None:
  """Runs what is missing of the grid. The records of finished trials are read back, not made again."""
  grid = [
    trial_lib.Trial(settings, num_states, trial, workdir)
    for num_states in settings.num_states
    for trial in range(settings.num_trials)
  ]
  if any(trial.missing() for trial in grid):
    checkpoints.write_whole(workdir / 'environment.json', json.dumps(environment(), indent=2) + '\n')
  for index, trial in enumerate(grid):
    with reporter.part(index + 1, len(grid), f'|H|={trial.num_states} trial {trial.trial}'):
      trial_lib.run(trial, reporter)
  checkpoints.write_whole(workdir / 'config.json', json.dumps(dataclasses.asdict(settings), indent=2) + '\n')
  results.collect(workdir, settings)


def show(settings: Settings, workdir: pathlib.Path, reporter: Reporter) -> None:
  """Draws the table and the figure of a workdir from its records."""
  records = results.load(workdir)
  overlay = settings.figure.paper_overlay
  table = report.table(records, overlay)
  reporter.console.print(table)
  checkpoints.write_whole(workdir / 'table.txt', report.render(records, overlay))
  paths = figures.save(figures.figure_3_left(records, settings.figure), workdir / 'figure_3_left')
  for name, path in [('records', workdir / results.FILE_NAME), ('table', workdir / 'table.txt')]:
    reporter.say(f'{name}: {path}')
  reporter.say(f'figure: {", ".join(str(path) for path in paths)}')


def environment() -> dict[str, object]:
  """What the numbers came from besides the config."""
  root = pathlib.Path(__file__).parent.parent
  git = lambda *words: subprocess.run(['git', '-C', root, *words], capture_output=True, text=True).stdout.strip()
  return {
    'python': platform.python_version(),
    'packages': {name: importlib.metadata.version(name) for name in _PACKAGES},
    'devices': [str(device.device_kind) for device in jax.devices()],
    'platform': platform.platform(),
    'commit': git('rev-parse', 'HEAD') or 'unknown',
    'uncommitted_changes': bool(git('status', '--porcelain')),
    'command': sys.argv,
  }
