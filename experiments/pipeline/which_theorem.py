"""Facts that decide which theorem covers a task: linearity of its score in G, and Assumptions 3.1 and 3.5."""

from typing import Any

import numpy as np

from hmm_jax.distributions.hmm import HMM
from hmm_jax.theory import assumptions
from hmm_jax.tuning.reachable import LinearScore

# Exact supports; ranks up to rounding.
_EXACT = assumptions.Thresholds(0.0, 1e-9)
# Of the search for H*: fewer suffice for HMMs of up to about 20 states.
_MAX_NODES = 2000


def facts(
  hmm: HMM, task_weights: np.ndarray, score: LinearScore, state_probs: np.ndarray, probs: np.ndarray
) -> dict[str, Any]:
  """The facts of a task by the names of their fields.

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
