"""Probes: maps from features to targets such as beliefs, fitted to some texts and scored on others, in float64."""

from collections.abc import Callable, Iterator, Sequence
import dataclasses
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

# Ridges, as shares of the mean variance of a feature, and priors of a table, in texts: from strong to weak.
_RIDGES = 10.0 ** -np.arange(0, 13, 2)
_PRIORS = 10.0 ** np.arange(1, -4, -1)
_MINIMISER = dict(maxiter=1000, maxfun=2000, ftol=1e-12, gtol=1e-7)


@dataclasses.dataclass(frozen=True)
class Affine:
  """The map x -> x weights + bias of features [..., F] to [..., C].

  >>> Affine(np.eye(2), np.array([0.0, 1.0]))([1.0, 1.0]).tolist()
  [1.0, 2.0]
  """

  weights: np.ndarray
  bias: np.ndarray

  def __call__(self, features: ArrayLike) -> np.ndarray:
    return np.asarray(features, np.float64) @ self.weights + self.bias


class Softmax(Affine):
  """The map x -> softmax(x weights + bias).

  >>> Softmax(np.eye(2), np.zeros(2))([1.0, 1.0]).tolist()
  [0.5, 0.5]
  """

  def __call__(self, features: ArrayLike) -> np.ndarray:
    return scipy.special.softmax(super().__call__(features), axis=-1)


class Table(NamedTuple):
  """The map of `hmm_jax.tuning.token_readers.table_means` from tokens [m, K] to laws [m, C].

  >>> Table(np.array([[0], [1]]), np.eye(2), prior=0.0)([[1], [2]]).tolist()
  [[0.0, 1.0], [0.5, 0.5]]
  """

  tokens: np.ndarray
  targets: np.ndarray
  prior: float

  def __call__(self, tokens: ArrayLike) -> np.ndarray:
    return table_means(self.tokens, self.targets, np.asarray(tokens), prior=self.prior)


