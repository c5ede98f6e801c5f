"""Search for a prompt that solves a task on the exact model (docs/findings/theory.md)."""

from collections.abc import Iterator

import numpy as np

from experiments.studies.study import Row
from experiments.studies.which_theorem.grid import SampledTrial
from experiments.studies.which_theorem.settings import PromptSettings, WhichTheoremSettings
from hmm_jax.hmm import HMM
from hmm_jax.theory.limits import constant_prompt
from hmm_jax.theory.limits.constant_prompt import Limits
from hmm_jax.theory.theorems import assumptions
from hmm_jax.theory.theorems.assumptions import Thresholds
from hmm_jax.theory.theorems.recovery import Construction


def rows_of(settings: WhichTheoremSettings, drawn: SampledTrial) -> Iterator[Row]:
  """A record for each task of an HMM."""
  for task in drawn.downstream.tasks:
    inputs, labels = drawn.split_rows('test', drawn.downstream.inputs, task.labels)
    yield measured(drawn.hmm, np.asarray(task.task_weights), inputs, labels, settings.prompts)


def measured(
  hmm: HMM, task_weights: np.ndarray, inputs: np.ndarray, labels: np.ndarray, settings: PromptSettings
) -> Row:
  """The findings on prompts for one task, as JSON.

  Four fields have a value for each epsilon, as text, up to which transitions count as 0: `3.5`, true if that assumption
  holds; `constant_prompt`, the outcome of the search for a prompt and a head; the `error` of this construction in
  float64, without those transitions; its `accuracy` on the inputs, with them. The last two are null if nothing was
  built.

  Args:
    hmm: the model's chain, H states and V tokens.
    task_weights: mu [C, H], of P[H_1 | X_{-1}].
    inputs: [n, T], a [MASK] first.
    labels: [n].
    settings: levels and limits of the searches.
  """
  limits = Limits(settings.max_covers, settings.max_boxes, settings.max_nodes)
  found = Row({'3.5': {}, 'constant_prompt': {}, 'error': {}, 'accuracy': {}})
  for level in settings.support_levels:
    thresholds = Thresholds(level, settings.rank_level)
    relaxed = assumptions.relaxed_non_degeneracy(hmm, task_weights, thresholds, settings.max_nodes)
    decided = constant_prompt.constant_prompt(hmm, task_weights, hmm.initial_probs, thresholds, limits)
    built = decided.construction
    right = None if built is None else accuracy(hmm, built, inputs, labels)
    for row, value in zip(found.values(), (relaxed.holds, decided.outcome, built and decided.error, right)):
      row[str(level)] = value
  return found


def accuracy(hmm: HMM, construction: Construction, inputs: np.ndarray, labels: np.ndarray) -> float:
  """The share of inputs [n, T] on which a prompt and a linear head are right on the exact model, in float64."""
  token_probs = constant_prompt.token_probs_behind(hmm, construction['prompt'], inputs[:, 1:])
  head = construction['head']
  return float(((token_probs @ head.weights + head.bias).argmax(-1) == labels).mean())
