"""The methods of predicting the label, on problems of one shape, each with a frozen model of its own."""

import dataclasses
import operator
from typing import Any

import jax
from jax import Array
import numpy as np

from experiments.pipeline import batched_tuning
from experiments.runtime.progress import Reporter
from experiments.studies.degradation import models
from experiments.studies.degradation.problems import DamagedProblem
from experiments.studies.degradation.settings import DegradationSettings
from experiments.studies.study import Row
from hmm_jax.models.model import MaskedLM
from hmm_jax.theory.degradation import weighted_head
from hmm_jax.tuning import tasks
from hmm_jax.tuning.heads import LinearHead
from hmm_jax.tuning.optimum import converged_head

# The predictions at the [MASK] that the head of each method reads: 'without' a prompt, after the 'trained' prompt, or
# 'built': after the theorem's prompt, which Theorem 3.3 does not have.
READS = {
  'construction': 'built',
  'weighted': 'built',
  'converged_built': 'built',
  'converged_head': 'without',
  'trained_head': 'without',
  'converged_prompt': 'trained',
  'trained_prompt': 'trained',
}


def measure(
  s: DegradationSettings,
  model: MaskedLM,
  problems: list[DamagedProblem],
  frozen: list[Any],
  key: Array,
  reporter: Reporter,
  *,
  is_control: bool,
) -> list[Row]:
  """The accuracy of each method on the test inputs of each problem, and the mass on H*; on a control, of prompts."""
  params, tuners = batched_tuning.stacked(frozen), batched_tuning.tuners(model, s)
  inputs, labels = (np.stack([getattr(problem, name) for problem in problems]) for name in ('inputs', 'labels'))
  # Predictions [problems, n, V], and heads that are trained.
  probs, heads = dict[str, np.ndarray](), dict[str, Any]()
  for name in ('prompt',) if is_control else ('head', 'prompt'):
    features = batched_tuning.features(tuners[name], params, inputs)
    if name == 'head':
      probs['without'] = features
    data = params, features[:, : s.num_train], labels[:, : s.num_train]
    title = f'{name} on {len(problems)} {model.name} models'
    trainables = batched_tuning.train(tuners[name], s.tuning.schedule, *data, key, title, reporter)
    # Each has one start.
    start, *_, end = (jax.tree.map(lambda leaf: leaf[:, 0], trainable) for trainable in trainables)
    heads[f'trained_{name}'] = end['head']
  prompts = {'start': start['prompt'], 'trained': end['prompt']}
  if built := [problem.built_prompt for problem in problems if problem.built_prompt is not None]:
    prompts['built'] = np.stack(built)
  for name, prompt in prompts.items():
    probs[name] = batched_tuning.prompted(tuners['prompt'], prompt, params, inputs)
  seen = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), (probs, heads))
  return [_row(s, problem, *jax.tree.map(operator.itemgetter(i), seen)) for i, problem in enumerate(problems)]


def _row(
  s: DegradationSettings, problem: DamagedProblem, probs: dict[str, np.ndarray], heads: dict[str, LinearHead]
) -> Row:
  """The record of a problem, from predictions [n, V] at the [MASK] and the heads that were trained."""
  train, test, labels = slice(s.num_train), slice(s.num_train, None), problem.labels
  optimisation = dict(num_classes=len(problem.task_weights), **dataclasses.asdict(s.converged))
  optima = {
    name: converged_head(probs[reads][train], labels[train], **optimisation)
    for name, reads in READS.items()
    if name.startswith('converged') and reads in probs
  }
  heads = {**heads, **{name: optimum.head for name, optimum in optima.items()}}
  row: Row = {'majority_accuracy': float(tasks.majority_accuracy(labels[train], labels[test])), 'mass': {}}
  if problem.reader.any():
    row['mass'] = {name: float((probs[name][test] @ problem.reader).mean()) for name in probs if name != 'built'}
  if problem.construction is not None:
    # Theorem 3.3 reads G without a prompt.
    probs = {'built': probs['without'], **probs}
    head, columns = problem.construction['head'], np.asarray(problem.hmm.emission_matrix)[problem.inverted_states].T
    errors = (probs['built'] - problem.ideal_after(problem.built_prompt))[train]
    # The covariance of errors has the ridge of the converged heads, in units of its mean diagonal.
    heads |= {'construction': head, 'weighted': weighted_head(head, columns, errors, s.converged.ridge)}
  scores = {name: probs[READS[name]][test] @ head.weights + head.bias for name, head in heads.items()}
  row['accuracy'] = {name: float((of_head.argmax(-1) == labels[test]).mean()) for name, of_head in scores.items()}
  if 'without' in probs:
    row['kl'] = models.kl(problem.ideal_after(None), probs['without'])
    for field in ('gradient_norm', 'num_iterations'):
      row[field] = max(getattr(optimum, field) for optimum in optima.values())
  return row
