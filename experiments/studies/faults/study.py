"""The campaign: each family of faults in turn, kept as it ends; then tables and a figure from records."""

import pathlib

from experiments.analysis import figures
from experiments.analysis.report import show as show_text
from experiments.records import results
from experiments.runtime.progress import Reporter
from experiments.studies import runner as parts_lib
from experiments.studies.faults import (
  damage,
  full_disk,
  kills,
  not_finite,
  races,
  refused,
  report,
  resuming,
  signals,
  soak,
)
from experiments.studies.faults.settings import FaultsSettings

SETTINGS = FaultsSettings

PARTS: dict[str, parts_lib.Part] = {
  'inputs': refused.run,
  'kills': kills.run,
  'damage': damage.run,
  'full_disk': full_disk.run,
  'races': races.run,
  'signals': signals.run,
  'not_finite': not_finite.run,
  'resuming': resuming.run,
  'soak': soak.run,
}


def check(settings: FaultsSettings) -> None:
  """Any machine that has processes can run it."""


def run(settings: FaultsSettings, workdir: pathlib.Path, reporter: Reporter) -> None:
  """Runs the families that are asked for and missing."""
  parts_lib.run(settings, {name: PARTS[name] for name in settings.families}, workdir, reporter)


def show(settings: FaultsSettings, workdir: pathlib.Path, reporter: Reporter) -> None:
  """Prints the tables of the records and draws their figure."""
  records = results.load(workdir)
  show_text(report.render(records), workdir, reporter)
  figure = report.draw(records, settings.figure)
  if figure:
    reporter.say(figures.saved(figure, workdir / 'faults'))
