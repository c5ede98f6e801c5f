"""The best linear head on the exact G of the test inputs themselves, and which theorem covers its task."""

from typing import Any

import numpy as np

from experiments.pipeline import optimal_heads
from experiments.pipeline.job import Fitted, Job
from hmm_jax.distributions.hmm import HMM
from hmm_jax.distributions.memory_hmm import MemoryHMM, to_hmm
from hmm_jax.theory import assumptions
from hmm_jax.tuning import best_head, optimum, separability
from hmm_jax.tuning.heads import LinearHead
from hmm_jax.tuning.reachable import linear_score, LinearScore, reachable
from hmm_jax.tuning.tuner import Tuner

# Exact supports; ranks up to rounding.
_EXACT = assumptions.Thresholds()
# Of the search for H*: fewer suffice for HMMs of up to about 20 states.
_MAX_NODES = 2000


def fits(job: Job, tuner: Tuner, states: np.ndarray) -> list[Fitted]:
  """The best linear head found on the exact G of the test inputs, for each task, from posteriors [n, E].

  Where mu's score of the masked state is exactly linear in G, its head competes with that of a search, on inputs whose
  label is certain despite rounding. If that score decides the label of an HMM without a memory, records have `facts`.
  """
  distribution, test = job.frozen.distribution, job.downstream.splits['test']
  probs = optimal_heads.exact_probs(distribution, states)
  hmm = to_hmm(distribution) if isinstance(distribution, MemoryHMM) else distribution
  reach = reachable(hmm, job.inputs.shape[1] - 1)
  found = []
  for task, labels in zip(job.tasks, job.labels):
    if job.settings.label:
      # Labels of the user's own have no mu.
      found.append(_searched(job, probs, labels))
      continue
    weights = _joint_weights(job, task)
    score = linear_score(hmm, reach, weights, hmm.initial_probs)
    best = _searched(job, probs, labels)
    if score.head is not None:
      best = _better(best, score.head, separability.surely_right(states, labels, weights.T), test)
    if _is_label_of_mask(job):
      best.fields.update(facts(hmm, weights, score, states[test], probs[test]))
    found.append(best)
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
    max_rounds=4,
    max_certificates=1000,
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


def _is_label_of_mask(job: Job) -> bool:
  """True if labels are of the masked state of an HMM without a memory, and no token is cut off."""
  d = job.settings.downstream
  is_whole = job.inputs.shape[1] == d.length
  return isinstance(job.frozen.distribution, HMM) and d.label_state == 'first' and is_whole


def facts(
  hmm: HMM, task_weights: np.ndarray, score: LinearScore, state_probs: np.ndarray, probs: np.ndarray
) -> dict[str, Any]:
  """The facts that decide which theorem covers a task: linearity of its score in G, and Assumptions 3.1 and 3.5.

  Args:
    hmm: without a memory.
    task_weights: mu [C, H], which labels the state of the [MASK].
    score: whether mu's score is linear in G, from `linear_score`.
    state_probs: P[H_1 | X_{-1}] of inputs [n, H].
    probs: the exact G of the same, [n, V].
  """
  independent = assumptions.non_degeneracy(hmm, _EXACT)
  cover = assumptions.relaxed_non_degeneracy(hmm, task_weights, _EXACT, _MAX_NODES)
  return {
    'linear': score.head is not None,
    'exact_head_size': score.size,
    'unexplained': unexplained(probs, state_probs @ assumptions.contrasts(task_weights).T),
    'smallest_singular_value': independent.closeness['smallest_singular_value'],
    'assumption_3_1': independent.holds,
    'assumption_3_5': cover.holds,
    # Without any cover there is nothing to search.
    'assumption_3_5_exhaustive': cover.witness.get('exhaustive', True),
  }


def unexplained(probs: np.ndarray, scores: np.ndarray) -> float | None:
  """The residual of least squares of scores [n, C] on G [n, V], in the scores' standard deviations.

  It goes from 0, for scores linear on these inputs, to 1; None for constant scores.
  """
  deviations = np.linalg.norm(scores - scores.mean(0))
  residuals = np.linalg.norm(scores - probs @ np.linalg.lstsq(probs, scores)[0])
  return float(residuals / deviations) if deviations else None
