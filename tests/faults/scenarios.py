"""The table: what is done to a run, and what has to be said. Bad inputs are in bad_inputs.py."""

import shutil
import signal
import time

from run_cases import flip

from experiments.records import files

from .bench import expect, Scenario
from .processes import Moment, PHASES

_CHECKPOINTS = 'pretrained/*/checkpoints'
_MOST_SECONDS_TO_STOP = 60.0


def killed_at(phase):
  """kill -9 where a phase begins."""

  def disturb(bench, workdir):
    expect(bench.run(workdir, moment=bench.moment(phase, signal.SIGKILL)).end(), 128 + signal.SIGKILL)
    return ''

  return disturb


def damaged(pattern):
  """Flip a bit of every file of a pattern in a copy of the reference.

  If it is of a model, as it was before tuning; if it is of checkpoints, as a kill at the last one leaves two.
  """

  def disturb(bench, workdir):
    if pattern.startswith(_CHECKPOINTS):
      expect(bench.run(workdir, moment=Moment('save', 4)).end(), 128 + signal.SIGKILL)
    else:
      shutil.copytree(bench.reference, workdir)
    if pattern.startswith('pretrained'):
      shutil.rmtree(workdir / 'trials', ignore_errors=True)
      (workdir / 'results.jsonl').unlink(missing_ok=True)
    for path in workdir.glob(pattern):
      flip(path)
    return ''

  return disturb


def signalled(number, phase):
  """A signal where a phase begins: its status, in time, and what is done is left."""

  def disturb(bench, workdir):
    moment = bench.moment(phase, signal.SIGSTOP)
    running = bench.run(workdir, moment=moment)
    running.reached(*moment[:2])
    sent = time.monotonic()
    running.send(number)
    running.send(signal.SIGCONT)
    ended = running.end()
    expect(ended, 128 + number)
    assert ended.time - sent < _MOST_SECONDS_TO_STOP
    # After the last step a model.
    sealed = list(workdir.glob('pretrained/**/checksums.json'))
    has_begun = bench.phases['save'] and phase in ('pretraining', 'save')
    assert sealed or not has_begun, 'no checkpoint is left'
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
      assert len(files.read_json_lines(path)) == 1, f'{path.parent.name} was made twice'
    return ''.join(each.said for each in ended)

  return disturb


def on_a_full_disk(bench, workdir):
  """The system refuses the longer files: the run ends with a sentence."""
  ended = bench.run(workdir, most_bytes=20_000).end()
  expect(ended, 1)
  return ended.said


def stopped(bench, workdir):
  """A holder is stopped as tuning begins until another run has taken over and ended; then it wakes."""
  moment = bench.moment('tuning', signal.SIGSTOP)
  sleeper = bench.run(workdir, moment=moment)
  sleeper.reached(*moment[:2])
  other = bench.run(workdir).end()
  expect(other, 0)
  sleeper.send(signal.SIGCONT)
  ended = sleeper.end()
  expect(ended, 0)
  bench.check_left(workdir)
  return ended.said


SCENARIOS = [Scenario('kills', f'as {phase} begins', killed_at(phase)) for phase in PHASES]
SCENARIOS += [
  # With its array a record is renamed.
  Scenario('damage', 'records', damaged('trials/*/*-task0.json'), '-task0.json', 4),
  Scenario('damage', 'arrays', damaged('trials/*/*-task1.npz'), '-task1.npz', 4),
  Scenario('damage', 'results.jsonl', damaged('results.jsonl')),
  Scenario('damage', 'timing.jsonl', damaged('trials/*/timing.jsonl')),
  Scenario('damage', 'metrics.jsonl', damaged('pretrained/*/metrics.jsonl')),
  Scenario('damage', 'the model', damaged('pretrained/*/model/*.safetensors'), 'model.safetensors failed', 2),
  # Steps that were set aside go with the others once the model is finished.
  Scenario('damage', 'the newest step', damaged(f'{_CHECKPOINTS}/30/state/d/*'), 'checkpoints/30', 0),
  Scenario('damage', 'every step', damaged(f'{_CHECKPOINTS}/*/state/d/*'), 'checkpoints/20', 0),
]
SCENARIOS += [
  Scenario('signals', f'{number.name} as {phase} begins', signalled(number, phase), number.name)
  for number in (signal.SIGTERM, signal.SIGINT)
  for phase in PHASES[1:]
]
SCENARIOS += [
  Scenario('races', f'two on one workdir, the second after {wait:.0%}', together(wait)) for wait in (0.0, 0.4)
]
SCENARIOS += [
  Scenario('races', 'a holder that is stopped and wakes', stopped, 'lost the lock'),
  Scenario('disk', 'files are refused', on_a_full_disk, 'was not written'),
]
