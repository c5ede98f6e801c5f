"""The table: what is done to a run, and what has to be said. Bad inputs are in bad_inputs.py."""

import contextlib
import re
import shutil
import signal
import time

from . import bench as bench_lib
from .bench import check, expect, Scenario
from .processes import PHASES

_RECORD, _ARRAYS, _STEP = 'trials/*/*-task0.json', 'trials/*/*-task1.npz', 'pretrained/*/checkpoints/40'
_DIVERGED, _KILLED = 3, 128 + signal.SIGKILL
_MOST_SECONDS_TO_STOP = 60.0


def killed_at(phase):
  """kill -9 where a phase begins."""

  def disturb(bench, workdir):
    expect(bench.run(workdir, moment=bench.moment(phase, 0.5, signal.SIGKILL)).end(), _KILLED)
    return ''

  return disturb


def flip(path):
  """A bit of the last digit of JSON, which stays JSON; of the byte in the middle of another file."""
  content = bytearray(path.read_bytes())
  digits = [found.start() for found in re.finditer(rb'[0-9]', content)] if path.suffix.startswith('.json') else []
  content[digits[-1] if digits else len(content) // 2] ^= 1
  path.write_bytes(content)


def truncate(path):
  """To a third: half of two lines may be one line that is whole."""
  path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])


def empty(path):
  path.write_bytes(b'')


def delete(path):
  path.unlink()


def damaged(pattern, how, is_finished=True):
  """Damage every file of a pattern in a copy of the reference; if not finished, as it was before tuning."""

  def disturb(bench, workdir):
    shutil.copytree(bench.reference, workdir)
    if not is_finished:
      shutil.rmtree(workdir / 'trials')
      (workdir / 'results.jsonl').unlink()
    found = sorted(workdir.glob(pattern))
    check(found, f'there is no {pattern}')
    for path in found:
      how(path)
    return ''

  return disturb


def signalled(number, phase):
  """A signal where a phase begins: its status, in time, and what is done is left."""

  def disturb(bench, workdir):
    moment = bench.moment(phase, 0.5, signal.SIGSTOP)
    running = bench.run(workdir, moment=moment)
    running.reached(*moment[:2])
    sent = time.monotonic()
    running.send(number)
    running.send(signal.SIGCONT)
    ended = running.end()
    expect(ended, 128 + number)
    check(ended.time - sent < _MOST_SECONDS_TO_STOP, f'{ended.time - sent:.1f} s until it ended')
    steps = list(workdir.glob('pretrained/*/checkpoints/*/checksums.json'))
    has_begun = bench.phases['save'] and phase in ('pretraining', 'save', 'tuning')
    check(steps or not has_begun, 'no checkpoint is left')
    return ended.said

  return disturb


def together(wait):
  """Two runs on one workdir, the second after a share of the time of one: each model and trial is made once."""

  def disturb(bench, workdir):
    first = bench.run(workdir)
    first.process.join(wait * bench.seconds)
    ended = [bench.run(workdir).end(), first.end()]
    for each in ended:
      expect(each, 0)
    bench.check_left(workdir)
    for path in workdir.glob('*/*/timing.jsonl'):
      check(len(bench_lib.rows(path)) == 1, f'{path.parent.name} was made twice')
    return ''.join(each.said for each in ended)

  return disturb


def disk_filled(phase):
  """The disk is filled while the run is held where a phase begins; it ends with a sentence, and then there is room."""

  def disturb(bench, workdir):
    moment = bench.moment(phase, 0.5, signal.SIGSTOP)
    with bench_lib.mounted(workdir.parent / 'disk', 2**24) as disk:
      running = bench.run(disk / 'work', moment=moment)
      running.reached(*moment[:2])
      with contextlib.suppress(OSError), open(disk / 'ballast', 'ab', 0) as file:
        while True:
          file.write(bytes(4096))
      running.send(signal.SIGCONT)
      ended = running.end()
      expect(ended, *range(1, 128))
      # Where there is room.
      shutil.copytree(disk / 'work', workdir)
    return ended.said

  return disturb


def not_finite(bench, workdir):
  """In the first epoch of tuning: its trial ends with status 3, and the other one is done."""
  ended = bench.run(workdir, poisoned=True).end()
  expect(ended, _DIVERGED)
  found, expected = (bench_lib.results(each)['results.jsonl'] for each in (workdir, bench.reference))
  others = [row for row in expected if row['trial_id'] != expected[0]['trial_id']]
  check(found == others, 'the other trial is not done')
  return ended.said


def fewer_tasks(bench, workdir):
  """A run of the first task of each trial ends."""
  return bench.run(workdir, '--config.tasks_per_trial=1').end().said


def _kills():
  for phase in PHASES:
    yield Scenario('kills', f'as {phase} begins', killed_at(phase))


def _damage():
  """A file that is missing is made again, and need not be named."""
  for how in (flip, truncate, empty, delete):
    bad, name = how is not delete, how.__name__
    yield Scenario('damage', f'{name}: records', damaged(_RECORD, how), '-task0.json' * bad, 4 * bad)
    # With its array a record is renamed.
    yield Scenario('damage', f'{name}: arrays', damaged(_ARRAYS, how), '-task1.npz', 4 if bad else 2)
    for pattern in ('results.jsonl', 'trials/*/timing.jsonl', 'pretrained/*/metrics.jsonl'):
      yield Scenario('damage', f'{name}: {pattern}', damaged(pattern, how))
    for file in ('metrics/metrics', 'state/_METADATA', 'state/d/*'):
      half = damaged(f'{_STEP}/{file}', how, is_finished=False)
      yield Scenario('damage', f'{name}: {file} of the newest step', half, 'checkpoints/40', 2)
  both = damaged('pretrained/*/checkpoints/*/state/d/*', flip, is_finished=False)
  yield Scenario('damage', 'flip: every step', both, 'no intact checkpoint', 4)


def _signals():
  for number in (signal.SIGTERM, signal.SIGINT):
    for phase in PHASES[1:]:
      yield Scenario('signals', f'{number.name} as {phase} begins', signalled(number, phase), number.name)


def _races():
  for wait in (0.0, 0.4):
    yield Scenario('races', f'two on one workdir, the second after {wait:.0%}', together(wait))


def _disks():
  for phase in ('compile', 'save', 'tuning', 'writing'):
    yield Scenario('disks', f'full as {phase} begins', disk_filled(phase), 'bytes are free')


FEWER = Scenario('settings', 'one task', fewer_tasks, 'tasks_per_trial 1 (here 2)')
NAN = Scenario('nan', 'in the first epoch', not_finite, 'in epoch 1')
SCENARIOS = [*_kills(), *_damage(), *_signals(), *_races(), *_disks(), FEWER, NAN]
