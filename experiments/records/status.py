"""The output of `--mode=status`: the state of each trial of a grid, from files alone, none of which it changes."""

from collections import Counter
import time

from experiments.records import failures
from experiments.records.trial_records import Grid, Trial
from experiments.runtime import locks
from experiments.runtime.timing import in_words
from experiments.settings.fields import printable

STATES = ('done', 'running', 'stale', 'failed', 'missing')


def text(grid: Grid) -> str:
  """A line for each trial, its number, id, name and state, and one that counts them."""
  places, names = len(str(len(grid) - 1)), max(map(len, grid))
  states = [state(trial) for trial in grid.values()]
  lines = [
    printable(f'{number:{places}}  {trial.id}  {name:{names}}  {words}') + '\n'
    for number, ((name, trial), words) in enumerate(zip(grid.items(), states))
  ]
  counts = Counter(words.split()[0] for words in states)
  total = ', '.join(f'{counts[what]} {what}' for what in STATES)
  return ''.join([*lines, f'{len(grid)} trials: {total}\n'])


def state(trial: Trial) -> str:
  """The state of a trial, one of STATES, with details: who runs it, why it failed, which records are missing.

  A trial is stale if its lock was not renewed within the lease, so that a waiting run would take it over. A process
  killed within the lease still counts as running.
  """
  missing = trial.missing()
  if not missing:
    return 'done'
  methods = ', '.join(sorted({f'{model} {method}' for _, model, method in missing}))
  left = f'{len(missing)} of {len(trial.paths())}: {methods}'
  holder, renewed = locks.holder(trial.directory), locks.renewed(trial.directory)
  if holder and renewed:
    # The clock of the file system may be ahead of this one.
    silence = max(0.0, time.time() - renewed)
    if silence > locks.LEASE:
      return f'stale since {holder} renewed its lock {in_words(silence)} ago; the next run takes over; missing {left}'
    return f'running in {holder}, lock renewed {in_words(silence)} ago; missing {left}'
  if failure := failures.read(trial.directory):
    return f'failed at {failure["when"]}: {failure["error"]}; missing {left}'
  return f'missing {left}'
