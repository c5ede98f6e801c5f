"""A run that was killed and goes on with another seed, other devices, other fields or another version."""

import json
import pathlib

import jax

from experiments.runtime.progress import Reporter
from experiments.studies.faults import bench as bench_lib
from experiments.studies.faults.bench import Bench, Row
from experiments.studies.faults.settings import FaultsSettings
from experiments.studies.faults.watch import Moment

_BAD_INPUT = 2
_TWO_DEVICES = '--xla_force_host_platform_device_count=2'


def run(settings: FaultsSettings, key: jax.Array, reporter: Reporter) -> list[Row]:
  """A row for each way in which the second command is another."""
  del key
  with bench_lib.opened(settings) as bench:
    workdirs = bench.workdirs()
    rows = [
      _other_trials(bench, next(workdirs), '--config.seed=1', 'another seed', 'seed 0 (here 1)'),
      _other_trials(bench, next(workdirs), '--config.bert.width=8', 'another width of BERT', '(here 8)'),
      _other_trials(bench, next(workdirs), '--config.pretrain.num_steps=20', 'fewer steps', '(here 20)'),
      _fewer(bench, next(workdirs)),
      _elsewhere(bench, next(workdirs), 'two devices'),
      _elsewhere(bench, next(workdirs), 'other XLA_FLAGS'),
      _elsewhere(bench, next(workdirs), 'another version of JAX'),
    ]
    if settings.mutants:
      without = 'environment warnings'
      rows.append(_elsewhere(bench, next(workdirs), 'another version of JAX', without=without))
    reporter.say(f'resuming: {len(rows)} ways')
  return rows


def _killed(bench: Bench, workdir: pathlib.Path) -> None:
  """Begins the run, and kills it between its first and its second checkpoint."""
  bench.run(workdir, moment=Moment('save', 2, 0.0)).end(bench.settings.most_seconds)


def _other_trials(bench: Bench, workdir: pathlib.Path, other: str, what: str, named: str) -> Row:
  """What decides bits is said, and names other trials, which leave the killed one as it was; each ends as it does
  alone."""
  _killed(bench, workdir)
  ended, alone = bench.run(workdir, other).end(bench.settings.most_seconds), bench.directory / f'alone{other}'
  expected = bench.run(alone, other).end(bench.settings.most_seconds)
  lost = f'status {ended.status}, {expected.status}: {ended.last_words}' if ended.status or expected.status else ''
  if not lost and named not in ended.said:
    lost = f'{named} is not said'
  found, others = bench_lib.results(workdir), bench_lib.results(alone)
  lost = lost or bench_lib.differs(others, {name: found.get(name, b'') for name in others})
  again, _ = bench.again(workdir)
  found = bench_lib.results(workdir)
  lost = lost or (again.last_words if again.status else '')
  lost = lost or bench_lib.differs(bench.left, {name: found.get(name, b'') for name in bench.left})
  return bench_lib.row(f'resumed with {what}', lost, said=ended.last_words)


def _fewer(bench: Bench, workdir: pathlib.Path) -> Row:
  """Another method alone, then all of them: what is there is not made again."""
  _killed(bench, workdir)
  ended = bench.run(workdir, "--config.methods=('head',)").end(bench.settings.most_seconds)
  lost = f'status {ended.status}: {ended.last_words}' if ended.status else ''
  if not lost and "(here ['head'])" not in ended.said:
    lost = 'methods are not said'
  lost = lost or bench.again(workdir)[1]
  return bench_lib.row('resumed with fewer methods', lost)


def _elsewhere(bench: Bench, workdir: pathlib.Path, what: str, without: str = '') -> Row:
  """What may decide bits and names no trial: refused, or said in words that name it."""
  _killed(bench, workdir)
  named, environment = 'devices', {'XLA_FLAGS': _TWO_DEVICES}
  if what == 'other XLA_FLAGS':
    named, environment = 'XLA_FLAGS', {'XLA_FLAGS': '--xla_cpu_enable_fast_math=false'}
  elif what == 'another version of JAX':
    named, environment = 'jax 0.0.1', {}
    for path in workdir.glob('pretrained/*/environment.jsonl'):
      rows = [json.loads(line) for line in path.read_text().splitlines()]
      for row in rows:
        row['packages']['jax'] = '0.0.1'
      path.write_text(''.join(json.dumps(row) + '\n' for row in rows))
  running = bench.run(workdir, environment=environment, changed=[without])
  ended, lost = running.end(bench.settings.most_seconds), ''
  if ended.status not in (0, _BAD_INPUT):
    lost = f'status {ended.status}: {ended.last_words}'
  elif named not in ended.said:
    lost = f'{named} is not named'
  is_refused = ended.status == _BAD_INPUT
  return bench_lib.row(f'resumed with {what}', lost, without=without, is_refused=is_refused)
