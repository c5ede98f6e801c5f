"""The output of `--mode=status`: the state of each trial of a grid, only from files, none of which it changes."""

from collections import Counter
import time

from experiments.records import failures, models
from experiments.records.trials import TrialFolder
from experiments.runtime import locks
from experiments.runtime.timing import in_words
from experiments.settings.fields import printable

STATES = ('done', 'running', 'stale', 'failed', 'missing')


def text(folders: list[TrialFolder]) -> str:
  """A line for each trial, its number, id, name, state and finished model, and one that counts them."""
  names, states = [str(folder.trial) for folder in folders], [state(folder) for folder in folders]
  places, width = len(str(len(folders) - 1)), max(map(len, names))
  lines = [
    printable(f'{number:{places}}  {folder.trial.id}  {name:{width}}  {words}{_model(folder)}') + '\n'
    for number, (folder, name, words) in enumerate(zip(folders, names, states))
  ]
  counts = Counter(words.split()[0] for words in states)
  total = ', '.join(f'{counts[what]} {what}' for what in STATES)
  return ''.join([*lines, f'{len(folders)} trials: {total}\n'])


def _model(folder: TrialFolder) -> str:
  directory = folder.pretrained_directory
  is_finished = folder.trial.settings.has_bert and models.is_finished(directory)
  return f'; model {directory / models.NAME}' if is_finished else ''


def state(folder: TrialFolder) -> str:
  """The state of a trial, one of STATES, with details: who runs it, why it failed, which records are missing.

  A trial is stale if its lock was not renewed within the lease, or names a process of this host that is gone: the next
  run takes it over. A process of another host that was killed within the lease still counts as running.
  """
  missing = folder.missing()
  if not missing:
    return 'done'
  methods = ', '.join(sorted({f'{model} {method}' for _, model, method, _ in missing}))
  left = f'{len(missing)} of {len(folder.paths())}: {methods}'
  holder, renewed = locks.holder(folder.directory), locks.renewed(folder.directory)
  if holder and renewed:
    # The clock of the file system may be ahead of this one.
    silence = max(0.0, time.time() - renewed)
    if locks.has_ended(folder.directory):
      return f'stale since {holder} has ended; the next run takes over; missing {left}'
    if silence > locks.LEASE:
      return f'stale since {holder} renewed its lock {in_words(silence)} ago; the next run takes over; missing {left}'
    return f'running in {holder}, lock renewed {in_words(silence)} ago; missing {left}'
  if failure := failures.read(folder.directory, folder.trial.label):
    return f'failed at {failure["when"]}: {failure["error"]}; missing {left}'
  return f'missing {left}'
