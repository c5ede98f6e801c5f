"""The arithmetic of messages [H, C, B]: weights of sum 1, or their logarithms where weights would underflow."""

from collections.abc import Callable
import functools
from typing import Any, NamedTuple

import jax
from jax import Array, lax
import jax.numpy as jnp
import numpy as np

from hmm_jax._support import float64

# Up to this many states, products with a matrix per sequence are unrolled: XLA makes them twice as fast.
_UNROLLED = 64


class Arithmetic(NamedTuple):
  """An encoding of messages [H, C, B], and the operations of the recursions on it."""

  encode: Callable[[Array], Array]  # of float64
  decode: Callable[[Array], Array]
  times: Callable[[Array, Array], Array]
  matvec: Callable[[Array, Array], Array]  # (matrix [I, J] or [I, J, B], message [J, C, B]) -> [I, C, B]
  total: Callable[[Array], Array]  # message -> its sum, [B], which is encoded too
  over: Callable[[Array, Array], Array]  # (message, total) -> their ratio; the message if the total is zero
  log: Callable[[Array], Array]  # of what is encoded
  least_log_evidence: float  # below it evidence alone certifies no result

  def ones(self, shape: tuple[int, ...], dtype: Any) -> Array:
    return self.encode(jnp.ones(shape, np.float64)).astype(dtype)

  def decoded(self, message: Array, dtype: Any) -> Array:
    """The probabilities of a message that a constant scaled to sum 1, with the gradient of normalisation."""
    return _normalised(self.decode(message)).astype(dtype)

  def probs(self, message: Array, dtype: Any) -> Array:
    """The probabilities of a message of any sum."""
    return self.decoded(self.over(message, lax.stop_gradient(self.total(message))), dtype)


# (where the evidence is large, the function of where it is or no entry is lost) -> where a result is right, [B] each.
Certify = Callable[[Array, Callable[[], Array]], Array]


def if_needed(is_large: Array, either: Callable[[], Array]) -> Array:
  return lax.cond(is_large.all(), lambda: is_large, either)


def by_evidence(is_large: Array, either: Callable[[], Array]) -> Array:
  """The results of other texts may be right too, if their messages are."""
  return is_large


def scaled_or_logarithmic(run: Callable[..., Any], *arguments: Array) -> tuple[Any, Array]:
  """The probabilities of `run` and the log-likelihood [B], by logarithms where underflow of weights could matter.

  Args:
    run: (arithmetic, dtype, pi, A, *rows), encoded -> (probabilities, log-evidence [B], whether underflow does not
      matter [B]).
    *arguments: pi, A and the rows, not encoded.
  """
  result, certified = _result(SCALED, run, *arguments)

  def replace(result: Any, *arguments: Array) -> Any:
    by_logarithms, _ = _result(LOGARITHMIC, run, *arguments)
    return jax.tree.map(lambda *x: jnp.where(certified, *x), result, by_logarithms)

  return lax.cond(certified.all(), lambda result, *_: result, jax.checkpoint(replace), result, *arguments)


def scaled(run: Callable[..., Any], *arguments: Array) -> tuple[Any, Array]:
  """The result of scaled messages, and where evidence alone shows that it is right, [B]."""
  return _result(SCALED, functools.partial(run, by_evidence), *arguments)


def certified(run: Callable[..., Any], *arguments: Array) -> Array:
  """Where the result of scaled messages is right, [B]."""
  return _result(SCALED, functools.partial(run, lambda _, either: either()), *arguments)[1]


def logarithmic(run: Callable[..., Any], *arguments: Array) -> Any:
  """The result by logarithms."""
  return _result(LOGARITHMIC, functools.partial(run, if_needed), *arguments)[0]


def _result(arithmetic: Arithmetic, run: Callable[..., Any], *arguments: Array) -> tuple[Any, Array]:
  """The probabilities with the log-likelihood, and where underflow does not matter, by `run` of rows with maximum 1."""
  dtype = arguments[-1].dtype
  constant = lambda x: float64.positive_or_one(lax.stop_gradient(x))
  pi, A, *rows = wide = [*map(float64.as_float64, arguments)]
  total, row_sum = constant(pi.sum((0, 1))), constant(A.sum(1).max(0))
  largest = [constant(x.max((1, 2))) for x in rows]
  constants = total, row_sum, *(x[:, None, None] for x in largest)
  # Encoded before they are divided, since the quotient may underflow.
  scaled = [*map(arithmetic.over, *(map(arithmetic.encode, x) for x in (wide, constants)))]
  probs, log_evidence, certified = run(arithmetic, dtype, *scaled)
  if arithmetic is SCALED and any(x.dtype == np.float64 for x in arguments):
    # Entries that are read as 0, or become 0.
    lost = [float64.is_subnormal(x).any() | ((x > 0) != (y > 0)).any() for x, y in zip(wide, scaled)]
    certified &= ~jnp.stack(lost).any()
  moves = sum(map(len, rows)) - (len(rows) == 1)  # Between beginnings and ends lies one position more.
  log_constants = jnp.log(total) + moves * jnp.log(row_sum) + sum(jnp.log(x).sum(0) for x in largest)
  return (probs, (log_evidence + log_constants.reshape(-1)).astype(dtype)), certified


@jax.custom_jvp
def _normalised(weights: Array) -> Array:
  """Identity on weights of sum 1, with the derivative of w / sum(w) over states and configurations: dp - p sum(dp)."""
  return weights


@_normalised.defjvp
def _normalised_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
  (probs,), (tangent,) = primals, tangents
  return probs, tangent - probs * tangent.sum((-3, -2), keepdims=True)


def _matvec(matrix: Array, message: Array) -> Array:
  """sum_j matrix[i, j] message[j] of plain weights, the matrix one for all or one per sequence."""
  if matrix.ndim == 2:
    return jnp.tensordot(matrix, message, 1, precision=lax.Precision.HIGHEST)
  if len(matrix) > _UNROLLED:
    return (_beside(matrix, message) * message).sum(1)
  return functools.reduce(jnp.add, (matrix[:, j, None] * message[j] for j in range(len(matrix))))


def _beside(matrix: Array, message: Array) -> Array:
  """A matrix [I, J], or one per sequence [I, J, ...], with axes that broadcast against a message [J, C, ...]."""
  return matrix[:, :, None] if matrix.ndim > 2 else jnp.expand_dims(matrix, range(2, message.ndim + 1))


SCALED = Arithmetic(
  encode=lambda weights: weights,
  decode=lambda weights: weights,
  times=jnp.multiply,
  matvec=_matvec,
  total=lambda message: message.sum((0, 1)),
  over=lambda message, total: message * (1 / float64.positive_or_one(total)),
  log=float64.log,
  # Underflow takes at most H^2 1e-308 a step from a message of sum 1. If the evidence of rows with maximum 1 is at
  # least exp(-650) = 1e-282, a posterior loses at most T H^2 1e-26.
  least_log_evidence=-650,
)
LOGARITHMIC = Arithmetic(
  encode=float64.log_of_any,
  decode=jnp.exp,
  times=jnp.add,
  matvec=lambda matrix, message: float64.log_sum(_beside(matrix, message) + message, 1),
  total=lambda message: float64.log_sum(message, (0, 1)),
  over=lambda message, total: message - jnp.where(total == -jnp.inf, 0, total),
  log=lambda x: x,
  least_log_evidence=-jnp.inf,
)
