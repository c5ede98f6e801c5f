"""Linear heads at an optimum, without a schedule: on training inputs, and on the test inputs themselves."""

from collections.abc import Callable
import dataclasses
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
import scipy.special

from experiments.pipeline import which_theorem
from experiments.pipeline.downstream import Downstream
from experiments.settings.grid import Settings
from hmm_jax.distributions.hmm import Distribution, HMM
from hmm_jax.distributions.memory_hmm import MemoryHMM, to_hmm
from hmm_jax.theory.masks import masks_as_one_token
from hmm_jax.tuning import best_head, optimum, separability, tasks as tasks_lib, token_readers
from hmm_jax.tuning.heads import LinearHead
from hmm_jax.tuning.reachable import linear_score, reachable

Splits = dict[str, slice]
# Ridges of whitened heads: the exact model takes the least, another the best on validation.
_RIDGES = (1e-9, 1e-7, 1e-5, 1e-3, 1e-1)
# Sizes of the noise on the exact G, in units of a BERT's error.
_NOISES = (1e-8, 1e-6, 1e-4, 1e-2, 0.1, 1.0)
# The most tokens that readers without a model take into account.
_MOST_TOKENS = 8
# Fields that only some methods fill; null for the others, except those of `nearest_readers` and `which_theorem`, which
# only these have.
NO_FIELDS: dict[str, Any] = dict.fromkeys(
  (
    'attention_by',
    'attention_profile',
    'attention_rank_correlation',
    'accuracy_at_most',
    'separable',
    'certificate_residual',
    'gradient_norm',
    'head_size',
    'ridge',
    'ridge_accuracies',
    'noise_accuracies',
    'other_task_accuracy',
    'restart',
    'restart_accuracies',
  )
)


class Fitted(NamedTuple):
  """A fit to one task.

  Attributes:
    trainable: its arrays.
    is_right: [n], whether each input gets its label.
    loss: mean cross-entropy on the training inputs in nats, of the last epoch if there are epochs; None if another
      objective was minimised.
    fields: of its record, the non-null ones of NO_FIELDS.
  """

  trainable: Any
  is_right: np.ndarray
  loss: float | None
  fields: dict[str, Any]


def exact_probs(distribution: Distribution, inputs: np.ndarray, hidden: int = 0) -> np.ndarray:
  """The exact G [n, V] at the [MASK] of inputs [n, T], position `hidden`, in float64, for fits in float64.

  Float32 G hides directions in which rows of W differ by less than its rounding.
  """
  states = tasks_lib.hidden_state_probs(distribution, inputs, hidden)
  return states @ np.asarray(distribution.joint_emission_matrix, np.float64)


def exact_marginals_at_masks(distribution: HMM | MemoryHMM, inputs: np.ndarray, masks: int) -> np.ndarray:
  """The exact marginals of k [MASK]s before inputs [n, T], as in `tuning.mask_laws`, in float64."""
  hmm = to_hmm(distribution) if isinstance(distribution, MemoryHMM) else distribution
  last = masks_as_one_token(hmm, masks, joint=False)
  return tasks_lib.hidden_state_probs(hmm.starting_from(last.initial_probs), inputs) @ last.emission_matrix


def converged_head(settings: Settings, features: np.ndarray, labels: np.ndarray, splits: Splits) -> Fitted:
  """The head at the optimum on the training inputs, of features [n, F] and labels [n]."""
  return _fitted(settings, features, labels, splits, settings.converged.ridge, optimum.converged_head)


def whitened_head(
  settings: Settings, features: np.ndarray, labels: np.ndarray, splits: Splits, is_exact: bool
) -> Fitted:
  """The converged head of features [n, F] that are whitened on the training inputs.

  Exact features take the least ridge; others that of the best validation accuracy, the largest if several tie.
  """
  heads = {
    ridge: _fitted(settings, features, labels, splits, ridge, optimum.whitened_head) for ridge in reversed(_RIDGES)
  }
  return _chosen(heads, splits, 'ridge', 'ridge_accuracies', _RIDGES[0] if is_exact else None)


