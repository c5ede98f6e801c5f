"""The output of `--mode=status`: the state of each trial of a grid, from files alone, none of which it changes."""

from collections import Counter
import time

from experiments.records import failures
from experiments.records.trial_records import Grid, Trial
from experiments.runtime import locks

STATES = ('done', 'running', 'stale', 'failed', 'missing')


def text(grid: Grid) -> str:
  """A line for each trial, its number, id, name and state, and one that counts them."""
  places, names = len(str(len(grid) - 1)), max(map(len, grid))
  states = {name: state(trial) for name, trial in grid.items()}
  lines = [
    f'{number:{places}}  {trial.id}  {name:{names}}  {" ".join(filter(None, states[name]))}\n'
    for number, (name, trial) in enumerate(grid.items())
  ]
  counts = Counter(what for what, _ in states.values())
  total = ', '.join(f'{counts[what]} {what}' for what in STATES)
  return ''.join([*lines, f'{len(grid)} trials: {total}\n'])


def state(trial: Trial) -> tuple[str, str]:
  """The one of STATES that a trial is in, with details: who runs it, why it failed, which records are missing.

  A trial is stale whose lock a run that waited would have taken over by now; a process that was killed a moment ago is
  still said to run.
  """
  missing = trial.missing()
  if not missing:
    return 'done', ''
  methods = ', '.join(sorted({f'{model} {method}' for _, model, method in missing}))
  left, holder = f'{len(missing)} of {len(trial.wanted())}: {methods}', locks.holder(trial.directory)
  renewed = locks.renewed(trial.directory)
  if holder and renewed:
    silence = max(0.0, time.time() - renewed)
    if silence > locks.LEASE:
      return (
        'stale',
        f'of {holder}: its lock was not renewed for {_in_words(silence)}, a run takes it over; missing {left}',
      )
    return 'running', f'by {holder}, its lock renewed {_in_words(silence)} ago; missing {left}'
  failure = failures.read(trial.directory)
  if failure:
    return 'failed', f'at {failure["when"]}: {failure["error"]}; missing {left}'
  return 'missing', left


def _in_words(seconds: float) -> str:
  for size, unit in ((86400, 'days'), (3600, 'h'), (60, 'min')):
    if seconds >= 2 * size:
      return f'{seconds / size:.0f} {unit}'
  return f'{seconds:.0f} s'
