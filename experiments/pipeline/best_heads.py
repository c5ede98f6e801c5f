"""The best linear head on the exact G of the test inputs themselves."""

import numpy as np

from experiments.pipeline import optimal_heads
from experiments.pipeline.job import Fitted, Job
from hmm_jax.distributions.hmm import HMM
from hmm_jax.distributions.memory_hmm import MemoryHMM, to_hmm
from hmm_jax.tuning import best_head, optimum, separability
from hmm_jax.tuning.heads import LinearHead
from hmm_jax.tuning.reachable import linear_score, reachable


def fits(job: Job, states: np.ndarray) -> list[Fitted]:
  """The best linear head found on the exact G of the test inputs, for each task, from posteriors [n, E].

  Where mu's score of the masked state is exactly linear in G, its head competes with that of a search, on inputs whose
  label is certain despite rounding.
  """
  distribution, test = job.frozen.distribution, job.downstream.splits['test']
  probs = optimal_heads.exact_probs(distribution, states)
  hmm = to_hmm(distribution) if isinstance(distribution, MemoryHMM) else distribution
  reach = reachable(hmm, job.inputs.shape[1] - 1)
  found = [_searched(job, probs, labels) for labels in job.labels]
  if job.settings.label:
    # Labels of the user's own have no mu.
    return found
  for index, (task, labels) in enumerate(zip(job.tasks, job.labels)):
    weights = _joint_weights(job, task)
    score = linear_score(hmm, reach, weights, hmm.initial_probs)
    if score.head is not None:
      is_right = separability.surely_right(states, labels, weights.T)
      found[index] = _better(found[index], score.head, is_right, test)
  return found


def _better(best: Fitted, head: np.ndarray, is_right: np.ndarray, test: slice) -> Fitted:
  """The `best` of a search, or the head [V, C - 1] of a linear score if it is right on as many test inputs."""
  if is_right[test].sum() < best.is_right[test].sum():
    return best
  weights = np.pad(head.astype(np.float64), ((0, 0), (0, 1)))
  separable = bool(is_right[test].all()) or best.fields['separable']
  return Fitted(_linear(weights), is_right, None, best.fields | {'separable': separable})


def _linear(weights: np.ndarray) -> dict[str, LinearHead]:
  return {'head': LinearHead(weights, np.zeros(weights.shape[1]))}


def _searched(job: Job, probs: np.ndarray, labels: np.ndarray) -> Fitted:
  """The head of `best_head` on the test inputs, from heads converged on training and on test inputs."""
  settings, splits, test = job.settings, job.downstream.splits, job.downstream.splits['test']
  how = [(splits['train'], settings.converged.ridge), (test, 1e-6), (test, 1e-4)]
  starts = [
    optimal_heads.optimum_of(job, optimum.converged_head, probs[where], labels[where], ridge=ridge).head
    for where, ridge in how
  ]
  best = best_head.best_head(
    probs[test],
    labels[test],
    settings.downstream.num_classes,
    # The entries of G sum to 1, so that a bias can be a part of every weight.
    [np.asarray(start.weights + start.bias) for start in starts],
    error=best_head.relative_error(job.frozen.distribution, job.inputs.shape[1]),
    tolerance=settings.on_test.tolerance,
  )
  fields = {
    'accuracy_at_most': best.accuracy_at_most,
    'separable': best.separable,
    'certificate_residual': best.residual,
  }
  return Fitted(_linear(best.head), (probs @ best.head).argmax(1) == labels, None, fields)


def _joint_weights(job: Job, task: int) -> np.ndarray:
  """mu on joint states, [C, E] float64."""
  distribution = job.frozen.distribution
  weights = np.asarray(job.downstream.tasks[task].task_weights, np.float64)
  if isinstance(distribution, HMM):
    return weights
  cells = np.indices(distribution.memory_probs.shape).reshape(distribution.num_cells, -1)
  return np.repeat(weights[:, cells[job.settings.memory.label_cell]], distribution.num_states, axis=1)