def refitted_head(
  settings: Settings, fitted: Fitted, features: np.ndarray, labels: np.ndarray, splits: Splits
) -> Fitted:
  """The fit with the head replaced by a whitened one of the features [n, F] behind its prompt."""
  head = whitened_head(settings, features, labels, splits, is_exact=False)
  return head._replace(trainable={**fitted.trainable, **head.trainable}, fields={**fitted.fields, **head.fields})


def nearest_readers(settings: Settings, downstream: Downstream, tasks: list[int], fit: str) -> list[Fitted]:
  """The reader of the tokens nearest the [MASK] for each of `tasks`: a 'table', or 'converged' on one-hot tokens.

  It reads at most 8 tokens, the fewest of best validation accuracy. The field `changed_shares` has the share of test
  labels that change if only the k = 0, ..., 8 nearest tokens are kept, the others masked.
  """
  inputs, splits, num_tokens = downstream.inputs, downstream.splits, settings.hmm.num_tokens
  train, test, counts = splits['train'], splits['test'], range(min(_MOST_TOKENS, inputs.shape[1] - 1) + 1)
  nearest = token_readers.nearest_tokens(inputs, num_tokens)

  def read(count: int, labels: np.ndarray) -> Fitted:
    tokens = nearest[:, :count]
    if fit == 'converged':
      return converged_head(settings, np.eye(num_tokens)[tokens].reshape(len(labels), -1), labels, splits)
    answers = token_readers.table_labels(tokens[train], labels[train], tokens)
    return Fitted({}, answers == labels, None, {})

  probs = [downstream.label_probs(token_readers.keep_nearest(inputs[test], num_tokens, count)) for count in counts]
  readers = []
  for task, labels in zip(tasks, downstream.labels(tasks)):
    relabelled = [tasks_lib.labelled(downstream.tasks[task].task_weights, kept).labels for kept in probs]
    fits = {count: read(count, labels) for count in counts}
    reader = _chosen(fits, splits, 'tokens_read', 'tokens_read_accuracies')
    reader.fields['changed_shares'] = [float((new != labels[test]).mean()) for new in relabelled]
    readers.append(reader)
  return readers


def _chosen(fits: dict[Any, Fitted], splits: Splits, value: str, accuracies: str, given: float | None = None) -> Fitted:
  """The fit of a `given` value, by default that of best validation accuracy, the first if several tie.

  It gets the fields `value`, its value, and `accuracies`, all values in order with their test accuracies.
  """
  validation, test = splits['validation'], splits['test']
  best = given or max(fits, key=lambda number: fits[number].is_right[validation].mean())
  along = [(number, float(fits[number].is_right[test].mean())) for number in sorted(fits)]
  return fits[best]._replace(fields={**fits[best].fields, value: best, accuracies: along})


def noise_accuracies(
  settings: Settings, probs: np.ndarray, exact: np.ndarray, labels: np.ndarray, splits: Splits
) -> list[tuple[float, float]]:
  """The test accuracy of whitened heads on the exact G [n, V] with noise of each of the sizes.

  The noise is the error of a model's `probs` [n, V] on the previous input, which is independent of this one.
  """
  noise, test = np.roll(probs - exact, 1, axis=0), splits['test']
  noisy = {size: whitened_head(settings, exact + size * noise, labels, splits, False) for size in _NOISES}
  return [(size, float(fitted.is_right[test].mean())) for size, fitted in noisy.items()]


def head_size(head: LinearHead, task_weights: ArrayLike) -> float:
  """osc(b) / osc(mu) of the contrast of two classes, osc the largest minus the least entry; the largest of several."""
  sizes = [
    np.ptp(np.float64(rows[1:] - rows[0]), axis=1) for rows in (np.asarray(head.weights).T, np.asarray(task_weights))
  ]
  return float((sizes[0] / sizes[1]).max())


def _fitted(
  settings: Settings, features: np.ndarray, labels: np.ndarray, splits: Splits, ridge: float, fit: Any
) -> Fitted:
  """The head that `fit` converges to on the training inputs, and its answers on all of them."""
  train = splits['train']
  head, gradient_norm, _ = _converged(settings, features, labels, ridge, train, fit)
  scores = features.astype(np.float64) @ head.weights + head.bias
  log_probs = scipy.special.log_softmax(scores[train], axis=1)
  loss = -float(np.take_along_axis(log_probs, labels[train, None], axis=1).mean())
  return Fitted({'head': head}, scores.argmax(1) == labels, loss, {'gradient_norm': gradient_norm})


