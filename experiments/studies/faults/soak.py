"""One long-lived process that runs trials, while others beside it are killed: what it takes, and what is left."""

from collections import Counter
from collections.abc import Sequence
import json
import pathlib
import re
import signal
import tempfile
import time
from typing import NamedTuple

import jax
import numpy as np
import scipy.stats

from experiments.runtime.progress import Reporter
from experiments.studies.faults import bench as bench_lib
from experiments.studies.faults.bench import Row
from experiments.studies.faults.processes import Run
from experiments.studies.faults.settings import FaultsSettings

_SECONDS_BETWEEN_LOOKS = 0.5
_PAGE = 4096
# Of what was seen, the part in which a process still compiles and fills its caches.
_WARM_UP = 1 / 3
_BLOCKS = 10
_FIRST = 3


class Sample(NamedTuple):
  """What the long-lived process has at a time: minutes, finished trials, MB resident, open files, threads."""

  minutes: float
  trials: int
  memory: float
  files: int
  threads: int


class Slope(NamedTuple):
  """What a trial adds on average, and the ends of its 95% interval; None where there are too few trials to tell."""

  slope: float | None
  low: float | None
  high: float | None


def run(settings: FaultsSettings, key: jax.Array, reporter: Reporter) -> list[Row]:
  """A row for the soak, one for each thing that has to stay flat, and one for each trial that is run again."""
  rows = _soaked(settings, key, reporter, settings.soak.minutes, '')
  if settings.mutants:
    shorter = settings.soak.minutes / 4
    rows += _soaked(settings, key, reporter, shorter, 'release of what a trial takes')
  return rows


def _soaked(settings: FaultsSettings, key: jax.Array, reporter: Reporter, minutes: float, without: str) -> list[Row]:
  with tempfile.TemporaryDirectory(prefix='faults-') as directory:
    workdir, logs = pathlib.Path(directory, 'work'), pathlib.Path(directory, 'logs')
    command = bench_lib.command(settings, workdir, f'--config.num_trials={settings.soak.num_trials}')
    long = Run([*command, f'--config.time_budget={minutes}'], logs, changed=[without])
    samples, kills = _watched(settings, key, reporter, long, command, workdir, minutes)
    ended = long.end(settings.most_seconds)
    lost = '' if not ended.status else f'status {ended.status}: {ended.last_words}'
    rows = [] if without else [_row(lost or _twice_or_lost(workdir), kills, samples)]
    most = {'memory': settings.soak.most_growth / 1000, 'files': settings.soak.most_more}
    most['threads'] = settings.soak.most_more
    for name, limit in most.items():
      found = slope(samples, name)
      row: Row = {'without': without, 'slope': found._asdict(), 'limit': limit}
      rows.append(bench_lib.row(f'soak: {name}', _not_flat(found, limit), **row))
    if not without:
      rows += _compared(settings, key, workdir, logs)
  return rows


def _not_flat(found: Slope, limit: float) -> str:
  """Why what a trial adds is not known to be below a limit, in words."""
  if found.high is None:
    return 'there were too few trials to tell'
  return '' if found.high < limit else f'a trial adds {found.slope:.3g}, from {found.low:.3g} to {found.high:.3g}'


def _watched(
  settings: FaultsSettings,
  key: jax.Array,
  reporter: Reporter,
  long: Run,
  command: list[str],
  workdir: pathlib.Path,
  minutes: float,
) -> tuple[list[Sample], int]:
  """Looks at the long-lived process until it is over, while one after the other begins on its workdir and is killed."""
  samples, kills, beside, until, total = list[Sample](), 0, None, 0.0, int(60 * minutes)
  with reporter.track('soak, seconds', total) as advance:
    while not long.is_over() and (now := time.monotonic()) < long.begun + total:
      if beside and (now > until or beside.is_over()):
        kills += _is_killed(beside, settings)
        beside = None
      if not beside and samples:
        beside = Run(command, workdir.parent / 'logs')
        share = float(jax.random.uniform(jax.random.fold_in(key, kills)))
        until = now + share * settings.soak.seconds_between_kills
      found = _sample(long, workdir)
      samples += [found] if found else []
      advance(int(now - long.begun), f'{samples[-1].trials if samples else 0} trials')
      time.sleep(_SECONDS_BETWEEN_LOOKS)
  kills += bool(beside and _is_killed(beside, settings))
  return samples, kills


def _is_killed(run: Run, settings: FaultsSettings) -> bool:
  """Kills it; whether it was not over before."""
  run.send(signal.SIGKILL)
  return run.end(settings.most_seconds).status == 128 + signal.SIGKILL


