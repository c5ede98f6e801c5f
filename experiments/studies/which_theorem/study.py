"""Which theorem explains Figure 3 (left): every part in turn, kept as it ends; then tables and figures from records."""

import pathlib

from experiments.analysis import figures, report as report_lib
from experiments.pipeline import pretraining
from experiments.records import results
from experiments.runtime.progress import Reporter
from experiments.studies import runner as parts_lib
from experiments.studies.which_theorem import certificate, linearity, prompts, prompts_report, report
from experiments.studies.which_theorem.settings import WhichTheoremSettings

PARTS: dict[str, parts_lib.Part] = {'linearity': linearity.run, 'prompts': prompts.run, 'kl': certificate.run}


def check(settings: WhichTheoremSettings) -> None:
  """Raises SettingsError where this machine lacks what the settings ask for."""
  pretraining.check(settings.bert, 'bert')
  pretraining.check_mesh(settings)


def run(settings: WhichTheoremSettings, workdir: pathlib.Path, reporter: Reporter) -> None:
  """Runs the parts that are missing; what an interrupted run finished is read back."""
  parts_lib.run(settings, PARTS, workdir, reporter)


def show(settings: WhichTheoremSettings, workdir: pathlib.Path, reporter: Reporter) -> None:
  """Prints the tables of the records and draws their figures."""
  records = results.load(workdir)
  report_lib.show(report.render(records) + prompts_report.render(records), workdir, reporter)
  for name, figure in report.drawn(records, settings.figure).items():
    reporter.say(figures.saved(figure, workdir / name))