def heads_on_test(
  settings: Settings, distribution: HMM | MemoryHMM, downstream: Downstream, tasks: list[int]
) -> list[Fitted]:
  """The best linear head found on the exact G of the test inputs, for each of `tasks`.

  The search starts, among others, from heads converged on the training and on the test inputs. Where mu's score of the
  masked state is exactly linear in G, its head competes too, on inputs whose label is certain despite rounding. If that
  score decides the label of an HMM without a memory, records say which theorem covers the task.
  """
  splits, test, inputs = downstream.splits, downstream.splits['test'], downstream.inputs
  states = tasks_lib.hidden_state_probs(distribution, inputs)
  probs = states @ np.asarray(distribution.joint_emission_matrix, np.float64)
  hmm = to_hmm(distribution) if isinstance(distribution, MemoryHMM) else distribution
  reach = reachable(hmm, inputs.shape[1] - 1)
  fits = []
  for task, labels in zip(tasks, downstream.labels(tasks)):
    best = _best_of_search(settings, distribution, probs, labels, inputs.shape[1], splits)
    head, is_right, separable = best.head, (probs @ best.head).argmax(1) == labels, best.separable
    weights = _joint_weights(settings, distribution, downstream.tasks[task])
    score = linear_score(hmm, reach, weights, hmm.initial_probs)
    if score.head is not None:
      surely = separability.surely_right(states, labels, weights.T)
      if surely[test].sum() >= is_right[test].sum():
        head, is_right = np.pad(score.head.astype(np.float64), ((0, 0), (0, 1))), surely
        separable = bool(surely[test].all()) or separable
    fields = {
      'accuracy_at_most': best.accuracy_at_most,
      'separable': separable,
      'certificate_residual': best.residual,
    }
    if _is_label_of_mask(settings, distribution):
      fields |= which_theorem.facts(hmm, weights, score, states[test], probs[test])
    fits.append(Fitted({'head': LinearHead(head, np.zeros(head.shape[1]))}, is_right, None, fields))
  return fits


def _best_of_search(
  settings: Settings, distribution: Distribution, probs: np.ndarray, labels: np.ndarray, length: int, splits: Splits
) -> best_head.BestHead:
  """`best_head` on the test inputs, from heads converged on training and on test inputs by several ridges."""
  test = splits['test']
  fits = [(settings.converged.ridge, splits['train']), (1e-6, test), (1e-4, test)]
  starts = [_converged(settings, probs, labels, *fit).head for fit in fits]
  return best_head.best_head(
    probs[test],
    labels[test],
    settings.downstream.num_classes,
    # The entries of G sum to 1, so that a bias can be a part of every weight.
    [np.asarray(start.weights + start.bias) for start in starts],
    error=best_head.relative_error(distribution, length),
    tolerance=settings.on_test.tolerance,
    max_rounds=4,
    max_certificates=1000,
  )


def _joint_weights(settings: Settings, distribution: HMM | MemoryHMM, task: tasks_lib.Task) -> np.ndarray:
  """mu on joint states, [C, E] float64."""
  weights = np.asarray(task.task_weights, np.float64)
  if isinstance(distribution, HMM):
    return weights
  cells = np.indices(distribution.memory_probs.shape).reshape(distribution.num_cells, -1)
  return np.repeat(weights[:, cells[settings.memory.label_cell]], distribution.num_states, axis=1)


def _is_label_of_mask(settings: Settings, distribution: HMM | MemoryHMM) -> bool:
  """True if labels are of the masked state of an HMM without a memory, and no token is cut off."""
  d = settings.downstream
  return isinstance(distribution, HMM) and d.label_state == 'first' and d.seen_length(prompt_length=0) == d.length


def _converged(
  settings: Settings,
  features: np.ndarray,
  labels: np.ndarray,
  ridge: float,
  where: slice,
  fit: Callable[..., optimum.Converged] = optimum.converged_head,
) -> optimum.Converged:
  optimisation = dataclasses.asdict(settings.converged) | {'ridge': ridge}
  return fit(features[where], labels[where], num_classes=settings.downstream.num_classes, **optimisation)
