"""Probes: maps from features to targets such as beliefs, fitted to some texts and scored on others, in float64."""

from collections.abc import Callable, Iterator, Sequence
import functools
import math
from typing import Any, NamedTuple

import jax
from jax import Array
import numpy as np
from numpy.typing import ArrayLike
import scipy.optimize
import scipy.special

from hmm_jax._support import arguments
from hmm_jax.tuning.optimum import principal_directions
from hmm_jax.tuning.token_readers import table_means

# Ridges, as shares of the mean variance of a coordinate, and priors of a table, in texts: from strong to weak.
_RIDGES = 10.0 ** -np.arange(0, 13, 2)
_PRIORS = 10.0 ** np.arange(2, -4, -1)
# A tolerance of 1e-12 takes three times as long and changes a KL of 0.56 nats by 1e-7.
_MINIMISER = dict(maxiter=1000, maxfun=2000, ftol=1e-8, gtol=1e-7)


class Probe(NamedTuple):
  """A fitted probe, a function of features, and its scores on the test texts, y a target and p the probe's value.

  Attributes:
    kind: 'affine', x W + b; 'softmax', softmax(x W + b); or 'table', `hmm_jax.tuning.token_readers.table_means`.
    fitted: W [F, C] and b [C]; of a table its training tokens, their targets and the prior.
    r_squared: 1 - sum |y - p|^2 / sum |y - mean y|^2, over all rows and components; at most 1, 0 for the test mean,
      NaN if all y are equal.
    kl: the mean of KL(y || p) in nats; NaN for an affine map, whose values are no probabilities.
    penalty: chosen on the validation texts: the ridge, or a table's prior.

  >>> Probe('affine', (np.eye(2), np.array([0.0, 1.0])), r_squared=1.0, kl=np.nan, penalty=1e-12)([[1.0, 1.0]]).tolist()
  [[1.0, 2.0]]
  """

  kind: str
  fitted: tuple[Any, ...]
  r_squared: float
  kl: float
  penalty: float

  def __call__(self, features: ArrayLike) -> np.ndarray:
    return _VALUES[self.kind](np.asarray(features), *self.fitted)


@arguments.converted
def probe(
  features: ArrayLike,
  targets: ArrayLike,
  key: Array,
  *,
  kind: str = 'affine',
  splits: Sequence[float] = (0.6, 0.2, 0.2),
  where: ArrayLike | None = None,
  shuffled: bool = False,
) -> Probe:
  """Fit a probe from features to targets and score it on held-out texts.

  Ridge regression, 'affine': min mean |y - x W - b|^2 + ridge |W|^2. Multinomial regression, 'softmax': min mean KL(y
  || softmax(x W + b)) + ridge / 2 |W|^2. A 'table' reads tokens and no model. From the strongest penalty on, the next
  weaker one is tried as long as the loss on the validation texts falls: squares for 'affine', KL otherwise.

  A probe is correlational: it finds what can be read, not what the model uses. Beside it stand its controls: an
  untrained network (`pretrain` with steps=0), tokens without a model (`token_readers.one_hot_window`, or 'table' on
  `token_readers.tokens_around`), and shuffled targets.

  Args:
    features: [n, ..., F], of n texts, such as `activations` of one layer; [n, ..., K] tokens for a table.
    targets: [n, ..., C], such as beliefs; for 'softmax' and 'table', laws.
    key: decides the order of texts, and the shuffle.
    kind: 'affine', 'softmax' or 'table'.
    splits: shares of texts for training, validation and test; all rows of a text are in one of them.
    where: [n, ...] bools, the rows that count, such as inputs == V; None for all.
    shuffled: a control: permute the targets over rows first, so that R^2 is 0 up to chance.

  Raises:
    ValueError: a shape, an entry, `kind` or `splits` is wrong.

  Source: Shai et al. 2024, "Transformers represent belief state geometry in their residual stream"; controls after
  Hewitt and Liang 2019, "Designing and interpreting probes with control tasks".

  >>> features = np.random.default_rng(0).normal(size=(50, 3))
  >>> probe(features, features @ np.ones((3, 2)) + 1, jax.random.key(0)).fitted[1].round(6).tolist()
  [1.0, 1.0]
  """
  features, targets = np.asarray(features), np.asarray(targets, np.float64)
  where = np.ones(targets.shape[:-1], bool) if where is None else np.asarray(where, bool)
  _check(features, targets, kind)
  key_split, key_shuffle = jax.random.split(key)
  if shuffled:
    order = jax.random.permutation(key_shuffle, int(where.sum()))
    targets = targets.copy()
    targets[where] = targets[where][np.asarray(order)]
  train, validation, test = (
    (features[texts][where[texts]], targets[texts][where[texts]]) for texts in _split(key_split, len(features), splits)
  )
  values, loss = _VALUES[kind], _mean_square if kind == 'affine' else _mean_kl
  candidates = (
    (loss(validation[1], values(validation[0], *fitted)), fitted, penalty) for fitted, penalty in _FITS[kind](*train)
  )
  least, fitted, penalty = next(candidates)
  for candidate in candidates:
    if not candidate[0] < least:
      break
    least, fitted, penalty = candidate
  found, expected = values(test[0], *fitted), test[1]
  variance = _mean_square(expected, expected.mean(0))
  r_squared = 1 - _mean_square(expected, found) / variance if variance else math.nan
  return Probe(kind, fitted, r_squared, math.nan if kind == 'affine' else _mean_kl(expected, found), penalty)


