"""The theory experiment: every part in turn, kept as it ends; then the tables, from records alone."""

import pathlib

from experiments import files, parts as parts_lib, results
from experiments.progress import Reporter
from experiments.theory import impossibility, report, verification
from experiments.theory.settings import TheorySettings

SETTINGS = TheorySettings


def check(settings: TheorySettings) -> None:
  """Any machine will do."""


def parts(settings: TheorySettings) -> dict[str, parts_lib.Part]:
  """The parts of the experiment, in order."""
  verify = lambda theorem: lambda settings, key, reporter: verification.verify(settings, theorem, key, reporter)
  return {
    **{f'verification-{theorem.name}': verify(theorem) for theorem in verification.theorems(settings)},
    'impossibility': impossibility.run,
  }


def run(settings: TheorySettings, workdir: pathlib.Path, reporter: Reporter) -> None:
  """Runs the parts that are missing; what an interrupted run finished is read back."""
  parts_lib.run(settings, parts(settings), workdir, reporter)


def show(settings: TheorySettings, workdir: pathlib.Path, reporter: Reporter) -> None:
  """Prints the tables of the records."""
  records = results.load(workdir)
  made = files.read_json_lines(workdir / results.ENVIRONMENT_NAME)
  seconds = {row['part']: row['seconds'] for row in made}
  report.show(report.of_study(records, seconds, settings.margin), workdir, reporter)
