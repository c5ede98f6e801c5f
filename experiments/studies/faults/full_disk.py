"""A small tmpfs that is too small from the start, or fills up on the way; then there is room, and the same command."""

from collections.abc import Iterator
import contextlib
import os
import pathlib
import shutil
import signal
import subprocess

import jax

from experiments.runtime.progress import Reporter
from experiments.studies.faults import bench as bench_lib
from experiments.studies.faults.bench import Bench, Row
from experiments.studies.faults.settings import FaultsSettings
from experiments.studies.faults.watch import Moment

# Of what the run leaves: what is there for one that fills the disk by itself, and for one whose disk is filled.
_TOO_SMALL, _ENOUGH = 0.5, 4.0
_SPARE = 2**20
_BAD_INPUT = 2
# From the end of the run, in phases: where its records are merged.
_LAST_WRITES = 13
_PAGE = 4096


class NotPermitted(Exception):
  """This process may not mount, as its text says."""


def run(settings: FaultsSettings, key: jax.Array, reporter: Reporter) -> list[Row]:
  """A row for each disk; one that says why, with none tried, where no tmpfs can be mounted."""
  with bench_lib.opened(settings) as bench:
    try:
      return _rows(bench, key, reporter)
    except NotPermitted as error:
      return [{**bench_lib.row('a full disk', ''), 'tried': 0, 'survived': 0, 'why': str(error)}]


def _rows(bench: Bench, key: jax.Array, reporter: Reporter) -> list[Row]:
  rows, number, taken = list[Row](), bench.settings.num_full, _size(bench.reference)
  draws = bench_lib.uniform(key, number, 3)
  with reporter.track('full disks', number + 1) as advance:
    rows.append(_too_small(bench, int(_TOO_SMALL * taken)))
    advance(len(rows), '')
    for moment in bench_lib.moments(bench, draws, ('pretraining', 'save', 'tuning', 'writing')):
      rows.append(_filled(bench, moment.phase, moment.number, int(_ENOUGH * taken) + _SPARE))
      advance(len(rows), moment.phase)
  if bench.settings.mutants:
    rows.append(_too_small(bench, int(_TOO_SMALL * taken), without='estimate of room'))
    merging = bench.phases['writing'] - _LAST_WRITES
    rows.append(_filled(bench, 'writing', merging, int(_ENOUGH * taken) + _SPARE, without='errors of writing'))
  return rows


def _too_small(bench: Bench, size: int, without: str = '') -> Row:
  """The run has to be refused before it writes anything."""
  with _mounted(bench, size) as disk:
    ended = bench.run(disk / 'work', changed=[without]).end(bench.settings.most_seconds)
    written = [path for path in disk.rglob('*') if path.is_file()]
  lost = '' if ended.status == _BAD_INPUT else f'status {ended.status}: {ended.last_words}'
  lost = lost or (f'{len(written)} files are there' if written else '')
  return bench_lib.row('a disk too small from the start', lost, without=without, said=ended.last_words)


def _filled(bench: Bench, phase: str, count: int, size: int, without: str = '') -> Row:
  """Fills the disk while the run is held where a phase begins, lets it end, makes room, and runs it again."""
  moment = Moment(phase, count, 0.0, signal.SIGSTOP)
  with _mounted(bench, size) as disk:
    running, ballast = bench.run(disk / 'work', moment=moment, changed=[without]), disk / 'ballast'
    running.reached(phase, count)
    _fill(ballast)
    running.send(signal.SIGCONT)
    ended = running.end(bench.settings.most_seconds)
    # Where nothing was left to be written the disk was filled too late to be felt.
    is_felt = bool(bench.lost(ended, disk / 'work'))
    ballast.unlink()
    lost = _unclear(ended.status, ended.said) if is_felt else ''
    lost = lost or bench.again(disk / 'work')[1]
  return bench_lib.row(
    'a disk that fills up', lost, without=without, phase=phase, is_felt=is_felt, said=ended.last_words
  )


def _unclear(status: int, said: str) -> str:
  """What is wrong with how a run failed; '' where it says so, and why, in words."""
  if not 0 < status < 128:
    return f'status {status}'
  return 'a traceback' if 'Traceback' in said else ''


def _fill(path: pathlib.Path) -> None:
  with contextlib.suppress(OSError), open(path, 'ab', 0) as file:
    # At once, and then whatever is left or becomes free.
    os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(path.parent).free)
    while True:
      file.write(bytes(_PAGE))


def _size(directory: pathlib.Path) -> int:
  """Bytes of all files, in whole pages."""
  return sum(-(-path.stat().st_size // _PAGE) * _PAGE for path in directory.rglob('*') if path.is_file())


@contextlib.contextmanager
def _mounted(bench: Bench, size: int) -> Iterator[pathlib.Path]:
  """A tmpfs of so many bytes; raises NotPermitted."""
  disk = bench.directory / 'disk'
  disk.mkdir(exist_ok=True)
  command = ['mount', '-t', 'tmpfs', '-o', f'size={size}', 'none', str(disk)]
  try:
    subprocess.run(command, check=True, capture_output=True, text=True)
  except (OSError, subprocess.CalledProcessError) as error:
    raise NotPermitted(f'no tmpfs could be mounted ({getattr(error, "stderr", "") or error})'.strip())
  try:
    yield disk
  finally:
    subprocess.run(['umount', '-l', str(disk)], check=True)
