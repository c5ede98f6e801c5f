"""Readers without a model: they see only the tokens nearest the [MASK], or nearest any position."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from hmm_jax._support import arguments


def nearest_first(length: int, position: int = 0) -> np.ndarray:
  """The positions [T] of a text, the nearest to one of them first, which is itself the first.

  If two are equally near, the later one comes first.

  Args:
    length: T.
    position: such as that of the [MASK]; -1 is the last.

  >>> nearest_first(4, position=2).tolist()
  [2, 3, 1, 0]
  """
  distances = np.arange(length) - arguments.position('position', position, length)
  return np.abs(distances - 0.25).argsort()


@arguments.converted
def tokens_around(inputs: ArrayLike, num_tokens: int, reach: int) -> np.ndarray:
  """The tokens [n, T, 2 reach + 1] at distances 0, 1, -1, 2, -2, ... from each position of inputs [n, T].

  Past an end of the text they are V + 1, with V = `num_tokens` the id of [MASK].

  >>> tokens_around([[2, 0, 1]], num_tokens=2, reach=1).tolist()
  [[[2, 0, 3], [0, 1, 2], [1, 3, 0]]]
  """
  arguments.check_ids('inputs', inputs, num_tokens + 1)
  inputs = np.asarray(inputs, np.int32)  # A narrow type of tokens may not hold V + 1.
  padded = np.pad(inputs, ((0, 0), (reach, reach)), constant_values=num_tokens + 1)
  return padded[:, np.add.outer(np.arange(inputs.shape[1]), nearest_first(2 * reach + 1, reach))]


@arguments.converted
def one_hot_window(inputs: ArrayLike, num_tokens: int, reach: int) -> np.ndarray:
  """`tokens_around` as one-hot rows side by side, [n, T, (2 reach + 1) (V + 2)].

  >>> one_hot_window([[2, 0, 1]], num_tokens=2, reach=0).tolist()
  [[[0.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]]]
  """
  around = tokens_around(inputs, num_tokens, reach)
  return np.eye(num_tokens + 2)[around].reshape(*around.shape[:2], -1)


@arguments.converted
def table_labels(train: np.ndarray, train_labels: np.ndarray, tokens: np.ndarray) -> np.ndarray:
  """The answers [m] of a table of training texts to tokens [m, K], in the order of `nearest_first`.

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
  classes = np.eye(train_labels.max() + 1)[train_labels]
  answers = np.full(len(tokens), classes.sum(0).argmax())
  for votes, _ in _sums_by_length(train, classes, tokens):
    is_decided = (votes == votes.max(1, keepdims=True)).sum(1) == 1
    answers = np.where(is_decided, votes.argmax(1), answers)
  return answers


@arguments.converted
def table_means(train: np.ndarray, train_targets: np.ndarray, tokens: np.ndarray, *, prior: float = 0.0) -> np.ndarray:
  """The mean targets [m, C] of the training texts that share the longest sequence of tokens with each row of `tokens`.

  M_k = (S_k + prior M_{k-1}) / (n_k + prior), with S_k the sum of the targets of the n_k training texts that share the
  first k tokens, and M_0 the mean of all. M_k = M_{k-1} if n_k = 0 or n_k = n_{k-1}. This is the hierarchical Dirichlet
  language model of MacKay and Peto 1995; prior 0 gives the mean at the longest length that occurs.

  Args:
    train: [n, K] tokens of the training texts, the one that is read first in front, as `tokens_around` gives them.
    train_targets: [n, C], such as beliefs.
    tokens: [m, K].
    prior: at least 0, in training texts.

  >>> train, targets = np.array([[0, 0], [0, 1], [1, 1]]), np.array([[0.0], [1.0], [2.0]])
  >>> table_means(train, targets, np.array([[0, 1], [0, 2], [2, 2]])).tolist()
  [[1.0], [0.5], [1.0]]
  """
  means = np.broadcast_to(train_targets.mean(0), (len(tokens), train_targets.shape[1]))
  before = np.full(len(tokens), len(train))
  for sums, counts in _sums_by_length(train, train_targets, tokens):
    is_new = (counts > 0) & (counts != before)
    divisors = np.where(is_new, counts + prior, 1)[:, None]
    means = np.where(is_new[:, None], (sums + prior * means) / divisors, means)
    before = counts
  return means


def _sums_by_length(
  train: np.ndarray, values: np.ndarray, tokens: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
  """Yield for k = 1 to K the sums [m, C] of values [n, C] of texts that share k tokens with a row, and their counts."""
  n = len(train)
  # `prefix` numbers the distinct sequences of tokens read so far.
  prefix = np.zeros(n + len(tokens), int)
  for column in np.concatenate([train, tokens]).T.astype(np.int64):
    _, prefix = np.unique(prefix * (column.max() + 1) + column, return_inverse=True)
    sums = np.zeros((len(prefix), values.shape[1]))
    np.add.at(sums, prefix[:n], values)
    yield sums[prefix[n:]], np.bincount(prefix[:n], minlength=len(prefix))[prefix[n:]]
