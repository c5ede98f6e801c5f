"""Facts about each task of Figure 3 (left), on HMMs, inputs and tasks drawn by the keys of prompt_vs_head.

Linearity of the score in G, separability of labels, and distance from Assumptions 3.1 and 3.5.
"""

from collections.abc import Iterator

import jax
from jax import Array
import numpy as np

from experiments.pipeline import checks, trial as trial_lib
from experiments.pipeline.downstream import Downstream
from experiments.runtime.progress import Reporter
from experiments.settings.trial import Trial, trials
from experiments.studies.study import in_parts, Row, Study
from experiments.studies.theory import prevalence
from experiments.studies.which_theorem.kinds_of_tasks import figures, tables
from experiments.studies.which_theorem.settings import WhichTheoremSettings
from hmm_jax.distributions.hmm import HMM
from hmm_jax.tuning import tasks
from hmm_jax.tuning.best_head import proven_certificates, relative_error
from hmm_jax.tuning.reachable import linear_score, reachable
from hmm_jax.tuning.separability import linear_separation, surely_right, whitening


def _facts(settings: WhichTheoremSettings, key: Array, reporter: Reporter) -> list[Row]:
  """A record for each task; `key` is unused, since the trials have their own."""
  by_size, rows = sorted(trials(settings), key=lambda trial: trial.point), list[Row]()
  with reporter.track('HMMs', len(by_size)) as advance:
    for number, trial in enumerate(by_size, 1):
      rows += _task_rows(settings, trial)
      advance(number, f'{trial}')
  return rows


def draw(trial: Trial) -> tuple[HMM, Downstream, np.ndarray]:
  """The HMM in numpy, float32; inputs with the trial's tasks; P[H_1 | X_{-1}] of every input, [n, H] float64."""
  with trial_lib.precisely():
    hmm, downstream = trial_lib.draw(trial)
    state_probs = tasks.hidden_state_probs(hmm, downstream.inputs)
  # The last task may only be drawn as the other of a pair.
  downstream = downstream._replace(tasks=downstream.tasks[: trial.settings.tasks_per_trial])
  return jax.tree.map(np.asarray, hmm), downstream, state_probs


def _task_rows(settings: WhichTheoremSettings, trial: Trial) -> Iterator[Row]:
  """The records of one HMM, in the order of its tasks."""
  hmm, downstream, state_probs = draw(trial)
  train, test = downstream.splits['train'], downstream.splits['test']
  length, states = settings.downstream.length, state_probs[test]
  # The exact G at the [MASK].
  probs = states @ np.float64(hmm.emission_matrix)
  # The [MASK] is the first position, and no token of the text.
  reach, error = reachable(hmm, length - 1), relative_error(hmm, length)
  for index, task in enumerate(downstream.tasks):
    task_weights, labels = np.asarray(task.task_weights, np.float64), task.labels[test]
    score = linear_score(hmm, reach, task_weights, hmm.initial_probs)
    is_linear = score.head is not None
    is_right = surely_right(states, labels, task_weights.T) & is_linear
    # Below this gap float32 does not show the order of scores.
    is_clear = task.margins[test] >= settings.near_tie
    of_all, of_clear = (
      separable(probs[which], labels[which], is_right[which], len(task_weights), error, settings.margin)
      for which in (slice(None), is_clear)
    )
    yield {
      # The first four fields join a record to those of prompt_vs_head.
      'num_states': trial.point.num_states,
      'trial': trial.number,
      'task': index,
      'majority_accuracy': float(tasks.majority_accuracy(task.labels[train], labels)),
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
  """True if a linear head on the exact G gives every label, False if none does; None if undecided or without inputs.

  True needs a head that is right beyond rounding: that of a score linear in G, or one that a linear program finds in
  whitened coordinates, since heads may have to be large. False needs a proven certificate
  (`hmm_jax.tuning.best_head`).

  Args:
    features: the exact G [n, V] in float64, each entry off by at most the share `error`.
    labels: [n] ints below `num_classes`.
    is_right: [n], inputs whose label the head of a linear score is known to give; none if there is no such head.
    num_classes: C.
    error: relative error of `features`.
    tolerance: margins up to this count as none.
  """
  if not len(labels):
    return None
  if is_right.all():
    return True
  to_coordinates = whitening(features)
  separation = linear_separation(features @ to_coordinates, labels, num_classes, tolerance)
  if separation.separable:
    return True if surely_right(features, labels, to_coordinates @ separation.head).all() else None
  is_proven = next(proven_certificates(features, labels, num_classes, error, tolerance), None) is not None
  return False if is_proven else None


def unexplained(features: np.ndarray, scores: np.ndarray) -> float:
  """The residual of least squares of scores [n, C - 1] on features [n, V], in the scores' standard deviations.

  It goes from 0, for a score linear on these inputs, to 1; in float64, with the rank cut-off of numpy's lstsq.
  """
  centred = scores - scores.mean(0)
  rest = scores - features @ np.linalg.lstsq(features, scores)[0]
  return float(np.sqrt((rest**2).sum() / (centred**2).sum()))


STUDY = Study(in_parts(lambda settings: {'linearity': _facts}), tables, figures, checks.check_draws)
