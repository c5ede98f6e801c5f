"""The run that is made to fail, what it leaves when nothing happens to it, and what counts as lost."""

from collections.abc import Iterator, Sequence
import contextlib
import itertools
import pathlib
import shutil
import tempfile
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.studies.faults import watch
from experiments.studies.faults.processes import Ended, Run
from experiments.studies.faults.settings import FaultsSettings
from experiments.studies.faults.watch import Moment

Row = dict[str, Any]


class Bench(NamedTuple):
  """Where a family of faults is tried.

  Attributes:
    settings: of the campaign.
    directory: in which all of it lies, and which goes with it.
    reference: workdir of the run that nothing happens to.
    left: what that leaves that has to be equal.
    phases: how often each phase begins in it.
    seconds: that it takes.
  """

  settings: FaultsSettings
  directory: pathlib.Path
  reference: pathlib.Path
  left: dict[str, bytes]
  phases: dict[str, int]
  seconds: float

  def arguments(self, workdir: pathlib.Path, *more: str) -> list[str]:
    """The command line of the run, in a workdir."""
    return command(self.settings, workdir, *more)

  def run(self, workdir: pathlib.Path, *more: str, **how: Any) -> Run:
    """Begins it."""
    return Run(self.arguments(workdir, *more), self.directory / 'logs', **how)

  def workdirs(self) -> Iterator[pathlib.Path]:
    """New ones, of which each goes with the next."""
    for number in itertools.count():
      workdir = self.directory / f'work{number}'
      yield workdir
      shutil.rmtree(workdir, ignore_errors=True)

  def again(self, workdir: pathlib.Path, *more: str, **how: Any) -> tuple[Ended, str]:
    """The same command again, and why the result is lost; '' where it is equal to the reference."""
    ended = self.run(workdir, *more, **how).end(self.settings.most_seconds)
    return ended, self.lost(ended, workdir)

  def lost(self, ended: Ended, workdir: pathlib.Path) -> str:
    """Why the result of a run is lost; '' where it succeeded and is equal to the reference."""
    if ended.status:
      return f'status {ended.status}: {ended.last_words}'
    return differs(self.left, results(workdir))


def command(settings: FaultsSettings, workdir: pathlib.Path, *more: str) -> list[str]:
  """The command line of the run that is disturbed, with more fields; of a tuple each time adds an entry."""
  shared = [f'--config.compilation_cache={settings.compilation_cache}', f'--workdir={workdir}']
  return ['--config=prompt_vs_head:smoke', *(f'--config.{field}' for field in settings.disturbed), *shared, *more]


def results(workdir: pathlib.Path) -> dict[str, bytes]:
  """The records and tuned arrays of a workdir, by their paths in it."""
  found = [*workdir.glob('results.jsonl'), *workdir.glob('trials/*/tuned/*.npz')]
  return {str(path.relative_to(workdir)): path.read_bytes() for path in found}


def differs(expected: dict[str, bytes], found: dict[str, bytes]) -> str:
  """The first file that is not as expected, in words."""
  for name in sorted({*expected, *found}):
    if expected.get(name) != found.get(name):
      what = 'new' if name not in expected else 'another' if name in found else 'missing'
      return f'{name} is {what}'
  return ''


@contextlib.contextmanager
def opened(settings: FaultsSettings, names: Sequence[str] = ('warm', 'reference')) -> Iterator[Bench]:
  """Runs the reference once for each name, the last of which counts: by default twice, since the first time compiles.

  Raises RuntimeError where it fails, or differs from itself.
  """
  with tempfile.TemporaryDirectory(prefix='faults-') as directory:
    where, runs = pathlib.Path(directory), []
    for name in names:
      run = Run(command(settings, where / name), where / 'logs')
      ended = run.end(settings.most_seconds)
      runs.append((ended, results(where / name), ended.ended - run.begun))
    (_, first, _), (ended, left, seconds) = runs[0], runs[-1]
    if ended.status or not left or differs(first, left):
      raise RuntimeError(f'undisturbed, the run has status {ended.status} ({ended.last_words}) {differs(first, left)}')
    yield Bench(settings, where, where / names[-1], left, watch.counts(ended.phases), seconds)


def row(fault: str, lost: str, *, without: str = '', **measured: Any) -> Row:
  """One try of a fault: why it was lost, '' where it was survived; `without` names what was taken away on purpose."""
  return {'fault': fault, 'without': without, 'tried': 1, 'survived': int(not lost), 'lost': lost, **measured}


def uniform(key: jax.Array, count: int, *shape: int) -> np.ndarray:
  """So many rows of random numbers between 0 and 1."""
  return np.asarray(jax.random.uniform(key, (count, *shape)))


def moments(bench: Bench, draws: np.ndarray, phases: Sequence[str], **how: Any) -> list[Moment]:
  """For each row of three draws one of the phases in turn, the number of its beginning, and a delay of up to 20 ms,
  which is 0 for half of them."""
  found = []
  for index, (which, whether, delay) in enumerate(draws.tolist()):
    phase = phases[index % len(phases)]
    count = 1 + int(which * bench.phases[phase])
    found.append(Moment(phase, count, 0.02 * delay if whether < 0.5 else 0.0, **how))
  return found
