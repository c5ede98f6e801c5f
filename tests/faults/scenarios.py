"""The table: what is done to a run, and what has to be said. Bad inputs are in bad_inputs.py."""

import contextlib
import random
import re
import shutil
import signal
import time

from . import bench as bench_lib
from .bench import check, expect, Scenario
from .processes import Moment, PHASES

SHARES = (0.0, 0.5, 0.95)
_RECORD, _ARRAYS, _STEP = 'trials/*/*-task0.json', 'trials/*/*-task1.npz', 'pretrained/*/checkpoints/40'
_DIVERGED, _BAD_INPUT, _KILLED = 3, 2, 128 + signal.SIGKILL
_MOST_SECONDS_TO_STOP, _AT_ONCE = 60.0, 5.0


def killed_at(phase, *shares):
  """kill -9 where a phase begins, of one run after another."""

  def disturb(bench, workdir):
    for share in shares:
      moment = Moment(phase, bench.number(phase, share))
      ended = bench.run(workdir, moment=moment).end()
      # A second run has less to do, and may end before it comes there.
      check(ended.status == _KILLED or share != shares[0], f'not killed: status {ended.status}')
    return ''

  return disturb


def killed_after(*shares):
  """kill -9 after this share of the time that an undisturbed run takes, of one run after another."""

  def disturb(bench, workdir):
    for share in shares:
      bench.run(workdir).end(share * bench.seconds)
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


def add(step):
  (step / 'extra').write_bytes(b'not of this checkpoint')


def replace(folder):
  """Another trial's, or another model's, in place of this one."""
  other = next(each for each in folder.parent.iterdir() if each != folder)
  shutil.rmtree(folder)
  shutil.copytree(other, folder)


def damaged(pattern, how, is_finished=True):
  """Damages every file of a pattern in a copy of the reference; if not finished, as it was before tuning."""

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


def damaged_environments(how):
  """Those of a run that goes on are made again."""

  def disturb(bench, workdir):
    damaged('environments/*.json', how)(bench, workdir)
    for path in workdir.glob(_RECORD):
      path.unlink()
    ended = bench.run(workdir).end()
    for path in bench.reference.glob('environments/*.json'):
      there = workdir / 'environments' / path.name
      check(there.exists() and there.read_bytes() == path.read_bytes(), f'environments/{path.name} is another')
    return ended.said

  return disturb


def signalled(number, phase, share):
  """A signal where a phase begins: its status, in time, and what is done is left."""

  def disturb(bench, workdir):
    moment = Moment(phase, bench.number(phase, share), signal.SIGSTOP)
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


def signalled_twice(number, phase):
  """The second signal ends the run at once."""

  def disturb(bench, workdir):
    running = bench.run(workdir)
    running.reached(phase)
    running.send(number)
    time.sleep(0.1)
    running.send(number)
    sent = time.monotonic()
    ended = running.end()
    expect(ended, 128 + number)
    check(ended.time - sent < _AT_ONCE, f'{ended.time - sent:.1f} s until it ended')
    # A line of Python's own may end in the middle.
    return ended.said.replace('Traceback', '')

  return disturb


def together(wait, kill=None, shared=False):
  """Two runs, the second after a share of the time of one: on one workdir, or with their models in one folder."""

  def disturb(bench, workdir):
    more = [f'--config.pretrained={workdir.parent / "models"}'] if shared else []
    first = bench.run(workdir, *more)
    first.process.join(wait * bench.seconds)
    second = bench.run(workdir.parent / 'second' if shared else workdir, *more)
    if kill is not None:
      first.process.join(kill * bench.seconds)
      first.send(signal.SIGKILL)
    ended = [first.end(), second.end()]
    for each in ended[kill is not None :]:
      expect(each, 0)
    bench.check_left(workdir.parent / 'second' if shared else workdir)
    if kill is None:
      _check_once(workdir, workdir.parent / 'models' if shared else workdir / 'pretrained')
    return ''.join(each.said for each in ended)

  return disturb


def _check_once(workdir, models):
  """Each trial and each pretraining was worked on in one run, by the lines that work leaves."""
  for path in workdir.glob('trials/*'):
    count = len(bench_lib.rows(path / 'timing.jsonl'))
    check(count == 1, f'{path.name} was made {count} times')
  for path in models.glob('*'):
    count = len(bench_lib.rows(path / 'environment.jsonl'))
    check(count == 1, f'{path.name} was pretrained {count} times')


def disk_too_small(bench, workdir):
  """It is refused before anything is written."""
  with bench_lib.mounted(workdir.parent / 'disk', 2**20) as disk:
    ended = bench.run(disk / 'work').end()
    expect(ended, _BAD_INPUT)
    check(not list(disk.rglob('*.json')), 'something is written')
  return ended.said


