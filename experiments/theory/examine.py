"""A user's own HMM and task: which assumptions hold, and what the constructions that apply give."""

import pathlib

import jax

from experiments import checkpoints
from experiments import report
from experiments import results
from experiments.environment import environment
from experiments.progress import Reporter
from experiments.theory import examination
from experiments.theory import hmm_file
from experiments.theory.settings import ExamineSettings
from hmm_jax.sharding import exact_device

SETTINGS = ExamineSettings


def check(settings: ExamineSettings) -> None:
  """Raises SettingsError where the user's file is not what it should be."""
  hmm_file.load(settings.hmm_file)


def run(settings: ExamineSettings, workdir: pathlib.Path, reporter: Reporter) -> None:
  """Examines the file, anew on every call."""
  reporter.say(f'examining {settings.hmm_file}')
  with jax.default_device(exact_device()):
    records = examination.report(
      hmm_file.load(settings.hmm_file),
      settings.thresholds,
      max_nodes=settings.max_nodes,
      tolerance=settings.stationarity_tolerance,
      margin=settings.margin,
      max_sequences=settings.max_sequences,
      num_sampled=settings.num_sampled,
      sampled_length=settings.sampled_length,
      key=jax.random.key(settings.seed),
    )
  results.write(workdir, settings, records, [environment([exact_device()])])


def show(settings: ExamineSettings, workdir: pathlib.Path, reporter: Reporter) -> None:
  """Prints the tables of the records."""
  del settings
  text = '\n'.join(report.as_text(table) for table in examination.tables(results.load(workdir)))
  reporter.show(text)
  checkpoints.write_whole(workdir / 'table.txt', text)
  for name, path in (('records', workdir / results.FILE_NAME), ('table', workdir / 'table.txt')):
    reporter.say(f'{name}: {path}')
