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
  lines, counts = list[str](), Counter[str]()
  for number, folder in enumerate(folders):
    words = state(folder)
    counts[words.split()[0]] += 1
    lines.append(printable(f'{number:3}  {folder.trial.id}  {folder.trial}  {words}{_model(folder)}') + '\n')
  total = ', '.join(f'{counts[what]} {what}' for what in STATES)
  return ''.join(lines) + f'{len(folders)} trials: {total}\n'


def _model(folder: TrialFolder) -> str:
  directory = folder.pretrained_directory
  is_finished = folder.trial.settings.has_bert and models.is_finished(directory)
  return f'; model {models.place(directory)}' if is_finished else ''


def state(folder: TrialFolder) -> str:
  """The state of a trial, one of STATES, with details: who runs it, why it failed, which records are missing.

  A trial is stale if its lock was not renewed within the lease, or names a process of this host that is gone: the next
  run takes it over. A process of another host that was killed within the lease still counts as running.
  """
  missing = folder.missing()
  if not missing:
    return 'done'
  methods = ', '.join(sorted({f'{name.model} {name.method}' for name in missing}))
  left = f'missing {len(missing)} of {len(folder.paths())}: {methods}'
  holder, renewed = locks.holder(folder.directory), locks.renewed(folder.directory)
  if holder and renewed:
    # The clock of the file system may be ahead of this one.
    silence = max(0.0, time.time() - renewed)
    is_stale = silence > locks.LEASE or locks.has_ended(folder.directory)
    what = 'stale since the end of' if is_stale else 'running in'
    return f'{what} {holder}, which renewed its lock {in_words(silence)} ago; {left}'
  if failure := failures.read(folder.directory, folder.trial.label):
    return f'failed at {failure["when"]}: {failure["error"]}; {left}'
  return left
