"""Of every HMM and task: is the score linear in G, are labels separable, and how far are Assumptions 3.1 and 3.5?"""

from jax import Array
import numpy as np

from experiments.parts import Row
from experiments.progress import Reporter
from experiments.theory import prevalence
from experiments.which_theorem import grid
from experiments.which_theorem.grid import Drawn
from experiments.which_theorem.settings import WhichTheoremSettings
from hmm_jax.tasks import Task
from hmm_jax.theory.reachable import linear_score, Reachable, reachable
from hmm_jax.theory.separability import linear_separation, surely_right, whitening


def run(settings: WhichTheoremSettings, key: Array, reporter: Reporter) -> list[Row]:
  """A row for each task; `key` has no part in it, since the trials have their own."""
  rows = list[Row]()
  for drawn in grid.each(settings, 'HMMs', reporter):
    # The [MASK] is the first position, and no token of the text.
    reach = reachable(drawn.hmm, settings.downstream.length - 1)
    rows += [
      {**drawn.fields, 'task': index, **_of_task(settings, drawn, reach, task)}
      for index, task in enumerate(drawn.downstream.tasks)
    ]
  return rows


def _of_task(settings: WhichTheoremSettings, drawn: Drawn, reach: Reachable, task: Task) -> Row:
  task_weights = np.asarray(task.task_weights)
  score = linear_score(drawn.hmm, reach, task_weights, drawn.hmm.initial_probs)
  probs, states, labels, gaps = drawn.of_split('test', drawn.token_probs, drawn.state_probs, task.labels, task.margins)
  clear = gaps >= settings.near_tie
  is_separable, margin, residual = separable(probs, labels, len(task_weights), settings.margin)
  of_clear = separable(probs[clear], labels[clear], len(task_weights), settings.margin)
  return {
    'majority_accuracy': drawn.majority(task.labels),
    'reached_dimension': reach.dimension,
    'linear': score.head is not None,
    'head_size': score.size,
    'unexplained': unexplained(probs, states @ (task_weights[:-1] - np.float64(task_weights[-1])).T),
    'separable': is_separable,
    'margin': margin,
    'certificate_residual': residual,
    'near_tie_share': float(1 - clear.mean()),
    'clear_separable': of_clear[0],
    'clear_margin': of_clear[1],
    'clear_certificate_residual': of_clear[2],
    **prevalence.of_chain(settings.levels, drawn.hmm, task_weights),
  }


def separable(
  features: np.ndarray, labels: np.ndarray, num_classes: int, tolerance: float
) -> tuple[bool | None, float, float]:
  """Whether a linear head gives every label; its margin, and the residual of a proof that there is none.

  None where float64 leaves it open, or there is no input.

  All in coordinates in which the features have unit covariance, as heads may have to be large. Yes is a head that is
  right by more than rounding could make of it; no is a certificate whose residual is no more than the tolerance. Where
  the labels of near ties hang on what float64 does not show in G, it says no although larger heads may exist.
  """
  if not len(labels):
    return None, 0.0, 0.0
  to_coordinates = whitening(features)
  found = linear_separation(features @ to_coordinates, labels, num_classes, tolerance)
  if found.separable:
    is_right = bool(surely_right(features, labels, to_coordinates @ found.head).all())
    return (True if is_right else None), found.margin, found.residual
  return (False if found.residual <= tolerance else None), found.margin, found.residual


def unexplained(features: np.ndarray, scores: np.ndarray) -> float:
  """What least squares of scores [n, C - 1] on features [n, V] leaves, in units of the scores' standard deviation.

  From 0, for a score that is linear on these inputs, to 1; in float64, singular values as numpy's lstsq counts them.
  """
  centred = scores - scores.mean(0)
  rest = scores - features @ np.linalg.lstsq(features, scores)[0]
  return float(np.sqrt((rest**2).sum() / (centred**2).sum()))
