"""Kill -9 at a random time and at the beginning of every phase, once and again and again; then the same command."""

import pathlib
import signal

import jax

from experiments.runtime.progress import Reporter
from experiments.studies.faults import bench as bench_lib, watch
from experiments.studies.faults.bench import Bench, Row
from experiments.studies.faults.settings import FaultsSettings
from experiments.studies.faults.watch import Moment

_KILLED = 128 + signal.SIGKILL
# Draws of a random time until one is within the run.
_MOST_DRAWS = 10


def run(settings: FaultsSettings, key: jax.Array, reporter: Reporter) -> list[Row]:
  """A row for each kill, with the phase that it hit, and for each chain of kills."""
  key_times, key_moments, key_chains = jax.random.split(key, 3)
  with bench_lib.opened(settings) as bench, reporter.track('kills', settings.num_kills) as advance:
    rows, workdirs = list[Row](), bench.workdirs()
    at_time = settings.num_kills // 2
    for times in bench_lib.uniform(key_times, at_time, _MOST_DRAWS):
      for workdir, time in zip(workdirs, times.tolist()):
        phase = _killed_at(bench, workdir, time)
        if phase:
          break
      rows.append(_resumed(bench, workdir, 'kill -9 at a random time', phase))
      advance(len(rows), phase)
    draws = bench_lib.uniform(key_moments, settings.num_kills - at_time, 3)
    for moment, workdir in zip(bench_lib.moments(bench, draws, watch.PHASES), workdirs):
      rows.append(at_phase(bench, workdir, moment))
      advance(len(rows), moment.phase)
    for times in bench_lib.uniform(key_chains, settings.num_chains, settings.kills_of_chain):
      workdir = next(workdirs)
      phases = list(filter(None, (_killed_at(bench, workdir, time) for time in times.tolist())))
      rows.append(_resumed(bench, workdir, 'kill -9, run after run of one workdir', ', '.join(phases)))
    if settings.mutants:
      rows.append(_mutant(bench, next(workdirs)))
  return rows


def at_phase(bench: Bench, workdir: pathlib.Path, moment: Moment) -> Row:
  """One run that is killed at a moment, and the same command again."""
  ended = bench.run(workdir, moment=moment).end(bench.settings.most_seconds)
  lost = '' if ended.status == _KILLED else f'not killed: status {ended.status}'
  return _resumed(bench, workdir, 'kill -9 where a phase begins', moment.phase, lost)


def _killed_at(bench: Bench, workdir: pathlib.Path, time: float) -> str:
  """Kills a run at a time in units of the undisturbed one; the phase that it was in, '' where it was over before."""
  running = bench.run(workdir)
  if running.waited(time * bench.seconds):
    return ''
  running.send(signal.SIGKILL)
  ended = running.end(bench.settings.most_seconds)
  return watch.last(ended.phases) if ended.status == _KILLED else ''


def _resumed(bench: Bench, workdir: pathlib.Path, fault: str, phase: str, lost: str = '') -> Row:
  ended, why = bench.again(workdir)
  return bench_lib.row(fault, lost or why, phase=phase, undisturbed=bench.seconds)


def _mutant(bench: Bench, workdir: pathlib.Path) -> Row:
  """Killed where its second checkpoint begins to be saved, and resumed from the first without the moments."""
  bench.run(workdir, moment=Moment('save', 2, 0.0)).end(bench.settings.most_seconds)
  _, lost = bench.again(workdir, changed=['moments'])
  return bench_lib.row('kill -9 where a phase begins', lost, without='moments', phase='save')
