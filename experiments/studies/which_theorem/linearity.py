"""Of every HMM and task: is the score linear in G, are labels separable, and how far are Assumptions 3.1 and 3.5?"""

from jax import Array
import numpy as np

from experiments.runtime.progress import Reporter
from experiments.studies.runner import Row
from experiments.studies.theory import prevalence
from experiments.studies.which_theorem import grid
from experiments.studies.which_theorem.grid import SampledTrial
from experiments.studies.which_theorem.settings import WhichTheoremSettings
from hmm_jax.tasks import Task
from hmm_jax.theory.limits.best_head import proven_certificates, relative_error
from hmm_jax.theory.limits.reachable import linear_score, Reachable, reachable
from hmm_jax.theory.limits.separability import linear_separation, surely_right, whitening


def run(settings: WhichTheoremSettings, key: Array, reporter: Reporter) -> list[Row]:
  """A row for each task; `key` has no part in it, since the trials have their own."""
  rows = list[Row]()
  for drawn in grid.each(settings, 'HMMs', reporter):
    # The [MASK] is the first position, and no token of the text.
    reach = reachable(drawn.hmm, settings.downstream.length - 1)
    rows += [
      {**drawn.fields, 'task': index, **_task_row(settings, drawn, reach, task)}
      for index, task in enumerate(drawn.downstream.tasks)
    ]
  return rows


def _task_row(settings: WhichTheoremSettings, drawn: SampledTrial, reach: Reachable, task: Task) -> Row:
  task_weights = np.asarray(task.task_weights, np.float64)
  score = linear_score(drawn.hmm, reach, task_weights, drawn.hmm.initial_probs)
  probs, states, labels, gaps = drawn.split_rows(
    'test', drawn.token_probs, drawn.state_probs, task.labels, task.margins
  )
  clear = gaps >= settings.near_tie
  error = relative_error(drawn.hmm, settings.downstream.length)
  head_of_states = None if score.head is None else task_weights.T
  is_separable, clear_separable = (
    separable(probs[which], states[which], labels[which], len(task_weights), head_of_states, error, settings.margin)
    for which in (np.ones(len(labels), bool), clear)
  )
  return {
    'majority_accuracy': drawn.majority(task.labels),
    'reached_dimension': reach.dimension,
    'linear': score.head is not None,
    'head_size': score.size,
    'unexplained': unexplained(probs, states @ (task_weights[:-1] - task_weights[-1]).T),
    'separable': is_separable,
    'near_tie_share': float(1 - clear.mean()),
    'clear_separable': clear_separable,
    **prevalence.chain_row(settings.levels, drawn.hmm, task_weights),
  }


def separable(
  features: np.ndarray,
  states: np.ndarray,
  labels: np.ndarray,
  num_classes: int,
  head_of_states: np.ndarray | None,
  error: float,
  tolerance: float,
) -> bool | None:
  """Whether a linear head on the exact G gives every label; None where neither is shown, or there is no input.

  Yes is a head that is right by more than rounding could make of it: one that a linear program finds, in coordinates in
  which the features have unit covariance, as heads may have to be large, or that of a score that is linear in G. No is
  a certificate that is proven (`hmm_jax.theory.limits.best_head`).

  Args:
    features: the exact G [n, V] in float64, each entry off by at most the share `error`.
    states: P[H_1 | X_{-1}] [n, H], likewise.
    labels: [n] ints below `num_classes`.
    head_of_states: [H, C], of a score that is exactly linear in G; None where it is not.
    error: as said.
    tolerance: margins up to this count as none.
  """
  if not len(labels):
    return None
  if head_of_states is not None and surely_right(states, labels, head_of_states).all():
    return True
  to_coordinates = whitening(features)
  found = linear_separation(features @ to_coordinates, labels, num_classes, tolerance)
  if found.separable:
    return True if surely_right(features, labels, to_coordinates @ found.head).all() else None
  is_proven = next(proven_certificates(features, labels, num_classes, error, tolerance), None) is not None
  return False if is_proven else None


def unexplained(features: np.ndarray, scores: np.ndarray) -> float:
  """What least squares of scores [n, C - 1] on features [n, V] leaves, in units of the scores' standard deviation.

  From 0, for a score that is linear on these inputs, to 1; in float64, singular values as numpy's lstsq counts them.
  """
  centred = scores - scores.mean(0)
  rest = scores - features @ np.linalg.lstsq(features, scores)[0]
  return float(np.sqrt((rest**2).sum() / (centred**2).sum()))
