"""Linear heads at an optimum, without a schedule: on training inputs, and on the test inputs themselves."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import scipy.special

from experiments.settings import Settings
from hmm_jax import converged, tasks as tasks_lib
from hmm_jax.heads import LinearHead
from hmm_jax.hmm import Distribution
from hmm_jax.theory import best_head, separability

Splits = dict[str, slice]
# What records say of how something was fitted, and null where it was fitted otherwise.
NOT_FITTED: dict[str, Any] = {
  'accuracy_at_most': None,
  'separable': None,
  'certificate_residual': None,
  'gradient_norm': None,
  'restart': None,
  'restart_accuracies': None,
}


class Fitted(NamedTuple):
  """What was fitted to one task.

  Attributes:
    trainable: its arrays.
    is_right: [n], whether each input gets its label.
    loss: mean cross-entropy on the training inputs in nats, of the last epoch where there are epochs; None where that
      is not what was minimised.
    fields: of its record, those of NOT_FITTED that are not null.
  """

  trainable: Any
  is_right: np.ndarray
  loss: float | None
  fields: dict[str, Any]


def converged_head(settings: Settings, features: np.ndarray, labels: np.ndarray, splits: Splits) -> Fitted:
  """The head at the optimum on the training inputs, of features [n, F] and labels [n]."""
  found, train = _converged(settings, features, labels, splits['train']), splits['train']
  scores = _scores(found.head, features)
  log_probs = scipy.special.log_softmax(scores[train], axis=1)
  loss = -float(np.take_along_axis(log_probs, labels[train, None], axis=1).mean())
  is_right = scores.argmax(1) == labels
  return Fitted({'head': found.head}, is_right, loss, {'gradient_norm': found.gradient_norm})


def head_on_test(
  settings: Settings, distribution: Distribution, inputs: np.ndarray, labels: np.ndarray, splits: Splits
) -> Fitted:
  """The best linear head that is found for the test inputs [n_test, T] on the exact G in float64.

  The search starts, among others, from heads that are converged on the training and on the test inputs. A test input
  counts as right where the head puts its label first by more than rounding could.
  """
  s, test = settings.on_test, splits['test']
  # Float32 G hides directions in which rows of W differ by less than its rounding.
  states = tasks_lib.first_state_probs(distribution, inputs)
  token_probs = states @ np.asarray(distribution.joint_emission_matrix, np.float64)
  of_test = dict.fromkeys(s.ridges, test)
  fits = [(settings.converged.ridge, splits['train']), *of_test.items()]
  starts = [_converged(settings, token_probs, labels, where, ridge).head for ridge, where in fits]
  found = best_head.best_head(
    token_probs[test],
    labels[test],
    settings.downstream.num_classes,
    [_scores(start, token_probs[test]) for start in starts],
    tolerance=s.tolerance,
    max_rounds=s.max_rounds,
    max_certificates=s.max_certificates,
  )
  head = LinearHead(found.head, np.zeros(found.head.shape[1]))
  fields = {
    'accuracy_at_most': found.accuracy_at_most,
    'separable': found.separable,
    'certificate_residual': found.residual,
  }
  return Fitted({'head': head}, separability.surely_right(token_probs, labels, found.head), None, fields)


def _converged(
  settings: Settings, features: np.ndarray, labels: np.ndarray, where: slice, ridge: float | None = None
) -> converged.Converged:
  how = dataclasses.asdict(settings.converged) | ({} if ridge is None else {'ridge': ridge})
  return converged.converged_head(features[where], labels[where], num_classes=settings.downstream.num_classes, **how)


def _scores(head: LinearHead, features: np.ndarray) -> np.ndarray:
  return features.astype(np.float64) @ head.weights + head.bias