def _sample(run: Run, workdir: pathlib.Path) -> Sample | None:
  """None where it is over."""
  process = pathlib.Path('/proc', str(run.pid))
  try:
    memory = int((process / 'statm').read_text().split()[1]) * _PAGE / 1e6
    threads = int(re.findall(r'Threads:\s+(\d+)', (process / 'status').read_text())[0])
    files = len(list((process / 'fd').iterdir()))
  except (OSError, IndexError):
    return None
  trials = len(list(workdir.glob('trials/*/records.jsonl')))
  return Sample((time.monotonic() - run.begun) / 60, trials, memory, files, threads)


def slope(samples: Sequence[Sample], name: str) -> Slope:
  """What a trial adds to one of the fields of `Sample`: least squares over the means of blocks, behind the warm-up.

  Neighbouring samples are not independent; means of blocks nearly are, and the t interval is of these.
  """
  kept = samples[int(_WARM_UP * len(samples)) :]
  blocks = [block for block in np.array_split(np.array(kept, float), _BLOCKS) if len(block)] if kept else []
  trials = np.array([block[:, Sample._fields.index('trials')].mean() for block in blocks])
  values = np.array([block[:, Sample._fields.index(name)].mean() for block in blocks])
  if len(np.unique(trials)) < _FIRST:
    return Slope(None, None, None)
  # By hand: scipy.stats.linregress has no standard error for values that are all the same.
  beside = trials - trials.mean()
  found = float(beside @ values / (beside @ beside))
  residuals = values - values.mean() - found * beside
  error = np.sqrt(residuals @ residuals / (len(trials) - 2) / (beside @ beside))
  half = float(scipy.stats.t.ppf(0.975, len(trials) - 2) * error)
  return Slope(found, found - half, found + half)


def _row(lost: str, kills: int, samples: list[Sample]) -> Row:
  last = samples[-1]
  every = max(len(samples) // 200, 1)
  seen = [sample._asdict() for sample in samples[::every]]
  return bench_lib.row('soak', lost, kills=kills, trials=last.trials, minutes=last.minutes, samples=seen)


def _twice_or_lost(workdir: pathlib.Path) -> str:
  """What of the trials on disk these or the merged records have twice, or the latter not at all, in words."""
  found = Counter(line for line in (workdir / 'results.jsonl').read_text().splitlines())
  named = Counter(_name(json.loads(line)) for line in found.elements())
  twice = [name for name, count in named.items() if count > 1]
  kept = [json.loads(line) for path in workdir.glob('trials/*/records.jsonl') for line in path.read_text().splitlines()]
  each = Counter(row['trial_id'] for row in kept)
  whole = {_name(row) for row in kept if each[row['trial_id']] == max(each.values())}
  twice += [name for name, count in Counter(map(_name, kept)).items() if count > 1]
  if twice:
    return f'{len(twice)} records are there twice'
  missing = whole - set(named)
  return f'{len(missing)} records of finished trials are lost' if missing else ''


def _name(row: dict) -> tuple:
  return row['trial_id'], row['task'], row['model'], row['method']


def _compared(settings: FaultsSettings, key: jax.Array, workdir: pathlib.Path, logs: pathlib.Path) -> list[Row]:
  """Random trials of the soak, run again where nothing is killed: their records and arrays are equal."""
  records = [json.loads(line) for line in (workdir / 'results.jsonl').read_text().splitlines()]
  names = sorted({(row['trial'], row['trial_id']) for row in records})
  chosen = jax.random.choice(key, len(names), (min(settings.soak.num_compared, len(names)),), replace=False).tolist()
  rows = []
  for number, trial_id in (names[index] for index in chosen):
    alone = workdir.parent / 'alone'
    of_grid = f'--config.num_trials={settings.soak.num_trials}'
    command = bench_lib.command(settings, alone, of_grid, f'--trials={number}')
    ended = Run(command, logs).end(settings.most_seconds)
    lost = f'status {ended.status}: {ended.last_words}' if ended.status else ''
    lost = lost or bench_lib.differs(_of(alone, trial_id), _of(workdir, trial_id))
    rows.append(bench_lib.row('soak: a trial beside one that was left alone', lost))
  return rows


def _of(workdir: pathlib.Path, trial_id: str) -> dict[str, bytes]:
  """The records and tuned arrays of one trial."""
  where = workdir / 'trials' / trial_id
  found = [where / 'records.jsonl', *where.glob('tuned/*.npz')]
  return {str(path.relative_to(workdir)): path.read_bytes() for path in found}
