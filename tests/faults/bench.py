"""The run that is disturbed, what it leaves when nothing happens to it, and what a scenario must not change."""

from collections.abc import Callable
import pathlib
import shutil
import time
from typing import NamedTuple

from run_cases import CHEAP, made

from .processes import Moment, PHASES, Run


class Scenario(NamedTuple):
  """A row of the table.

  Attributes:
    kind: of fault.
    name: of this one.
    disturb: (bench, workdir) -> what was said. The same command is started after it.
    says: what has to be said then, or by the same command after it.
    corrupt: how many files have to be kept as NAME.corrupt; None: any number.
  """

  kind: str
  name: str
  disturb: Callable[['Bench', pathlib.Path], str]
  says: str = ''
  corrupt: int | None = None


class Bench:
  """A finished reference, and runs of the same command in other workdirs of one directory."""

  def __init__(self, directory, fields):
    self.directory, self.fields, self.reference = directory, fields, directory / 'reference'
    # The first one compiles.
    for workdir in (directory / 'warm', self.reference):
      begun = time.monotonic()
      ended = self.run(workdir).end()
      expect(ended, 0)
      self.seconds = ended.time - begun
    self.phases = {phase: ended.phases.count(phase) for phase in PHASES}
    self.check_left(directory / 'warm')

  def run(self, workdir, **how):
    """Start the run in a workdir."""
    fields = [f'--config.{field}' for field in self.fields]
    words = ['--config=prompt_vs_head:smoke', *fields, *CHEAP, f'--workdir={workdir}']
    return Run(words, self.directory / 'logs', **how)

  def moment(self, phase, signal):
    """The beginning of a phase in the middle of all its beginnings."""
    return Moment(phase, 1 + (self.phases[phase] - 1) // 2, signal)

  def check_left(self, workdir):
    """The results of a workdir are those of the reference."""
    assert made(workdir) == made(self.reference)

  def check(self, scenario):
    """What a scenario disturbs goes on to the results of the reference."""
    workdir = self.directory / 'work'
    shutil.rmtree(workdir, ignore_errors=True)
    workdir.mkdir()
    said = scenario.disturb(self, workdir / 'run')
    ended = self.run(workdir / 'run').end()
    expect(ended, 0)
    self.check_left(workdir / 'run')
    said += ended.said
    assert scenario.says in said and 'Traceback' not in said, said
    assert scenario.corrupt in (None, len(list(workdir.rglob('*.corrupt'))))
    assert not [*workdir.rglob('.*.partial')]


def expect(ended, status):
  assert ended.status == status, ended.said
