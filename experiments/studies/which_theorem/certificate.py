"""From KL to accuracy: what a head that was fixed on the exact G keeps on a BERT along its pretraining."""

import dataclasses
from typing import Any

from jax import Array
import numpy as np

from experiments.pipeline import pretraining, trial as trial_lib
from experiments.runtime.progress import Reporter
from experiments.studies.runner import Row
from experiments.studies.which_theorem import grid
from experiments.studies.which_theorem.grid import SampledTrial
from experiments.studies.which_theorem.settings import WhichTheoremSettings
from hmm_jax.blocks import in_blocks
from hmm_jax.converged import converged_head
from hmm_jax.heads import LinearHead
from hmm_jax.model import MaskedLM, token_probs
from hmm_jax.theory.limits.kl_certificate import certify, relative_margins


def run(settings: WhichTheoremSettings, key: Array, reporter: Reporter) -> list[Row]:
  """A row for each (HMM, task, checkpoint); `key` has no part in it, since the trials have their own."""
  c, rows = settings.certificate, list[Row]()
  chosen = [t for t in grid.trials(settings) if t.point.num_states in c.num_states and t.trial < c.num_trials]
  model = pretraining.tuned_model(settings.bert_module())
  for number, trial in enumerate(chosen, 1):
    with reporter.part(number, len(chosen), str(trial)), trial_lib.precisely():
      drawn, steps = grid.draw(trial), c.checkpoints
      heads = [fixed_head(settings, drawn, task.labels) for task in drawn.downstream.tasks]
      (inputs,) = drawn.split_rows('test', drawn.downstream.inputs)
      for step, params in pretraining.params_along(settings, drawn.hmm, trial.keys().pretraining, steps, reporter):
        probs = at_mask(model, params, inputs, settings.measure.batch_size)
        rows += [
          {**drawn.fields, 'task': index, 'step': step, **measured(drawn, head, probs, index)}
          for index, head in enumerate(heads)
        ]
  return rows


def fixed_head(settings: WhichTheoremSettings, drawn: SampledTrial, labels: np.ndarray) -> LinearHead:
  """The head that converged on the exact G of the training inputs."""
  how, num_classes = dataclasses.asdict(settings.converged), settings.downstream.num_classes
  return converged_head(*drawn.split_rows('train', drawn.token_probs, labels), num_classes=num_classes, **how).head


def at_mask(model: MaskedLM, params: Any, inputs: np.ndarray, batch_size: int) -> np.ndarray:
  """What the model predicts at the [MASK], [n, V]."""
  first = np.zeros(1, np.int32)
  return in_blocks(lambda block: token_probs(model, params, block, first), inputs, batch_size)[:, 0]


def measured(drawn: SampledTrial, head: LinearHead, model_probs: np.ndarray, task: int) -> Row:
  """The certificate on the test inputs of a task, and the accuracy of the same head on the exact G.

  Raises:
    RuntimeError: more is certified than is right, which the proof excludes.
  """
  probs, labels = drawn.split_rows('test', drawn.token_probs, drawn.downstream.tasks[task].labels)
  found = certify(head, probs, model_probs, labels)
  if not found.accuracy >= found.certified >= found.from_total_variation >= found.from_kl:
    raise RuntimeError(f'{drawn.trial} task {task}: {found}, of which each share is to be at most the one before')
  relative = relative_margins(head, probs, labels)
  return {
    **found._asdict(),
    'exact_accuracy': float((relative > 0).mean()),
    'median_relative_margin': float(np.median(relative)),
  }
