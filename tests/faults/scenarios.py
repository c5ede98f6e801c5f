"""The table: what is done to a run, and what has to be said. Bad inputs are in bad_inputs.py."""

import shutil
import signal
import time

from run_cases import flip

from experiments.records import files

from .bench import expect, Scenario
from .processes import PHASES

_MOST_SECONDS_TO_STOP = 60.0


def killed_at(phase):
  """kill -9 where a phase begins."""

  def disturb(bench, workdir):
    expect(bench.run(workdir, moment=bench.moment(phase, signal.SIGKILL)).end(), 128 + signal.SIGKILL)
    return ''

  return disturb


def damaged(bench, workdir):
  """A copy of the reference without one of its trials, in which a bit of each file of lines is flipped."""
  shutil.copytree(bench.reference, workdir)
  shutil.rmtree(next(workdir.glob('trials/*')))
  for path in workdir.rglob('*.jsonl'):
    flip(path)
  return ''


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
    steps = list(workdir.glob('pretrained/*/checkpoints/*/checksums.json'))
    has_begun = bench.phases['save'] and phase in ('pretraining', 'save')
    assert steps or not has_begun, 'no checkpoint is left'
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


SCENARIOS = [Scenario('kills', f'as {phase} begins', killed_at(phase)) for phase in PHASES]
# Tests of records damage records, arrays, models and checkpoints.
SCENARIOS += [Scenario('damage', 'lines', damaged)]
SCENARIOS += [
  Scenario('signals', f'{number.name} as {phase} begins', signalled(number, phase), number.name)
  for number in (signal.SIGTERM, signal.SIGINT)
  for phase in PHASES[1:]
]
SCENARIOS += [
  Scenario('races', f'two on one workdir, the second after {wait:.0%}', together(wait)) for wait in (0.0, 0.4)
]
