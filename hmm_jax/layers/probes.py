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
from hmm_jax._support.display import helped
from hmm_jax.tuning.optimum import are_constant, principal_directions, standardised
from hmm_jax.tuning.token_readers import table_means

# Ridges of features of variance 1, and priors of a table, in texts: from strong to weak.
_RIDGES = 10.0 ** -np.arange(0, 13, 2)
_PRIORS = 10.0 ** np.arange(2, -4, -1)
# Features [n, F] and targets [n, C].
_Rows = tuple[np.ndarray, np.ndarray]
# A tolerance of 1e-12 takes three times as long and changes a KL of 0.56 nats by 1e-7. Fits by weak ridges may stop at
# the limit, and the next goes on from there: on a layer and a window of belief_states 1,000 steps chose the same ridge.
_MINIMISER = dict(maxiter=300, maxfun=600, ftol=1e-8, gtol=1e-7)


@helped
class Probe(NamedTuple):
  """A fitted probe, a function of features, and its scores on the test texts, y a target and p the probe's value.

  Attributes:
    kind: 'affine', x W + b; 'softmax', softmax(x W + b); or 'table', `hmm_jax.tuning.token_readers.table_means`.
    fitted: W [F, C] and b [C]; of a table its training tokens, their targets and the prior.
    r_squared: 1 - sum |y - p|^2 / sum |y - mean y|^2, over all rows and components; at most 1, 0 for the test mean,
      NaN if all y are equal but for rounding.
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
    features = np.asarray(arguments.array('features', features))
    width = self.fitted[0].shape[1 if self.kind == 'table' else 0]
    arguments.check_shape('features', features, ..., width)
    if self.kind == 'table':
      arguments.check_ids('features', features, 2**31)
    return _VALUES[self.kind](features, *self.fitted)


@arguments.converted
def probe(
  features: ArrayLike,
  targets: ArrayLike,
  key: Array,
  *,
  kind: str = 'affine',
  splits: Sequence[float] = (0.6, 0.2, 0.2),
  shuffled: bool = False,
) -> Probe:
  """Fit a probe from features to targets and score it on held-out texts.

  Ridge regression, 'affine': min mean |y - z W - b|^2 + ridge |W|^2, with z the features x standardised on the training
  rows (mean 0, variance 1). Multinomial regression, 'softmax': min mean KL(y || softmax(z W + b)) + ridge / 2 |W|^2.
  W and b are returned for x itself. A 'table' reads tokens and no model. Of seven ridges from 1 to 1e-12, or six priors
  from 100 to .001, the one with the least loss on the validation texts is taken, the strongest if several tie: squares
  for 'affine', KL otherwise. So a feature counts alike in any unit.

  A probe is correlational: it finds what can be read, not what the model uses. Beside it stand its controls: an
  untrained network (`pretrain` with steps=0), tokens without a model (`token_readers.one_hot_window`, or 'table' on
  `token_readers.tokens_around`), and shuffled targets.

  Args:
    features: [n, ..., F], of n texts, such as `activations` of one layer; [n, ..., K] tokens for a table.
    targets: [n, ..., C], such as beliefs; for 'softmax' and 'table', laws.
    key: decides the order of texts, and the shuffle.
    kind: 'affine', 'softmax' or 'table'.
    splits: shares of texts for training, validation and test; all rows of a text are in one of them.
    shuffled: a control: permute the targets over rows first, so that R^2 is 0 up to chance.

  Raises:
    ValueError: a shape, an entry, `kind` or `splits` is wrong.

  Source: Shai et al. 2024, "Transformers represent belief state geometry in their residual stream"; controls after
  Hewitt and Liang 2019, "Designing and interpreting probes with control tasks".

  >>> features = np.random.default_rng(0).normal(size=(50, 3))
  >>> probe(features, features @ np.ones((3, 2)) + 1, jax.random.key(0)).fitted[1].round(6).tolist()
  [1.0, 1.0]
  """
  given = np.asarray(targets)
  x, y = np.asarray(features), given.astype(np.float64)
  _check(x, y, kind)
  # Squares of numbers at the ends of float64's range would be 0 or infinite.
  unit = np.abs(y).max() if kind == 'affine' and y.any() else 1.0
  y = y / unit
  key_split, key_shuffle = jax.random.split(key)
  if shuffled:
    rows = _rows(y)
    order = jax.random.permutation(key_shuffle, len(rows))
    y = rows[np.asarray(order)].reshape(y.shape)
  train, validation, test = ((_rows(x[texts]), _rows(y[texts])) for texts in _split(key_split, len(x), splits))
  fitted, penalty = _best_fit(kind, train, validation)
  r_squared, kl = _scores(kind, fitted, test, given.dtype)
  if kind == 'affine':
    fitted = tuple(unit * part for part in fitted)
  return Probe(kind, fitted, r_squared, kl, penalty)


def _rows(x: np.ndarray) -> np.ndarray:
  """The rows [m, C] of all texts [n, ..., C]."""
  return x.reshape(-1, x.shape[-1])


def _best_fit(kind: str, train: _Rows, validation: _Rows) -> tuple[tuple[Any, ...], float]:
  """The fit to the training rows with the least loss on validation rows, and its penalty; the strongest of equals."""
  loss = _mean_square if kind == 'affine' else mean_kl
  features, targets = validation
  candidates = list(_FITS[kind](*train))
  losses = [loss(targets, _VALUES[kind](features, *fitted)) for fitted, _ in candidates]
  fitted, penalty = candidates[int(np.argmin(losses))]
  return fitted, float(penalty)


def _scores(kind: str, fitted: tuple[Any, ...], test: _Rows, dtype: Any) -> tuple[float, float]:
  """R^2 and KL on test rows whose targets came in `dtype`."""
  features, targets = test
  values = _VALUES[kind](features, *fitted)
  kl = math.nan if kind == 'affine' else mean_kl(targets, values)
  if are_constant(targets, dtype).all():
    return math.nan, kl
  return 1 - _mean_square(targets, values) / _mean_square(targets, targets.mean(0)), kl


def _mean_square(targets: np.ndarray, values: np.ndarray) -> float:
  return float(np.square(targets - values).sum(-1).mean())


def mean_kl(targets: np.ndarray, values: np.ndarray) -> float:
  """The mean over rows of KL(target || value) in nats."""
  return float(scipy.special.rel_entr(targets, values).sum(-1).mean())


def _check(features: np.ndarray, targets: np.ndarray, kind: str) -> None:
  if kind not in _FITS:
    raise ValueError(f'kind is {kind!r}; valid are {", ".join(map(repr, _FITS))}')
  arguments.check_shape('features', features, ..., 'n', 'F')
  arguments.check_shape('targets', targets, *features.shape[:-1], 'C')
  for name, array in ('features', features), ('targets', targets):
    arguments.check_finite(name, array)
  if kind != 'affine':
    arguments.check_probs('targets', targets, *targets.shape, within=1e-4)
  if kind == 'table':
    arguments.check_ids('features', features, 2**31)


def _split(key: Array, num_texts: int, splits: Sequence[float]) -> list[np.ndarray]:
  """The numbers of the texts for training, validation and test, in a random order."""
  shares = np.asarray(splits, float)
  ends = np.cumsum(shares) / shares.sum() * num_texts
  parts = np.split(np.asarray(jax.random.permutation(key, num_texts)), np.round(ends[:-1]).astype(int))
  if len(shares) != 3 or not (shares > 0).all() or not all(map(len, parts)):
    raise ValueError(f'splits are {splits} of {num_texts} texts; valid are three shares, each of at least one text')
  return parts


def _linear_fits(solve: Callable[..., np.ndarray], features: np.ndarray, targets: np.ndarray) -> Iterator[Any]:
  """Yield W and b, and the ridge, by `solve` in coordinates [n, R + 1] that are uncorrelated, the first of them 1."""
  rows, means, deviations = standardised(features)
  _, sizes, directions = principal_directions(rows)
  coordinates = np.insert(rows @ directions.T, 0, 1, axis=1)
  squares = np.insert(sizes**2 / len(features), 0, 1)
  solution = np.zeros((len(squares), targets.shape[1]))
  for ridge in _RIDGES:
    penalties = np.where(np.arange(len(squares)), ridge, 0.0)[:, None]
    # In these units the curvature with the penalty is that of standardised features without one.
    scales = np.sqrt(squares[:, None] + penalties)
    solution = solve(coordinates / scales.T, targets, penalties / scales**2, solution * scales) / scales
    weights = directions.T @ solution[1:]
    yield (weights / deviations[:, None], solution[0] - means @ weights), ridge


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
  return np.asarray(features, np.float64) @ weights + bias


def _table(tokens: np.ndarray, train: np.ndarray, targets: np.ndarray, prior: float) -> np.ndarray:
  values = table_means(train, targets, _rows(tokens), prior=prior)
  return values.reshape(*tokens.shape[:-1], -1)


_VALUES: dict[str, Callable[..., np.ndarray]] = {
  'affine': _affine,
  'softmax': lambda *args: scipy.special.softmax(_affine(*args), axis=-1),
  'table': _table,
}
_FITS: dict[str, Callable[..., Iterator[Any]]] = {
  'affine': functools.partial(_linear_fits, _least_squares),
  'softmax': functools.partial(_linear_fits, _least_kl),
  'table': lambda tokens, targets: (((tokens, targets, prior), prior) for prior in _PRIORS),
}
