"""The table: what is done to a run, and what has to be said. Bad inputs are in bad_inputs.py."""

import shutil
import signal

from run_cases import flip

from experiments.records import files

from .bench import expect, Scenario
from .processes import Moment, PHASES


def damaged(bench, workdir):
  """A copy of the reference without one of its trials, in which a bit of each file of lines is flipped."""
  shutil.copytree(bench.reference, workdir)
  shutil.rmtree(next(workdir.glob('trials/*')))
  for path in workdir.rglob('*.jsonl'):
    flip(path)
  return ''


def signalled(number, phase):
  """A signal in the middle of all beginnings of a phase: its status, and what is done is left."""

  def disturb(bench, workdir):
    moment = Moment(phase, 1 + (bench.phases[phase] - 1) // 2, number)
    ended = bench.run(workdir, moment).end()
    expect(ended, 128 + number)
    steps = list(workdir.glob('pretrained/*/checkpoints/*/checksums.json'))
    has_begun = bench.phases['save'] and phase in ('pretraining', 'save')
    assert steps or not has_begun or number == signal.SIGKILL, 'no checkpoint is left'
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


SCENARIOS = [Scenario(f'SIGKILL as {phase} begins', signalled(signal.SIGKILL, phase)) for phase in PHASES]
SCENARIOS += [
  Scenario(f'{number.name} as {phase} begins', signalled(number, phase), number.name)
  for number in (signal.SIGTERM, signal.SIGINT)
  for phase in PHASES[1:]
]
SCENARIOS += [Scenario(f'two on one workdir, the second after {wait:.0%}', together(wait)) for wait in (0.0, 0.4)]
# Tests of records damage records, arrays, models and checkpoints.
SCENARIOS += [Scenario('files of lines are damaged', damaged)]
