"""Linear heads at an optimum on training inputs, without a schedule."""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
from typing import Any

import jax
import numpy as np
import scipy.special

from experiments.pipeline.job import Fitted, Job
from hmm_jax.distributions.hmm import Distribution, HMM
from hmm_jax.distributions.memory_hmm import MemoryHMM, to_hmm
from hmm_jax.theory.masks import masks_as_one_token
from hmm_jax.tuning import optimum, tasks as tasks_lib

# A function of `optimum`.
Fit = Callable[..., optimum.Converged]
# Ridges of whitened heads, and of those on standardised features, from the largest, which is taken if several tie.
_RIDGES = (1e-1, 1e-3, 1e-5, 1e-7, 1e-9)
_LARGER_RIDGES = (10.0, 1.0, 1e-1, 1e-2, 1e-3, 1e-5)
# Sizes of the noise on the exact G, in units of a BERT's error.
_NOISES = (1e-8, 1e-6, 1e-4, 1e-2, 0.1, 1.0)


def states(job: Job) -> np.ndarray:
  """The exact posterior of the state at the [MASK] of the inputs, or of the joint state, [n, E] float64."""
  return tasks_lib.hidden_state_probs(job.frozen.distribution, job.inputs, job.settings.downstream.hidden_position)


def exact_probs(distribution: Distribution, states: np.ndarray) -> np.ndarray:
  """The exact G [n, V] of posteriors [n, E], in float64, for fits in float64.

  Float32 G hides directions in which rows of W differ by less than its rounding.
  """
  return states @ np.asarray(distribution.joint_emission_matrix, np.float64)


def exact_marginals_at_masks(distribution: HMM | MemoryHMM, inputs: np.ndarray, masks: int) -> np.ndarray:
  """The exact marginals of k [MASK]s before inputs [n, T], as in `tuning.mask_laws`, in float64."""
  hmm = to_hmm(distribution) if isinstance(distribution, MemoryHMM) else distribution
  last = masks_as_one_token(hmm, masks, joint=False)
  return tasks_lib.hidden_state_probs(hmm.starting_from(last.initial_probs), inputs) @ last.emission_matrix


def for_each(fit: Callable[..., Fitted], job: Job, features: Any) -> list[Fitted]:
  """The results of `fit`, (job, features, labels [n]) -> Fitted, for each task."""
  return [fit(job, features, labels) for labels in job.labels]


def num_parameters(job: Job, features: Any, fits: list[Fitted]) -> list[dict[str, Any]]:
  """The number of parameters of each head."""
  return [{'num_parameters': sum(map(np.size, jax.tree.leaves(fitted.trainable)))} for fitted in fits]


def converged_head(job: Job, features: np.ndarray, labels: np.ndarray) -> Fitted:
  """The head at the optimum on the training inputs."""
  return head_of(job, optimum.converged_head, features, labels)


def whitened_head(job: Job, features: np.ndarray, labels: np.ndarray, ridge: float | None = None) -> Fitted:
  """The head at the optimum of features that are whitened on the training inputs, of the ridge best on validation."""
  return _of_best_ridge(job, optimum.whitened_head, _RIDGES, features, labels, ridge)


def whitened_on_model(job: Job, features: np.ndarray, labels: np.ndarray) -> Fitted:
  """The `whitened_head`, of the least ridge on the exact model."""
  return whitened_head(job, features, labels, _RIDGES[-1] if job.frozen.name == 'exact' else None)


def standardised_head(job: Job, features: np.ndarray, labels: np.ndarray) -> Fitted:
  """The head at the optimum of standardised features, of the ridge that is best on validation."""
  return _of_best_ridge(job, optimum.standardised_head, _LARGER_RIDGES, features, labels)


