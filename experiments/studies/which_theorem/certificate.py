"""From KL to accuracy: a head fixed on the exact G, read on a BERT along its pretraining."""

import dataclasses
import functools

from jax import Array
import numpy as np

from experiments.pipeline import pretraining, trial as trial_lib
from experiments.runtime.progress import Reporter
from experiments.studies.study import Row
from experiments.studies.which_theorem import grid
from experiments.studies.which_theorem.grid import SampledTrial
from experiments.studies.which_theorem.settings import WhichTheoremSettings
from hmm_jax.blocks import in_blocks
from hmm_jax.converged import converged_head
from hmm_jax.heads import LinearHead
from hmm_jax.model import token_probs
from hmm_jax.theory.limits.kl_certificate import certify, relative_margins


def run(settings: WhichTheoremSettings, key: Array, reporter: Reporter) -> list[Row]:
  """A record for each (HMM, task, checkpoint); `key` is unused, since the trials have their own."""
  c, rows, first = settings.certificate, list[Row](), np.zeros(1, np.int32)
  chosen = [t for t in grid.trials(settings) if t.point.num_states in c.num_states and t.trial < c.num_trials]
  model = pretraining.tuned_model(settings.bert_module())
  for number, trial in enumerate(chosen, 1):
    with reporter.part(number, len(chosen), str(trial)), trial_lib.precisely():
      drawn, steps = grid.draw(trial), c.checkpoints
      heads = [fixed_head(settings, drawn, task.labels) for task in drawn.downstream.tasks]
      (inputs,) = drawn.split_rows('test', drawn.downstream.inputs)
      for step, params in pretraining.params_along(settings, drawn.hmm, trial.keys().pretraining, steps, reporter):
        predict = functools.partial(token_probs, model, params, positions=first)
        at_mask = in_blocks(predict, inputs, settings.measure.batch_size)[:, 0]
        rows += [
          {**grid.fields(trial, index), 'step': step, **measured(drawn, head, at_mask, index)}
          for index, head in enumerate(heads)
        ]
  return rows


def fixed_head(settings: WhichTheoremSettings, drawn: SampledTrial, labels: np.ndarray) -> LinearHead:
  """The head that converged on the exact G of the training inputs."""
  how, num_classes = dataclasses.asdict(settings.converged), settings.downstream.num_classes
  return converged_head(*drawn.split_rows('train', drawn.token_probs, labels), num_classes=num_classes, **how).head


def measured(drawn: SampledTrial, head: LinearHead, model_probs: np.ndarray, task: int) -> Row:
  """The certificate on the test inputs of a task, and the accuracy of the same head on the exact G."""
  probs, labels = drawn.split_rows('test', drawn.token_probs, drawn.downstream.tasks[task].labels)
  relative = relative_margins(head, probs, labels)
  return {
    **certify(head, probs, model_probs, labels)._asdict(),
    'exact_accuracy': float((relative > 0).mean()),
    'median_relative_margin': float(np.median(relative)),
  }
