"""Is a prompt of the exact model right on a task: by the condition of docs/prompts.md, what it builds, and a proof?"""

from typing import Any

from jax import Array
import numpy as np

from experiments.runtime.progress import Reporter
from experiments.studies.runner import Row
from experiments.studies.which_theorem import grid
from experiments.studies.which_theorem.settings import PromptSettings, WhichTheoremSettings
from hmm_jax.hmm import HMM
from hmm_jax.theory.limits import constant_prompt, no_prompt
from hmm_jax.theory.limits.constant_prompt import Limits
from hmm_jax.theory.theorems import assumptions
from hmm_jax.theory.theorems.assumptions import Thresholds
from hmm_jax.theory.theorems.recovery import Construction


def run(settings: WhichTheoremSettings, key: Array, reporter: Reporter) -> list[Row]:
  """A row for each task; `key` has no part in it, since the trials have their own."""
  rows = list[Row]()
  for drawn in grid.each(settings, 'prompts', reporter):
    for index, task in enumerate(drawn.downstream.tasks):
      inputs, labels = drawn.split_rows('test', drawn.downstream.inputs, task.labels)
      found = measured(drawn.hmm, np.asarray(task.task_weights), inputs, labels, settings.prompts)
      rows.append({**drawn.fields, 'task': index, 'majority_accuracy': drawn.majority(task.labels), **found})
  return rows


def measured(
  hmm: HMM, task_weights: np.ndarray, inputs: np.ndarray, labels: np.ndarray, settings: PromptSettings
) -> dict[str, Any]:
  """What is known of prompts for one task, as JSON.

  By each epsilon, as text, up to which transitions count as 0: `3.5`, whether that assumption holds;
  `constant_prompt`, the outcome of the search for a prompt and a head; of what it built the `error` in float64, without
  those transitions, and the `accuracy` on the inputs, with them; null where nothing was built. `no_prompt` is the
  outcome of the search for a proof that no prompt is right on all inputs, `num_refuted` its sign patterns.

  Args:
    hmm: the model's chain, H states and V tokens.
    task_weights: mu [C, H], of P[H_1 | X_{-1}].
    inputs: [n, T], a [MASK] first.
    labels: [n].
    settings: levels and limits of the searches.
  """
  limits = Limits(settings.max_covers, settings.max_boxes, settings.max_nodes)
  found = dict[str, Any]({'3.5': {}, 'constant_prompt': {}, 'error': {}, 'accuracy': {}})
  for level in settings.support_levels:
    thresholds, name = Thresholds(level, settings.rank_level), str(level)
    relaxed = assumptions.relaxed_non_degeneracy(hmm, task_weights, thresholds, settings.max_nodes)
    decided = constant_prompt.constant_prompt(hmm, task_weights, hmm.initial_probs, thresholds, limits)
    built = decided.construction
    found['3.5'][name] = relaxed.holds
    found['constant_prompt'][name] = decided.outcome
    found['error'][name] = None if built is None else decided.error
    found['accuracy'][name] = None if built is None else accuracy(hmm, built, inputs, labels)
  proof = no_prompt.no_prompt(hmm, task_weights, hmm.initial_probs, inputs[:, 1:], settings.max_states)
  return found | {'no_prompt': proof.outcome, 'num_refuted': len(proof.refutations)}


def accuracy(hmm: HMM, construction: Construction, inputs: np.ndarray, labels: np.ndarray) -> float:
  """The share of inputs [n, T] on which a prompt and a linear head are right on the exact model, in float64."""
  token_probs = constant_prompt.token_probs_behind(hmm, construction['prompt'], inputs[:, 1:])
  head = construction['head']
  return float(((token_probs @ head.weights + head.bias).argmax(-1) == labels).mean())
