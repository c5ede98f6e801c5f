"""Readers of the tokens nearest the [MASK], without a model: a table, and logistic regression on one-hot tokens.

Each reads at most 8 tokens, the fewest of best validation accuracy; `one_hot` has all of them.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from experiments.pipeline import optimal_heads
from experiments.pipeline.job import Fitted, Job
from hmm_jax.tuning import nonlinear, tasks as tasks_lib, token_readers

_MOST_TOKENS = 8


def nearest(job: Job, most: int = _MOST_TOKENS) -> np.ndarray:
  """The tokens that are read, at most this many, [n, K], the nearest to the [MASK] first."""
  return job.downstream.inputs[:, _positions(job)[:most]]


def _positions(job: Job) -> np.ndarray:
  """The positions [T - 1] of the tokens beside the [MASK], the nearest first."""
  return token_readers.nearest_first(job.downstream.inputs.shape[1], job.settings.downstream.hidden_position)[1:]


def one_hot(job: Job) -> np.ndarray:
  """All tokens as one-hot rows side by side, [n, (T - 1) V], the nearest to the [MASK] first."""
  return _one_hot(job, nearest(job, most=job.downstream.inputs.shape[1]))


def table(job: Job, tokens: np.ndarray, labels: np.ndarray) -> Fitted:
  """The commonest training labels."""
  train = job.downstream.splits['train']
  answers = token_readers.table_labels(tokens[train], labels[train], tokens)
  return Fitted({}, answers == labels, None, {})


def logistic(job: Job, tokens: np.ndarray, labels: np.ndarray) -> Fitted:
  """The converged head on one-hot tokens."""
  return optimal_heads.converged_head(job, _one_hot(job, tokens), labels)


def window(job: Job, tokens: np.ndarray, labels: np.ndarray) -> Fitted:
  """The whitened head on one-hot tokens, with the ridge that is best on validation."""
  return optimal_heads.whitened_head(job, _one_hot(job, tokens), labels)


def pairs(job: Job, tokens: np.ndarray, labels: np.ndarray) -> Fitted:
  """The same on all products of two entries of the one-hot tokens."""
  return optimal_heads.whitened_head(job, nonlinear.power_features(_one_hot(job, tokens), 2), labels)


def _one_hot(job: Job, tokens: np.ndarray) -> np.ndarray:
  return np.eye(job.settings.hmm.num_tokens)[tokens].reshape(len(tokens), -1)


def fewest(read: Callable[..., Fitted], job: Job, tokens: np.ndarray, labels: np.ndarray) -> Fitted:
  """The best on validation of the readers `read` of 0, 1, ... of the tokens."""
  by_count = {count: read(job, tokens[:, :count], labels) for count in range(tokens.shape[1] + 1)}
  return optimal_heads.chosen(by_count, job.downstream.splits, 'tokens_read')


def changed_shares(job: Job, tokens: np.ndarray, fits: list[Fitted]) -> list[dict[str, Any]]:
  """The share of test labels that change if only the k = 0, ..., 8 nearest tokens are kept, the others masked."""
  downstream = job.downstream
  test = downstream.splits['test']
  probs = []
  for count in range(tokens.shape[1] + 1):
    kept = downstream.inputs[test].copy()
    kept[:, _positions(job)[count:]] = job.settings.hmm.num_tokens
    probs.append((downstream.label_probs(kept), kept))
  fields = []
  for number in job.tasks:
    task = downstream.tasks[number]
    relabelled = [tasks_lib.labelled(task.task_weights, *some).labels for some in probs]
    fields.append({'changed_shares': [float((labels != task.labels[test]).mean()) for labels in relabelled]})
  return fields
