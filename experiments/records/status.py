"""The output of `--mode=status`: the state of each trial of a grid, only from files, none of which it changes."""

from collections import Counter

from experiments.records import failures
from experiments.records.trials import TrialFolder
from experiments.runtime import locks
from experiments.settings.fields import printable


def text(folders: list[TrialFolder]) -> str:
  """A line for each trial, its number, id, name and state, and one that counts them."""
  states = [state(folder) for folder in folders]
  lines = [
    printable(f'{number:3}  {folder.trial.id}  {folder.trial}  {words}')
    for number, (folder, words) in enumerate(zip(folders, states))
  ]
  counts = Counter(words.split()[0] for words in states)
  total = ', '.join(f'{count} {what}' for what, count in counts.items())
  return '\n'.join([*lines, f'{len(folders)} trials: {total}\n'])


def state(folder: TrialFolder) -> str:
  """The state of a trial: done, running, stale, failed or missing, with details.

  A trial is stale if its lock was not renewed within the lease, or names a process of this host that is gone: the next
  run takes it over. A process of another host that was killed within the lease still counts as running.
  """
  missing = len(folder.missing())
  if not missing:
    return 'done'
  left = f'missing {missing} of {len(folder.paths())}'
  if holder := locks.holder(folder.directory):
    what = 'stale since the end of' if locks.is_stale(folder.directory) else 'running in'
    return f'{what} {holder}; {left}'
  if failure := failures.read(folder.directory, folder.trial.label):
    return f'failed at {failure["when"]}: {failure["error"]}; {left}'
  return left