def _of_best_ridge(
  job: Job, fit: Fit, ridges: Sequence[float], features: np.ndarray, labels: np.ndarray, given: float | None = None
) -> Fitted:
  """The head of a given ridge, by default that of best validation accuracy, the first if several tie."""
  heads = {ridge: head_of(job, fit, features, labels, ridge=ridge) for ridge in ridges}
  return chosen(heads, job.downstream.splits, 'ridge', given)


def head_of(job: Job, fit: Fit, features: np.ndarray, labels: np.ndarray, **changes: float) -> Fitted:
  """The head at the optimum on the training inputs, and its answers on all."""
  train = job.downstream.splits['train']
  head, gradient_norm = optimum_of(job, fit, features[train], labels[train], **changes)
  scores = features.astype(np.float64) @ head.weights + head.bias
  log_probs = scipy.special.log_softmax(scores[train], axis=1)
  loss = -float(np.take_along_axis(log_probs, labels[train, None], axis=1).mean())
  return Fitted({'head': head}, scores.argmax(1) == labels, loss, {'gradient_norm': gradient_norm})


def optimum_of(job: Job, fit: Fit, features: np.ndarray, labels: np.ndarray, **changes: float) -> optimum.Converged:
  """The result of a function of `optimum`, by the settings and `changes`."""
  how = dataclasses.asdict(job.settings.converged) | changes
  return fit(features, labels, num_classes=job.settings.downstream.num_classes, **how)


def chosen(fits: Mapping[Any, Fitted], splits: dict[str, slice], name: str, given: Any = None) -> Fitted:
  """The fit of a `given` value, by default that of best validation accuracy, the first if several tie.

  It gets the field `name`, its value, and with `_accuracies` after that name all values in order with their test
  accuracies.
  """
  best = given or max(fits, key=lambda value: fits[value].is_right[splits['validation']].mean())
  along = [(value, float(fits[value].is_right[splits['test']].mean())) for value in sorted(fits)]
  fields = {**fits[best].fields, name: best, f'{name}_accuracies': along}
  return fits[best]._replace(fields=fields)


def under_noise(job: Job, probs: np.ndarray, fits: list[Fitted]) -> list[dict[str, Any]]:
  """The `noise_accuracies` of each task on a BERT that predicts `probs` [n, V]; no fields on another model."""
  if job.frozen.name != 'bert':
    return [{} for _ in fits]
  exact = exact_probs(job.frozen.distribution, states(job))
  return [{'noise_accuracies': noise_accuracies(job, probs, exact, labels)} for labels in job.labels]


def noise_accuracies(job: Job, probs: np.ndarray, exact: np.ndarray, labels: np.ndarray) -> list[tuple[float, float]]:
  """The test accuracy of whitened heads on the exact G [n, V] with noise of each of the sizes.

  The noise is the error of a model's `probs` [n, V] on the previous input, which is independent of this one.
  """
  noise, test = np.roll(probs - exact, 1, axis=0), job.downstream.splits['test']
  noisy = {size: whitened_head(job, exact + size * noise, labels) for size in _NOISES}
  return [(size, float(fitted.is_right[test].mean())) for size, fitted in noisy.items()]


def sizes(job: Job, features: Any, fits: list[Fitted]) -> list[dict[str, Any]]:
  """The `head_size` of each linear head.

  It is osc(b) / osc(mu) of the contrast of two classes, osc the largest minus the least entry; the largest of several.
  """
  fields: list[dict[str, Any]] = []
  for fitted, task in zip(fits, job.tasks):
    if job.settings.label:
      # Labels of the user's own have no mu.
      fields.append({})
      continue
    of_head = _oscillations(np.asarray(fitted.trainable['head'].weights).T)
    of_task = _oscillations(np.asarray(job.downstream.tasks[task].task_weights))
    fields.append({'head_size': float((of_head / of_task).max())})
  return fields


def _oscillations(rows: np.ndarray) -> np.ndarray:
  """The ranges of the contrasts of the first of rows [C, F] with each other one, [C - 1]."""
  return np.ptp(np.float64(rows[1:] - rows[0]), axis=1)
