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
  tuner = tuner_of(job.method, job.settings, job.trial.point, job.frozen.model)
  read = way.read(job, tuner)
  tuned: dict[int, TunedTask] = {}
  for block in _blocks(job):
    fits = way.fit(block, tuner, read)
    measured = [measure(block, tuner, read, fits) for measure in way.measures]
    for task, fitted, *fields in zip(block.tasks, fits, *measured):
      nan_guard.check_values(f'{job}, task {task}:', by_name(fitted.trainable))
      tuned[task] = TunedTask(task, fitted.trainable, _record(job, task, fitted, fields))
  accuracy = np.mean([tuned[task].measured['accuracy'] for task in job.tasks])
  job.reporter.say(f'{job}: accuracy {100 * accuracy:.1f}% over {len(job.tasks)} tasks')
  return [tuned[task] for task in job.tasks]


def _blocks(job: Job) -> Iterator[Job]:
  """The jobs that are tuned one after the other: all of it, or blocks of `tasks_at_a_time` if a method has a schedule.

  Rounding depends on the number of tasks side by side. So a block is tuned whole and each task keeps its place; the
  first one that is asked for stands in for those that are not.
  """
  if not METHODS[job.method].has_schedule:
    yield job
    return
  size = job.settings.tasks_at_a_time
  for start in sorted({task - task % size for task in job.tasks}):
    block = range(start, start + size)
    first = min(set(block).intersection(job.tasks))
    yield job._replace(tasks=[task if task in job.tasks else first for task in block])


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
    'smallest_margin': float(task.margins.min()),
    'near_tie_share': float((~is_clear).mean()),
    'clear_accuracy': float(is_right[test][is_clear].mean()) if is_clear.any() else None,
  }
