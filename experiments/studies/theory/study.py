"""The theory experiment: every part in turn, kept as it ends; then the tables and a figure, from records alone."""

import pathlib

from experiments.analysis import figures
from experiments.records import results
from experiments.runtime.progress import Reporter
from experiments.studies import runner as parts_lib
from experiments.studies.theory import (
  appendix,
  impossibility,
  prevalence,
  problems,
  report,
  verification,
  verification_report,
)
from experiments.studies.theory.settings import TheorySettings


def check(settings: TheorySettings) -> None:
  """Any machine will do."""


def parts(settings: TheorySettings) -> dict[str, parts_lib.Part]:
  """The parts of the experiment, in order."""
  verify = lambda theorem: lambda settings, key, reporter: verification.verify(settings, theorem, key, reporter)
  return {
    **{f'verification-{theorem.name}': verify(theorem) for theorem in problems.THEOREMS},
    'impossibility': impossibility.run,
    'prevalence': prevalence.run,
    'appendix': appendix.run,
  }


def run(settings: TheorySettings, workdir: pathlib.Path, reporter: Reporter) -> None:
  """Runs the parts that are missing; what an interrupted run finished is read back."""
  parts_lib.run(settings, parts(settings), workdir, reporter)


def show(settings: TheorySettings, workdir: pathlib.Path, reporter: Reporter) -> None:
  """Prints the tables of the records and draws their figure."""
  records = results.load(workdir)
  report.show(report.study_tables(records), workdir, reporter)
  if any('temperature' in record for record in records):
    reporter.say(figures.saved(verification_report.temperature(records, settings.figure), workdir / 'temperature'))
