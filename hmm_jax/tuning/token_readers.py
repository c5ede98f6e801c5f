"""Readers without a model: they see only the tokens nearest the [MASK]."""

import numpy as np
from numpy.typing import ArrayLike

from hmm_jax._support.arguments import converted


@converted
def nearest_first(inputs: ArrayLike, num_tokens: int) -> np.ndarray:
  """The positions [n, T - 1] of the tokens of inputs [n, T], the nearest to the [MASK] first.

  If two tokens are equally near, the later one comes first.

  Raises:
    ValueError: an input does not have exactly one [MASK] (id `num_tokens`).

  >>> nearest_first([[1, 0, 2, 1]], num_tokens=2).tolist()
  [[3, 1, 0]]
  """
  is_mask = np.asarray(inputs) == num_tokens
  if (is_mask.sum(1) != 1).any():
    raise ValueError(f'inputs have a row without exactly one [MASK]; valid is one in each row, with id {num_tokens}')
  shifts = np.arange(is_mask.shape[1]) - is_mask.argmax(1)[:, None]
  # Subtracting 0.25 puts the later of two equally near tokens first; the [MASK] sorts first and is dropped.
  return np.abs(shifts - 0.25).argsort(1)[:, 1:]


@converted
def nearest_tokens(inputs: ArrayLike, num_tokens: int) -> np.ndarray:
  """The tokens [n, T - 1] of inputs [n, T], the nearest to the [MASK] first.

  >>> nearest_tokens([[1, 0, 2, 1]], num_tokens=2).tolist()
  [[1, 0, 1]]
  """
  return np.take_along_axis(np.asarray(inputs), nearest_first(inputs, num_tokens), 1)


@converted
def keep_nearest(inputs: ArrayLike, num_tokens: int, count: int) -> np.ndarray:
  """The inputs [n, T] with [MASK] in place of all tokens but the `count` nearest the [MASK].

  >>> keep_nearest([[1, 0, 2, 1]], num_tokens=2, count=1).tolist()
  [[2, 2, 2, 1]]
  """
  kept = np.array(inputs)
  np.put_along_axis(kept, nearest_first(inputs, num_tokens)[:, count:], num_tokens, 1)
  return kept


@converted
def table_labels(train: np.ndarray, train_labels: np.ndarray, tokens: np.ndarray) -> np.ndarray:
  """The answers [m] of a table of training texts to tokens [m, K], in the order of `nearest_tokens`.

  argmax_c #{i: y_i = c, train_i[:k] = tokens[:k]}, with y the training labels and k the longest length, at most K, at
  which one class is strictly most frequent. If there is none, the answer is the commonest training label.

  Args:
    train: [n, K] tokens of the training texts.
    train_labels: [n] ints.
    tokens: [m, K].

  >>> train, labels = np.array([[0, 0], [0, 0], [0, 1], [1, 1], [1, 1]]), np.array([0, 0, 1, 1, 0])
  >>> table_labels(train, labels, np.array([[0, 1], [0, 2], [1, 1]])).tolist()
  [1, 0, 0]
  """
  n, classes = len(train_labels), np.eye(train_labels.max() + 1)[train_labels]
  # `prefix` numbers the distinct sequences of tokens read so far.
  prefix, answers = np.zeros(n + len(tokens), int), np.full(len(tokens), classes.sum(0).argmax())
  for column in np.concatenate([train, tokens]).T:
    _, prefix = np.unique(prefix * (column.max() + 1) + column, return_inverse=True)
    counts = np.zeros((len(prefix), classes.shape[1]))
    np.add.at(counts, prefix[:n], classes)
    ours = counts[prefix[n:]]
    is_decided = (ours == ours.max(1, keepdims=True)).sum(1) == 1
    answers = np.where(is_decided, ours.argmax(1), answers)
  return answers
