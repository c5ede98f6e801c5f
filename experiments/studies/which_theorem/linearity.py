"""For every HMM and task: is the score linear in G, are labels separable, and how far are Assumptions 3.1 and 3.5?"""

from collections.abc import Iterator

import numpy as np

from experiments.studies.study import Row
from experiments.studies.theory import prevalence
from experiments.studies.which_theorem.grid import SampledTrial
from experiments.studies.which_theorem.settings import WhichTheoremSettings
from hmm_jax.theory.limits.best_head import proven_certificates, relative_error
from hmm_jax.theory.limits.reachable import linear_score, reachable
from hmm_jax.theory.limits.separability import linear_separation, surely_right, whitening


def rows_of(settings: WhichTheoremSettings, drawn: SampledTrial) -> Iterator[Row]:
  """A record for each task of an HMM."""
  hmm, length = drawn.hmm, settings.downstream.length
  # The [MASK] is the first position, and no token of the text.
  reach, error = reachable(hmm, length - 1), relative_error(hmm, length)
  for task in drawn.downstream.tasks:
    task_weights = np.asarray(task.task_weights, np.float64)
    score = linear_score(hmm, reach, task_weights, hmm.initial_probs)
    is_linear = score.head is not None
    probs, states, labels, gaps = drawn.split_rows(
      'test', drawn.token_probs, drawn.state_probs, task.labels, task.margins
    )
    is_right = surely_right(states, labels, task_weights.T) & is_linear
    # Scores that differ by less are in an order that float32 does not show.
    is_clear = gaps >= settings.near_tie
    of_all, of_clear = (
      separable(probs[which], labels[which], is_right[which], len(task_weights), error, settings.margin)
      for which in (slice(None), is_clear)
    )
    yield {
      'reached_dimension': len(reach.basis),
      'linear': is_linear,
      'head_size': score.size,
      'unexplained': unexplained(probs, states @ (task_weights[:-1] - task_weights[-1]).T),
      'separable': of_all,
      'near_tie_share': float(1 - is_clear.mean()),
      'clear_separable': of_clear,
      **prevalence.chain_row(settings.levels, hmm, task_weights),
    }


def separable(
  features: np.ndarray, labels: np.ndarray, is_right: np.ndarray, num_classes: int, error: float, tolerance: float
) -> bool | None:
  """True if a linear head on the exact G gives every label; None if neither answer is shown, or there is no input.

  Yes is a head that is right by more than rounding could make of it: one that a linear program finds, in coordinates in
  which the features have unit covariance, as heads may have to be large, or that of a score that is linear in G. No is
  a certificate that is proven (`hmm_jax.theory.limits.best_head`).

  Args:
    features: the exact G [n, V] in float64, each entry off by at most the share `error`.
    labels: [n] ints below `num_classes`.
    is_right: [n], inputs whose label the head of a linear score is known to give; none where there is no such head.
    num_classes: C.
    error: as said.
    tolerance: margins up to this count as none.
  """
  if not len(labels):
    return None
  if is_right.all():
    return True
  to_coordinates = whitening(features)
  found = linear_separation(features @ to_coordinates, labels, num_classes, tolerance)
  if found.separable:
    return True if surely_right(features, labels, to_coordinates @ found.head).all() else None
  is_proven = next(proven_certificates(features, labels, num_classes, error, tolerance), None) is not None
  return False if is_proven else None


def unexplained(features: np.ndarray, scores: np.ndarray) -> float:
  """The residual of least squares of scores [n, C - 1] on features [n, V], in the scores' standard deviations.

  From 0, for a score that is linear on these inputs, to 1; in float64, singular values as numpy's lstsq counts them.
  """
  centred = scores - scores.mean(0)
  rest = scores - features @ np.linalg.lstsq(features, scores)[0]
  return float(np.sqrt((rest**2).sum() / (centred**2).sum()))