def _mean_square(targets: np.ndarray, values: np.ndarray) -> float:
  return float(np.square(targets - values).sum(-1).mean())


def _mean_kl(targets: np.ndarray, values: np.ndarray) -> float:
  return float(scipy.special.rel_entr(targets, values).sum(-1).mean())


def _check(features: np.ndarray, targets: np.ndarray, kind: str) -> None:
  if kind not in _FITS:
    raise ValueError(f'kind is {kind!r}; valid are {", ".join(map(repr, _FITS))}')
  if features.ndim < 2 or features.shape[:-1] != targets.shape[:-1]:
    raise ValueError(f'targets have shape {targets.shape}; valid is [n, ..., C] for features {features.shape}')
  if not np.isfinite(features).all() or not np.isfinite(targets).all():
    raise ValueError('features or targets have an entry that is not finite; valid are finite numbers')
  if kind != 'affine' and ((targets < 0).any() or not np.allclose(targets.sum(-1), 1, atol=1e-4)):
    raise ValueError(f'targets have a negative entry or a sum other than 1; valid for {kind!r} are laws')
  if kind == 'table':
    arguments.check_ids('features', features, 2**31)


def _split(key: Array, count: int, splits: Sequence[float]) -> list[np.ndarray]:
  """The numbers of the texts for training, validation and test, in a random order."""
  order, ends = jax.random.permutation(key, count), np.cumsum(splits) / np.sum(splits) * count
  parts = np.split(np.asarray(order), np.round(ends[:-1]).astype(int))
  if len(parts) != 3 or min(splits) < 0 or not all(map(len, parts)):
    raise ValueError(f'splits are {splits} of {count} texts; valid are three shares, each of at least one text')
  return parts


def _linear_fits(solve: Callable[..., np.ndarray], features: np.ndarray, targets: np.ndarray) -> Iterator[Any]:
  """Yield W and b, and the ridge, by `solve` in coordinates [n, R + 1] that are uncorrelated, the first of them 1."""
  center, sizes, directions = principal_directions(np.asarray(features, np.float64))
  coordinates = np.insert((features - center) @ directions.T, 0, 1, axis=1)
  squares = np.insert(sizes**2 / len(features), 0, 1)
  solution = np.zeros((len(squares), targets.shape[1]))
  # Constant features have no scale, and any ridge gives the mean.
  for ridge in _RIDGES * (squares[1:].mean() or 1):
    penalties = np.where(np.arange(len(squares)), ridge, 0.0)[:, None]
    # In these units the curvature with the penalty is that of standardised features without one.
    scales = np.sqrt(squares[:, None] + penalties)
    solution = solve(coordinates / scales.T, targets, penalties / scales**2, solution * scales) / scales
    weights = directions.T @ solution[1:]
    yield (weights, solution[0] - center @ weights), ridge


def _least_squares(inputs: np.ndarray, targets: np.ndarray, *_: np.ndarray) -> np.ndarray:
  return inputs.T @ targets / len(targets)


def _least_kl(inputs: np.ndarray, targets: np.ndarray, penalties: np.ndarray, start: np.ndarray) -> np.ndarray:
  """The weights with the least mean cross-entropy + sum of penalties / 2 weights^2, from `start`."""

  def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
    weights = flat.reshape(start.shape)
    log_probs = scipy.special.log_softmax(inputs @ weights, axis=1)
    slope = inputs.T @ (np.exp(log_probs) - targets) / len(targets) + penalties * weights
    return (penalties * weights**2).sum() / 2 - (targets * log_probs).sum() / len(targets), slope.ravel()

  found = scipy.optimize.minimize(loss, start.ravel(), method='L-BFGS-B', jac=True, options=_MINIMISER)
  return found.x.reshape(start.shape)


def _affine(features: np.ndarray, weights: np.ndarray, bias: np.ndarray) -> np.ndarray:
  return features @ weights + bias


_VALUES: dict[str, Callable[..., np.ndarray]] = {
  'affine': _affine,
  'softmax': lambda *args: scipy.special.softmax(_affine(*args), axis=-1),
  'table': lambda tokens, train, targets, prior: table_means(train, targets, tokens, prior=prior),
}
_FITS: dict[str, Callable[..., Iterator[Any]]] = {
  'affine': functools.partial(_linear_fits, _least_squares),
  'softmax': functools.partial(_linear_fits, _least_kl),
  'table': lambda tokens, targets: (((tokens, targets, prior), prior) for prior in _PRIORS),
}
