"""SIGTERM and SIGINT at every phase, twice at random times; status, time until the end, and the same command again."""

import pathlib
import signal
import time

import jax

from experiments.runtime.progress import Reporter
from experiments.studies.faults import bench as bench_lib, watch
from experiments.studies.faults.bench import Bench, Row
from experiments.studies.faults.settings import FaultsSettings
from experiments.studies.faults.watch import Moment

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# Between a signal and the next one of the same kind.
_SECONDS_BETWEEN = 0.05
_AT_ONCE = 1.0


def run(settings: FaultsSettings, key: jax.Array, reporter: Reporter) -> list[Row]:
  """A row for each signal, with the seconds from it to the end of the run."""
  with bench_lib.opened(settings) as bench, reporter.track('signals', 2 * settings.num_signals) as advance:
    rows, workdirs = list[Row](), bench.workdirs()
    for number, key_of in zip(_SIGNALS, jax.random.split(key)):
      key_moments, key_times = jax.random.split(key_of)
      draws = bench_lib.uniform(key_moments, settings.num_signals, 3)
      for moment in bench_lib.moments(bench, draws, watch.PHASES[1:], signal=number):
        rows.append(_at_phase(bench, next(workdirs), moment))
        advance(len(rows), moment.phase)
      for share in bench_lib.uniform(key_times, max(settings.num_signals // 4, 1)).tolist():
        rows.append(_twice(bench, next(workdirs), number, share))
    if settings.mutants:
      moment = Moment('pretraining', 1, 0.0, signal.SIGTERM)
      rows.append(_at_phase(bench, next(workdirs), moment, without='answers to signals'))
  return rows


def _at_phase(bench: Bench, workdir: pathlib.Path, moment: Moment, without: str = '') -> Row:
  ended = bench.run(workdir, moment=moment, changed=[without]).end(bench.settings.most_seconds)
  seconds = ended.ended - ended.signalled if ended.signalled else None
  lost, fault = '', signal.Signals(moment.signal).name
  if seconds is None or ended.status != 128 + moment.signal:
    lost = f'status {ended.status} after {fault}: {ended.last_words}'
  elif seconds > bench.settings.most_seconds_to_stop:
    lost = f'{seconds:.1f} s until it ended'
  elif 'Traceback' in ended.said:
    lost = 'a traceback'
  lost = lost or bench.again(workdir)[1]
  return bench_lib.row(fault, lost, without=without, phase=moment.phase, seconds=seconds)


def _twice(bench: Bench, workdir: pathlib.Path, number: int, share: float) -> Row:
  """Two signals, one after the other, at a random time: the second ends it at once."""
  running, name = bench.run(workdir), signal.Signals(number).name
  running.reached('measuring', 1)
  running.waited(share * bench.seconds)
  running.send(number)
  running.waited(_SECONDS_BETWEEN)
  running.send(number)
  second = time.monotonic()
  ended = running.end(bench.settings.most_seconds)
  seconds, lost = ended.ended - second, ''
  if ended.status not in (0, 128 + number):
    lost = f'status {ended.status}: {ended.last_words}'
  elif seconds > _AT_ONCE:
    lost = f'{seconds:.1f} s until it ended'
  lost = lost or bench.again(workdir)[1]
  return bench_lib.row(f'{name}, twice', lost, phase=watch.last(ended.phases), seconds=seconds)