def disk_filled(phase, share):
  """The disk is filled while the run is held where a phase begins; it ends with a sentence, and then there is room."""

  def disturb(bench, workdir):
    moment = Moment(phase, bench.number(phase, share), signal.SIGSTOP)
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


def not_finite(change, *more):
  """One trial ends with status 3; the other one is done."""

  def disturb(bench, workdir):
    ended = bench.run(workdir, *more, changes=[change]).end()
    expect(ended, _DIVERGED)
    found, expected = (bench_lib.results(each)['results.jsonl'] for each in (workdir, bench.reference))
    others = [row for row in expected if row['trial_id'] != expected[0]['trial_id']]
    check(found == others, 'the other trial is not done')
    return ended.said

  return disturb


def with_other(*more, made):
  """A finished run goes on with more flags, which make so many records and leave all others as they are.

  A flag of a tuple adds an entry.
  """

  def disturb(bench, workdir):
    shutil.copytree(bench.reference, workdir)
    before = _times(workdir)
    ended = bench.run(workdir, *more).end()
    expect(ended, 0)
    after = _times(workdir)
    check(len(after) - len(before) == made, f'{len(after) - len(before)} records are made')
    check(before.items() <= after.items(), 'a record is made again')
    bench.run(workdir).end()
    check(_times(workdir) == after, 'a record is made again by the first command')
    return ended.said

  return disturb


def _times(workdir):
  """When each record and each array was written."""
  return {path: path.stat().st_mtime_ns for path in workdir.glob('trials/*/*-task*.json')}


def elsewhere(pattern=None, **environment):
  """A run that was killed between two checkpoints goes on in another environment, which is said."""

  def disturb(bench, workdir):
    bench.run(workdir, moment=Moment('save', bench.number('save', 0.5))).end()
    for path in sorted(workdir.glob(pattern)) if pattern else ():
      path.write_text(re.sub(r'"jax": "[^"]*"', '"jax": "0.0.1"', path.read_text()))
    ended = bench.run(workdir, environment=environment).end()
    expect(ended, 0)
    return ended.said

  return disturb


def _kills():
  for phase in PHASES:
    for share in SHARES[: 1 if phase == 'start' else 3]:
      yield Scenario('kills', f'as {phase} begins, at {share:.0%} of its beginnings', killed_at(phase, share))
  draws = random.Random(0)
  for _ in range(8):
    share = draws.random()
    yield Scenario('kills', f'after {share:.0%} of the time', killed_after(share))
  for phase in ('save', 'tuning', 'writing'):
    yield Scenario('kills', f'twice, as {phase} begins', killed_at(phase, 0.5, 0.5))
  yield Scenario('kills', 'three times, after 30%, 40% and 50% of the time', killed_after(0.3, 0.4, 0.5))


_EVERY_WAY = (flip, truncate, empty, delete)


def _damage():
  """A file that is missing is made again, and need not be named."""
  for how in _EVERY_WAY:
    bad, name = how is not delete, how.__name__
    yield Scenario('damage', f'{name}: records', damaged(_RECORD, how), '-task0.json' * bad, 4 * bad)
    # With its array a record is renamed.
    yield Scenario('damage', f'{name}: arrays', damaged(_ARRAYS, how), '-task1.npz', 4 if bad else 2)
    for pattern in ('results.jsonl', 'trials/*/timing.jsonl', 'pretrained/*/metrics.jsonl'):
      yield Scenario('damage', f'{name}: {pattern}', damaged(pattern, how))
    torn, pattern = how is truncate, 'pretrained/*/environment.jsonl'
    half = damaged(pattern, how, is_finished=False)
    yield Scenario('damage', f'{name}: {pattern}', half, '', 2 * torn)
    yield Scenario('damage', f'{name}: environments', damaged_environments(how))
    for file in ('checksums.json', 'metrics/metrics', 'state/_METADATA', 'state/d/*', 'state/manifest.ocdbt'):
      half, is_seal = damaged(f'{_STEP}/{file}', how, is_finished=False), file == 'checksums.json'
      # Checksums that are missing were not written before a kill.
      named = bad or not is_seal
      yield Scenario('damage', f'{name}: {file} of the newest step', half, 'checkpoints/40' * named, 2 * named)
    both = damaged('pretrained/*/checkpoints/*/state/d/*', how, is_finished=False)
    yield Scenario('damage', f'{name}: every step', both, 'no intact checkpoint is left', 4)
  half = damaged('pretrained/*/checkpoints/*/state/d/*', flip)
  yield Scenario('damage', 'flip: every step, of a finished run', half)
  of_other_trial, of_other_model = damaged('trials/*', replace), damaged('pretrained/*', replace, is_finished=False)
  yield Scenario('damage', "another trial's records and arrays", of_other_trial, 'is of trial', 4)
  yield Scenario('damage', "another model's checkpoints", of_other_model, 'it is of the model', 2)
  added = damaged(_STEP, add, is_finished=False)
  yield Scenario('damage', 'a file added to a step', added, 'was added', 2)
  flipped = damaged(f'{_STEP}/state/_METADATA', flip, is_finished=False)
  yield Scenario(
    'damage', 'flip: state/_METADATA of the newest step', flipped, 'checkpoints/40', 2, 'checksums', 'checkpoints/40'
  )


