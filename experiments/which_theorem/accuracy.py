"""What the heads of prompt_vs_head get on the same tasks, by what is known of the task; from records alone."""

from experiments import results
from experiments.results import Interval, Record
from experiments.theory.tables import Table
from experiments.which_theorem.report import CELLS, hmms, of_part, percent

# Of a model and a method, in the order of columns.
_HEADS = {
  ('exact', 'head_converged'): 'converged head, exact G',
  ('exact', 'head'): 'head, exact G',
  ('bert', 'head_converged'): 'converged head, BERT',
  ('bert', 'head'): 'head, BERT',
  ('bert', 'prompt'): 'prompt, BERT',
}


def joined(records: list[Record], trials: list[Record]) -> list[Record]:
  """The records of tasks that `trials` speak of too, with `accuracies` by (model, method).

  Raises:
    ValueError: a task has another majority class than in `trials`, so that it is not the same.
  """
  key = lambda record: (record['num_states'], record['trial'], record['task'])
  accuracies: dict[tuple[int, int, int], dict[tuple[str, str], float]] = {}
  majorities: dict[tuple[int, int, int], float] = {}
  for record in results.select(trials, memory_size=0):
    accuracies.setdefault(key(record), {})[record['model'], record['method']] = record['accuracy']
    majorities[key(record)] = record['majority_accuracy']
  found = [{**record, 'accuracies': accuracies[key(record)]} for record in records if key(record) in accuracies]
  for record in found:
    if record['majority_accuracy'] != majorities[key(record)]:
      raise ValueError(f'task {key(record)} is not that of the trials, whose majority has {majorities[key(record)]}')
  return found


def accuracy_table(records: list[Record], trials: list[Record]) -> Table | None:
  """Mean accuracies by whether the score is linear and labels are separable; None where no task has any."""
  found = joined(of_part(records, 'linearity'), trials)
  heads = {head: label for head, label in _HEADS.items() if any(head in record['accuracies'] for record in found)}
  rows = []
  for (linear, separable), name in CELLS.items():
    chosen = results.select(found, linear=linear, separable=separable)
    if chosen:
      shares = [_share(chosen, head) for head in heads]
      majority = percent(chosen, lambda r: r['majority_accuracy'])
      row = [
        name,
        str(len(hmms(chosen))),
        str(len(chosen)),
        *(str(share) if len(share.values) else '' for share in shares),
      ]
      rows.append([*row, str(majority)])
  title = 'Test accuracy in percent of tasks of each kind, mean ± 95% interval over HMMs'
  return (
    Table(title, ['score and labels', 'HMMs', 'tasks', *heads.values(), 'majority class'], rows, 1) if rows else None
  )


def _share(records: list[Record], head: tuple[str, str]) -> Interval:
  """The accuracy of one head in percent, of tasks that have it."""
  return percent(records, lambda record: record['accuracies'].get(head))
