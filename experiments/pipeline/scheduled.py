"""Tuning by a schedule: from one start or the best of several, and with the head fitted anew behind the prompt."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
from jax import Array
import numpy as np

from experiments.pipeline import optimal_heads
from experiments.pipeline.job import Fitted, Job, stacked
from experiments.runtime.progress import Reporter
from hmm_jax.tuning import tuner as tuner_lib

# Above the number of any task.
_START_STRIDE = 2**16


class Trained(NamedTuple):
  """Tasks after training; arrays [R, K, ...] of R starts of K tasks, or [K, ...] of one of each.

  Attributes:
    trainable: arrays of each start.
    losses: mean cross-entropy of the last epoch in nats.
    predicted: [..., n], the predicted class of each input.
  """

  trainable: Any
  losses: np.ndarray
  predicted: np.ndarray


def one_start(job: Job, features: Any) -> list[Fitted]:
  """The fit to each task of one run of the method's schedule."""
  return _fits(job, _at(_trained(job, features, 1), 0))


def best_start(job: Job, features: Any) -> list[Fitted]:
  """The fit to each task that is best on validation, of several runs of the method's schedule."""
  starts = _trained(job, features, job.settings.restarts.number)
  is_right_RxKxn = starts.predicted == job.labels
  accuracies_RxK = is_right_RxKxn[..., job.downstream.splits['validation']].mean(-1)
  best = best_starts(accuracies_RxK, starts.losses)
  fits = _fits(job, _at(starts, (best, np.arange(len(best)))))
  for fitted, start, accuracies in zip(fits, best, accuracies_RxK.T):
    fitted.fields.update(restart=int(start), restart_accuracies=accuracies.tolist())
  return fits


def best_starts(accuracies_RxK: np.ndarray, losses_RxK: np.ndarray) -> np.ndarray:
  """The start of best validation accuracy for each task; ties go to the least loss, then to the first."""
  return np.lexsort((losses_RxK, -accuracies_RxK), axis=0)[0]


def refitted(fit: Callable[..., list[Fitted]], job: Job, features: Any) -> list[Fitted]:
  """The fits of `fit`, each with the head replaced by a whitened one behind its prompt."""
  fits = fit(job, features)
  batch_size = job.settings.measure.batch_size
  read = tuner_lib.inputs_of_heads(job.tuner, stacked(fits), job.frozen.params, features, batch_size=batch_size)
  anew = []
  for before, inputs, labels, others in zip(fits, np.asarray(read), job.labels, job.other_labels):
    head, of_other = (optimal_heads.whitened_head(job, inputs, each) for each in (labels, others))
    fields = before.fields | head.fields | _of_other_task(job, of_other.is_right)
    anew.append(head._replace(trainable=before.trainable | head.trainable, fields=fields))
  return anew


def _trained(job: Job, features: Any, num_starts: int) -> Trained:
  """Train all starts of all tasks side by side by the method's schedule, and predict every input.

  Start r of a task is drawn like the start of a task numbered r 2^16 higher, so that start 0 is the start of the method
  without restarts.
  """
  settings, params, train = job.settings, job.frozen.params, job.downstream.splits['train']
  schedule = settings.schedule(job.method)
  drawn_as = [start * _START_STRIDE + task for start in range(num_starts) for task in job.tasks]
  examples = tuner_lib.Examples(
    features=_at(features, train),
    labels=np.tile(job.labels[:, train], (num_starts, 1)),
    tasks=np.array(drawn_as, np.int32),
    names=[f'task {task}, {job}' for task in job.tasks] * num_starts,
  )
  states = tuner_lib.fit(jax.random.split(job.trial.keys().tuning), job.tuner, schedule, params, examples)
  *_, (state, losses) = followed(states, schedule.num_epochs, str(job), job.reporter)
  tuner, params = job.tuner.after_features(params)
  batch_size = settings.measure.batch_size
  predicted = tuner_lib.predictions(tuner, state.trainable, params, features, batch_size=batch_size)
  trained = jax.device_get(Trained(state.trainable, losses, predicted))
  return jax.tree.map(lambda x: x.reshape(num_starts, len(job.tasks), *x.shape[1:]), trained)


def _fits(job: Job, trained: Trained) -> list[Fitted]:
  """The fit to each task, of one start of each."""
  is_right_Kxn, is_other_Kxn = trained.predicted == job.labels, trained.predicted == job.other_labels
  return [
    Fitted(_at(trained.trainable, index), is_right_Kxn[index], float(loss), _of_other_task(job, is_other_Kxn[index]))
    for index, loss in enumerate(trained.losses)
  ]


def _of_other_task(job: Job, is_other_label: np.ndarray) -> dict[str, Any]:
  if job.settings.label:
    # There is no other task.
    return {}
  return {'other_task_accuracy': float(is_other_label[job.downstream.splits['test']].mean())}


def followed(
  states: Iterator[tuple[tuner_lib.TuneState, Array | None]], count: int, name: str, reporter: Reporter
) -> Iterator[tuple[tuner_lib.TuneState, Any]]:
  """The states of `fit`, with progress; raises Stopped between two epochs if the run has received a signal."""
  with reporter.track(name, count) as advance:
    for done, (state, losses) in enumerate(states):
      if losses is not None:
        advance(done, f'loss {np.asarray(losses).mean():.3f}')
      yield state, losses


def _at(tree: Any, index: Any) -> Any:
  return jax.tree.map(lambda x: x[index], tree)
