"""The run that is disturbed, what it leaves when nothing happens to it, and how a scenario is lost."""

from collections.abc import Callable
import contextlib
import json
import os
import pathlib
import shutil
import time
from typing import Any, NamedTuple
import zipfile

import numpy as np

from .processes import Moment, PHASES, Run


class Lost(Exception):
  """A run failed its scenario; the message names the fault."""


class Scenario(NamedTuple):
  """A row of the table.

  Attributes:
    kind: of fault.
    name: of this one.
    disturb: (bench, workdir) -> what was said; raises Lost. The same command is started after it.
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
    self.left = results(self.reference)
    self.check_left(directory / 'warm')

  def run(self, workdir, **how):
    """Start the run in a workdir."""
    fields = [f'--config.{field}' for field in self.fields]
    shared = ['--config.pretrained=', '--config.fast_compilation', f'--workdir={workdir}']
    shared += [f'--config.compilation_cache={os.environ["JAX_COMPILATION_CACHE_DIR"]}']
    return Run(['--config=prompt_vs_head:smoke', *fields, *shared], self.directory / 'logs', **how)

  def moment(self, phase, signal):
    """The beginning of a phase in the middle of all its beginnings."""
    return Moment(phase, 1 + (self.phases[phase] - 1) // 2, signal)

  def check_left(self, workdir):
    """Raise Lost if the results of a workdir differ from the reference."""
    found = results(workdir)
    for name, value in self.left.items():
      check(found.get(name) == value, f'{name} is {"another" if name in found else "missing"}')

  def lost(self, scenario):
    """The fault that a scenario shows; '' if the run survives it."""
    workdir = self.directory / 'work'
    shutil.rmtree(workdir, ignore_errors=True)
    workdir.mkdir()
    try:
      said = scenario.disturb(self, workdir / 'run')
      ended = self.run(workdir / 'run').end()
      expect(ended, 0)
      self.check_left(workdir / 'run')
      said += ended.said
      check(scenario.says in said, f'{scenario.says!r} is not said')
      kept = len(list(workdir.rglob('*.corrupt')))
      check(scenario.corrupt in (None, kept), f'{kept} files are renamed to .corrupt')
      check('Traceback' not in said, 'there is a traceback')
      check(not [*workdir.rglob('.*.partial')], 'a partial file is left')
    except Lost as lost:
      return str(lost)
    return ''


def check(is_well, why):
  """Raise Lost with the message `why` unless `is_well`."""
  if not is_well:
    raise Lost(why)


def expect(ended, status):
  """Raise Lost, with the run's last line, if its exit status is not `status`."""
  lines = [line for line in ended.said.splitlines() if line.strip()]
  check(ended.status == status, f'status {ended.status}: {lines[-1] if lines else "nothing"}')


def results(workdir) -> dict[str, Any]:
  """The merged records, without the environments that they come from, and the bits of each tuned array."""
  found: dict[str, Any] = {'results.jsonl': [{**row, 'environment': ''} for row in rows(workdir / 'results.jsonl')]}
  for path in sorted(workdir.glob('trials/*/*.npz')):
    where = f'{path.parent.name}/{path.name}'
    try:
      with np.load(path, allow_pickle=False) as arrays:
        for name, array in arrays.items():
          found[f'{where}:{name}'] = array.dtype.str, array.shape, array.tobytes()
    except (ValueError, EOFError, zipfile.BadZipFile):
      found[where] = 'torn'
  return found


def rows(path) -> list[dict[str, Any]]:
  """The rows of a file of JSON lines, none where there is no such file, or it is torn."""
  with contextlib.suppress(OSError, ValueError):
    return [json.loads(line) for line in path.read_text().splitlines()]
  return []
