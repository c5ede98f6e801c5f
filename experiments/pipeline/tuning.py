"""Tuning one method on one frozen model for the tasks of a trial, and measuring the result."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from experiments.pipeline.downstream import NEAR_TIE
from experiments.pipeline.job import Fitted, Job
from experiments.pipeline.methods import tuner_of, WAYS
from experiments.records.files import by_name
from experiments.records.trials import TunedTask
from experiments.runtime import signals
from experiments.settings.methods import METHODS
from hmm_jax._support import nan_guard
from hmm_jax.tuning import tasks as tasks_lib

# Fields that only some methods fill, null for the others. Those of `token_readers`, `prompt_effects` and
# `best_heads.facts` only these have.
_SOME_HAVE = (
  'attention_by',
  'attention_profile',
  'attention_rank_correlation',
  'accuracy_at_most',
  'separable',
  'certificate_residual',
  'gradient_norm',
  'head_size',
  'ridge',
  'ridge_accuracies',
  'noise_accuracies',
  'other_task_accuracy',
  'restart',
  'restart_accuracies',
)


def tune(job: Job) -> list[TunedTask]:
  """Tune a method for all tasks of a job, on the device that holds the model.

  Raises Diverged if a loss or a tuned number is not finite, and Stopped if the run has received a signal.
  """
  signals.raise_if_stopped()
  way = WAYS[job.method]
  job = job._replace(tuner=tuner_of(job.method, job.trial, job.frozen.model))
  read = way.read(job)
  outcome = []
  for block, places in _blocks(job):
    fits = way.fit(block, read)
    measured = [measure(block, read, fits) for measure in way.measures]
    for place in places:
      task, fitted = block.tasks[place], fits[place]
      nan_guard.check_values(f'{job}, task {task}:', by_name(fitted.trainable))
      record = _record(job, task, fitted, [fields[place] for fields in measured])
      outcome.append(TunedTask(task, fitted.trainable, record))
  accuracy = np.mean([tuned.measured['accuracy'] for tuned in outcome])
  job.reporter.say(f'{job}: accuracy {100 * accuracy:.1f}% over {len(outcome)} tasks')
  return outcome


def _blocks(job: Job) -> Iterator[tuple[Job, list[int]]]:
  """The jobs that are tuned one after the other, each with the places of the tasks that are asked for.

  With a schedule they have `tasks_at_a_time` tasks. Rounding depends on the number of tasks side by side. So a block is
  tuned whole and each task keeps its place; the first one that is asked for stands in for those that are not.
  """
  if not METHODS[job.method].has_schedule:
    yield job, [*range(len(job.tasks))]
    return
  size = job.settings.tasks_at_a_time
  for start in sorted({task - task % size for task in job.tasks}):
    asked = [task for task in job.tasks if start <= task < start + size]
    whole = [task if task in asked else asked[0] for task in range(start, start + size)]
    yield job._replace(tasks=whole), [task - start for task in asked]


def _record(job: Job, task: int, fitted: Fitted, measured: list[dict[str, Any]]) -> dict[str, Any]:
  """The fields of a task's record that say how a method did."""
  fields = _accuracies(job.downstream.tasks[task], fitted, job.downstream.splits)
  fields |= dict.fromkeys(_SOME_HAVE) | fitted.fields
  for some in measured:
    fields |= some
  return fields


def _accuracies(task: tasks_lib.Task, fitted: Fitted, splits: dict[str, slice]) -> dict[str, Any]:
  """The fields of every method; 'clear_accuracy' leaves out near ties, None if all are."""
  test, is_right = splits['test'], fitted.is_right
  is_clear = task.margins[test] >= NEAR_TIE
  accuracies = {name: float(is_right[where].mean()) for name, where in splits.items()}
  return {
    'accuracy': accuracies['test'],
    'validation_accuracy': accuracies['validation'],
    'train_accuracy': accuracies['train'],
    'train_loss': fitted.loss,
    'majority_accuracy': float(tasks_lib.majority_accuracy(task.labels[splits['train']], task.labels[test])),
    'redraws': task.redraws,
    'smallest_margin': None if callable(task.task_weights) else float(task.margins.min()),
    'near_tie_share': float((~is_clear).mean()),
    'clear_accuracy': float(is_right[test][is_clear].mean()) if is_clear.any() else None,
  }
