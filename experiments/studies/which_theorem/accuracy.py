"""What heads and prompts of prompt_vs_head get on the same tasks, by what is known of the task; from records alone."""

import itertools

from experiments.analysis import statistics
from experiments.analysis.statistics import Interval
from experiments.records.results import Record
from experiments.studies.theory.tables import Table
from experiments.studies.which_theorem.report import by_size, CELLS, hmms, part_records, percent

# Of a model and a method, in the order of columns.
_HEADS = {
  ('exact', 'head_converged'): 'converged head, exact G',
  ('exact', 'head'): 'head, exact G',
  ('bert', 'head_converged'): 'converged head, BERT',
  ('bert', 'head'): 'head, BERT',
  ('bert', 'prompt'): 'prompt, BERT',
}
_PROMPTS = {
  ('exact', 'oracle_prompt'): 'oracle prompt, exact G',
  ('exact', 'prompt'): 'prompt, exact G',
  ('bert', 'prompt'): 'prompt, BERT',
}
# By whether Assumption 3.5 holds, and the outcome for the condition of docs/prompts.md.
_KINDS = {
  (True, 'yes'): '3.5 and the condition',
  (True, 'no'): '3.5, not the condition',
  (True, 'undecided'): '3.5, the condition undecided',
  (False, 'yes'): 'the condition, not 3.5',
  (False, 'no'): 'neither',
  (False, 'undecided'): 'not 3.5, the condition undecided',
}


def joined(records: list[Record], trials: list[Record]) -> list[Record]:
  """The records of tasks that `trials` speak of too, with `accuracies` by (model, method).

  Raises:
    ValueError: a task has another majority class than in `trials`, so that it is not the same.
  """
  key = lambda record: (record['num_states'], record['trial'], record['task'])
  accuracies: dict[tuple[int, int, int], dict[tuple[str, str], float]] = {}
  majorities: dict[tuple[int, int, int], float] = {}
  for record in statistics.select(trials, memory_size=0):
    accuracies.setdefault(key(record), {})[record['model'], record['method']] = record['accuracy']
    majorities[key(record)] = record['majority_accuracy']
  found = [{**record, 'accuracies': accuracies[key(record)]} for record in records if key(record) in accuracies]
  for record in found:
    if record['majority_accuracy'] != majorities[key(record)]:
      raise ValueError(f'task {key(record)} is not that of the trials, whose majority has {majorities[key(record)]}')
  return found


def accuracy_table(records: list[Record], trials: list[Record]) -> Table | None:
  """Mean accuracies by whether the score is linear and labels are separable; None where no task has any."""
  found = joined(part_records(records, 'linearity'), trials)
  kinds = {name: statistics.select(found, linear=linear, separable=sep) for (linear, sep), name in CELLS.items()}
  return _table(found, {(name,): chosen for name, chosen in kinds.items()}, ['score and labels'], _HEADS)


def prompt_table(records: list[Record], trials: list[Record]) -> Table | None:
  """Mean accuracies by |H|, epsilon, and which condition for a prompt holds; None where no task has any."""
  found = joined(part_records(records, 'prompts'), trials)
  levels = list(found[0]['3.5']) if found else []
  kinds: dict[tuple[str, ...], list[Record]] = {
    (str(size), f'{float(level):g}', name): [
      record for record in rows if (record['3.5'][level], record['constant_prompt'][level]) == kind
    ]
    for (size, rows), level, (kind, name) in itertools.product(by_size(found).items(), levels, _KINDS.items())
  }
  return _table(found, kinds, ['|H|', 'epsilon', 'holds'], _PROMPTS)


def _table(
  found: list[Record],
  kinds: dict[tuple[str, ...], list[Record]],
  columns: list[str],
  tuned: dict[tuple[str, str], str],
) -> Table | None:
  """A row for each kind of task that there is: how many, and the accuracy of what was `tuned`."""
  tuned = {pair: label for pair, label in tuned.items() if any(pair in record['accuracies'] for record in found)}
  rows = []
  for name, chosen in kinds.items():
    if chosen:
      shares = [_share(chosen, pair) for pair in tuned]
      row = [*name, str(len(hmms(chosen))), str(len(chosen))]
      row += [str(share) if len(share.values) else '' for share in shares]
      rows.append([*row, str(percent(chosen, lambda record: record['majority_accuracy']))])
  title = 'Test accuracy in percent of tasks of each kind, mean ± 95% interval over HMMs'
  columns = [*columns, 'HMMs', 'tasks', *tuned.values(), 'majority class']
  return Table(title, columns, rows, len(columns) - len(tuned) - 3) if rows else None


def _share(records: list[Record], pair: tuple[str, str]) -> Interval:
  """The accuracy of one method on one model in percent, of tasks that have it."""
  return percent(records, lambda record: record['accuracies'].get(pair))