def _signals():
  for number in (signal.SIGTERM, signal.SIGINT):
    for index, phase in enumerate(PHASES[1:]):
      share = SHARES[index % 3]
      name = f'{number.name} as {phase} begins, at {share:.0%} of its beginnings'
      yield Scenario('signals', name, signalled(number, phase, share), f'stopped by {number.name}')
    for phase in ('compile', 'pretraining', 'tuning'):
      yield Scenario('signals', f'{number.name} twice, in {phase}', signalled_twice(number, phase))


def _races():
  for wait in (0.0, 0.3, 0.6):
    yield Scenario('races', f'two on one workdir, the second after {wait:.0%}', together(wait))
    yield Scenario('races', f'the first is killed {wait:.0%} after that', together(0.2, kill=wait))
  for wait in (0.0, 0.4):
    yield Scenario('races', f'two on one folder of models, the second after {wait:.0%}', together(wait, shared=True))
  # Each is made twice, or one run misses a file that the other has just renamed.
  yield Scenario('races', 'two on one workdir', together(0.0), without='locks')


def _disks():
  yield Scenario('disks', 'too small from the start', disk_too_small, 'bytes are free there')
  for phase in ('compile', 'pretraining', 'save', 'tuning', 'writing'):
    for share in (0.0, 0.6):
      yield Scenario('disks', f'full as {phase} begins, {share:.0%}', disk_filled(phase, share), 'bytes are free')


def _not_finite():
  for call, step in ((1, 1), (4, 31)):
    yield Scenario('nan', f'steps, call {call}', not_finite(f'steps@{call}'), f'step {step} of 40')
    said = f'steps {step} to {step + 9}'
    in_debug = not_finite(f'steps@{call}', '--config.debug_nans=True')
    yield Scenario('nan', f'steps, call {call}, debug_nans', in_debug, said)
  for epoch in (1, 2):
    yield Scenario('nan', f'epoch {epoch} of tuning', not_finite(f'epoch@{epoch}'), f'in epoch {epoch}')
  unseen = not_finite('steps@4')
  yield Scenario('nan', 'steps, call 4', unseen, without='finiteness', reason='status 1')


def _resuming():
  for name, flags, made, says in (
    ('another seed', ['seed=1'], 4, 'seed 0 (here 1)'),
    ('another width', ['bert.width=8'], 4, 'bert.width 16 (here 8)'),
    ('fewer steps', ['pretrain.num_steps=20'], 4, 'pretrain.num_steps 40 (here 20)'),
    ('another learning rate of heads', ['head.learning_rate=0.02'], 4, 'head.learning_rate 0.01 (here 0.02)'),
    ('a method added', ['methods=prompt'], 4, "(here ['head', 'prompt'])"),
    ('more tasks, then as many as before', ['tasks_per_trial=4'], 4, 'tasks_per_trial 2 (here 4)'),
    ('fewer tasks, then as many as before', ['tasks_per_trial=1'], 0, 'tasks_per_trial 2 (here 1)'),
    ('a trial added', ['num_trials=3'], 2, 'num_trials 2 (here 3)'),
    ('a size added', ['num_states=6'], 4, 'num_states [4] (here [4, 6])'),
  ):
    more = [f'--config.{flag}' for flag in flags]
    yield Scenario('resuming', name, with_other(*more, made=made), says, 0)
  of_model = elsewhere('pretrained/*/environment.jsonl')
  yield Scenario('resuming', 'another version of JAX', of_model, 'jax 0.0.1')
  flags = elsewhere(XLA_FLAGS='--xla_cpu_enable_fast_math=false')
  yield Scenario('resuming', 'other XLA_FLAGS', flags, 'XLA_FLAGS')


SCENARIOS = [*_kills(), *_damage(), *_signals(), *_races(), *_disks(), *_not_finite(), *_resuming()]