class Probe(NamedTuple):
  """A fitted probe and its scores on the test texts, with y a target and p the map's value there.

  Attributes:
    map: the fitted map, `Affine`, `Softmax` or `Table`; call it on features.
    r_squared: 1 - sum |y - p|^2 / sum |y - mean y|^2, over all rows and components; at most 1, 0 for the test mean.
    kl: the mean of KL(y || p) in nats; NaN for an affine map, whose values are no probabilities.
    strength: the penalty chosen on the validation texts: a ridge, or a table's prior.

  >>> Probe(Affine(np.eye(2), np.zeros(2)), r_squared=1.0, kl=np.nan, strength=1e-12).map([0.5, 0.5]).tolist()
  [0.5, 0.5]
  """

  map: Any
  r_squared: float
  kl: float
  strength: float


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
  >>> probe(features, features @ np.ones((3, 2)) + 1, jax.random.key(0)).map.bias.round(6).tolist()
  [1.0, 1.0]
  """
  features, targets = np.asarray(features), np.asarray(targets, np.float64)
  where = np.ones(targets.shape[:-1], bool) if where is None else np.asarray(where, bool)
  _check(features, targets, where, kind)
  key_split, key_shuffle = jax.random.split(key)
  if shuffled:
    order = np.asarray(jax.random.permutation(key_shuffle, int(where.sum())))
    targets = targets.copy()
    targets[where] = targets[where][order]
  train, validation, test = (
    (_plain(features[texts][where[texts]], kind), targets[texts][where[texts]])
    for texts in _split(key_split, len(features), splits)
  )
  loss = _mean_square if kind == 'affine' else _mean_kl
  candidates = ((loss(fitted, *validation), fitted, strength) for fitted, strength in _FITS[kind](*train))
  least, fitted, strength = next(candidates)
  for candidate in candidates:
    if not candidate[0] < least:
      break
    least, fitted, strength = candidate
  variance = np.square(test[1] - test[1].mean(0)).sum(-1).mean()
  r_squared = 1 - _mean_square(fitted, *test) / variance if variance else np.nan
  return Probe(fitted, float(r_squared), np.nan if kind == 'affine' else _mean_kl(fitted, *test), float(strength))


def _mean_square(fitted: Callable[..., Any], features: np.ndarray, targets: np.ndarray) -> float:
  return float(np.square(targets - fitted(features)).sum(-1).mean())


def _mean_kl(fitted: Callable[..., Any], features: np.ndarray, targets: np.ndarray) -> float:
  return float(scipy.special.rel_entr(targets, fitted(features)).sum(-1).mean())


def _plain(features: np.ndarray, kind: str) -> np.ndarray:
  return features if kind == 'table' else np.asarray(features, np.float64)


def _check(features: np.ndarray, targets: np.ndarray, where: np.ndarray, kind: str) -> None:
  if kind not in _FITS:
    raise ValueError(f'kind is {kind!r}; valid are {", ".join(map(repr, _FITS))}')
  if targets.ndim < 2 or features.shape[:-1] != targets.shape[:-1]:
    raise ValueError(f'targets have shape {targets.shape}; valid is {(*features.shape[:-1], "C")}, as of the features')
  if where.shape != targets.shape[:-1]:
    raise ValueError(f'where has shape {where.shape}; valid is {targets.shape[:-1]}')
  for name, values in ('features', features), ('targets', targets):
    if not np.isfinite(values[where]).all():
      raise ValueError(f'{name} have an entry that is not finite; valid are finite numbers')
  if kind == 'table' and features.dtype.kind not in 'iu':
    raise ValueError(f'features are of type {features.dtype}; valid for a table are integers, tokens')
  sums = targets[where].sum(-1)
  if kind != 'affine' and ((targets[where] < 0).any() or not np.allclose(sums, 1, atol=1e-4)):
    raise ValueError(f'targets have a negative entry or a row that does not sum to 1; valid for {kind!r} are laws')


def _split(key: Array, count: int, splits: Sequence[float]) -> list[np.ndarray]:
  """The numbers of the texts for training, validation and test, in a random order."""
  if len(splits) != 3 or min(splits) <= 0 or abs(sum(splits) - 1) > 1e-6:
    raise ValueError(f'splits are {splits}; valid are three shares above 0 that sum to 1')
  ends = np.round(np.cumsum(splits)[:2] * count).astype(int)
  parts = np.split(np.asarray(jax.random.permutation(key, count)), ends)
  if not all(map(len, parts)):
    raise ValueError(f'splits are {splits} of {count} texts; valid are shares of at least one text')
  return parts


def _affine_fits(features: np.ndarray, targets: np.ndarray) -> Iterator[tuple[Affine, float]]:
  center, directions, projected, variances, ridges = _principal(features)
  mean = targets.mean(0)
  covariances = projected.T @ (targets - mean) / len(targets)
  for ridge in ridges:
    weights = directions.T @ (covariances / (variances + ridge)[:, None])
    yield Affine(weights, mean - center @ weights), ridge


def _softmax_fits(features: np.ndarray, targets: np.ndarray) -> Iterator[tuple[Softmax, float]]:
  """Each from where the one before ended, in coordinates in which the curvature is near that of unit variances."""
  center, directions, projected, variances, ridges = _principal(features)
  weights, bias = np.zeros((len(directions), targets.shape[1])), np.zeros(targets.shape[1])
  for ridge in ridges:
    scales = np.sqrt(variances + ridge)[:, None]
    inputs = np.append(projected / scales.T, np.ones((len(projected), 1)), axis=1)
    penalties = np.append(ridge / scales**2, [[0]], axis=0)
    start = np.vstack([weights * scales, bias]).ravel()
    data = inputs, targets, penalties
    found = scipy.optimize.minimize(_softmax_loss, start, data, 'L-BFGS-B', jac=True, options=_MINIMISER)
    *in_coordinates, bias = found.x.reshape(-1, targets.shape[1])
    weights = np.array(in_coordinates) / scales
    original = directions.T @ weights
    yield Softmax(original, bias - center @ original), ridge


def _softmax_loss(
  flat: np.ndarray, inputs: np.ndarray, targets: np.ndarray, penalties: np.ndarray
) -> tuple[float, np.ndarray]:
  """The penalised mean cross-entropy of weights [F, C] on inputs [n, F], and its slope; `penalties` [F, 1]."""
  weights = flat.reshape(inputs.shape[1], -1)
  log_probs = scipy.special.log_softmax(inputs @ weights, axis=1)
  slope = inputs.T @ (np.exp(log_probs) - targets) / len(inputs) + penalties * weights
  loss = -(targets * log_probs).sum() / len(inputs) + (penalties * weights**2).sum() / 2
  return float(loss), slope.ravel()


def _principal(features: np.ndarray) -> tuple[np.ndarray, ...]:
  """The mean, principal directions [R, F], coordinates [n, R] and variances of features [n, F], and ridges for them."""
  center, sizes, directions = principal_directions(features)
  variances = sizes**2 / len(features)
  # Constant features have no scale, and any ridge gives the mean.
  return center, directions, (features - center) @ directions.T, variances, _RIDGES * (variances.mean() or 1)


def _table_fits(tokens: np.ndarray, targets: np.ndarray) -> Iterator[tuple[Table, float]]:
  for prior in _PRIORS:
    yield Table(tokens, targets, prior), prior


_FITS: dict[str, Callable[..., Iterator[tuple[Any, float]]]] = {
  'affine': _affine_fits,
  'softmax': _softmax_fits,
  'table': _table_fits,
}
