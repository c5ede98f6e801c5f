"""Exact inference on a Markov chain from likelihood rows (the paper's G-bar before the emissions).

The likelihood row of position t holds P[observation at t | state], up to any positive factor: a token is its column
of the emission matrix, [MASK] is a row of ones, a theory prompt is the row u in [0, 1]^H, and a position past the end
of a ragged sequence is a row of ones.

A state may have a part that never moves, such as a memory: with E = C H joint states, number c H + h is the pair
of a configuration c and a hidden state h. The transition matrix is that of h alone, and a step costs O(C H^2).
A plain chain has C = 1 and E = H.

Arithmetic is float64 for every input type. Concrete float64, such as a numpy array, enters without rounding, so a
log-likelihood of -inf means probability zero. float32 inputs, and inputs traced without `jax_enable_x64`, cannot hold
numbers below 1e-38. Results have the likelihoods' type; without `jax_enable_x64` float64 becomes float32.
A sequence is recomputed with logarithms if underflow of scaled messages could matter: its evidence is improbable, and
an entry of a message was lost or nearly so.
TPUs have no float64: there inference runs on the host.
"""

from collections.abc import Callable
import functools
from typing import Any, NamedTuple, Protocol

import jax
from jax import Array, lax
import jax.numpy as jnp
import numpy as np

from hmm_jax._support import arguments, float64
from hmm_jax._support.arguments import converted
from hmm_jax._support.batching import block_size, in_cache, with_batching_rule
from hmm_jax._support.blocks import in_blocks
from hmm_jax._support.display import shown
from hmm_jax.inference import arithmetic, passes
from hmm_jax.inference.arithmetic import Pass

# Batches on the host of at least so many texts are filled up to one of few sizes, of at most so many entries.
_LEAST_FILLED, _MOST_FILLED = 8, 2**20


class Chain(Protocol):
  """A distribution as inference sees it: `joint_initial_probs` [E], and the `transition_matrix` [H, H] of h."""

  @property
  def joint_initial_probs(self) -> Array | np.ndarray: ...

  @property
  def transition_matrix(self) -> Array | np.ndarray: ...


@shown
class Posterior(NamedTuple):
  """The posteriors of one pass forward and one backward. A row is all zeros where its evidence is impossible.

  Attributes:
    filtered_probs: [T, E], P[H_t | x_{1:t}].
    predicted_probs: [T, E], P[H_t | x_{1:t-1}]; row 0 is the initial distribution.
    smoothed_probs: [T, E], P[H_t | x_{1:T}].
    leave_one_out_probs: [T, E], P[H_t | x_{-t}]; row t does not depend on likelihood row t.
    marginal_loglik: [], log P[x_{1:T}] in nats; -inf if the evidence has probability zero.

  >>> import hmm_jax as hj
  >>> hmm = hj.random_hmm(jax.random.key(0), num_states=3, num_tokens=4)
  >>> posterior = forward_backward(hmm, jnp.ones((5, 3)))  # no token is seen
  >>> posterior.leave_one_out_probs.shape, posterior.smoothed_probs.sum(-1).round(3).tolist()
  ((5, 3), [1.0, 1.0, 1.0, 1.0, 1.0])
  """

  filtered_probs: Array
  predicted_probs: Array
  smoothed_probs: Array
  leave_one_out_probs: Array
  marginal_loglik: Array


@converted
def forward_backward(hmm: Chain, likelihoods: Array) -> Posterior:
  """Exact posteriors by message passing (Rabiner 1989; the paper's G-bar, section 3.1), of one sequence or of many.

  `hmm_jax.inference.passes` has the two recursions, with A the row-stochastic `transition_matrix`; a part of the state
  that never moves is only an index there. Time O(T C H^2).

  Differentiable in every argument, also at exact zeros (reverse mode once, no `jax.hessian`). Gradients are clipped to
  a millionth of the largest float. If the evidence of rows with maximum 1 is below exp(-650), the gradient at an
  exact zero may be 0.

  Args:
    hmm: an `HMM` (E = H), a `MemoryHMM` (E = M^N H), or anything with their `joint_initial_probs` [E] and
      `transition_matrix` [H, H].
    likelihoods: [..., T, E], nonnegative; `token_likelihoods` makes them from tokens. Leading axes are batches of
      independent sequences. `jax.vmap` over sequences is as fast; over HMMs a step costs more.

  Returns:
    A `Posterior` over the E joint states. Numbers below the smallest normal one count as 0.

  Raises:
    ValueError: the shape of the likelihoods; where values are known (`hmm_jax._support.arguments`) one that is
      negative or NaN, and a field of the distribution that `validate` refuses. Elsewhere a NaN makes `marginal_loglik`
      NaN.

  >>> import hmm_jax as hj
  >>> hmm = hj.random_hmm(jax.random.key(0), num_states=3, num_tokens=4)
  >>> tokens = jnp.array([0, 1, 2, 3, 0])
  >>> print(forward_backward(hmm, hj.token_likelihoods(hmm, tokens, tokens >= 0)).smoothed_probs.round(2))
  [[0.   0.   1.  ]
   [0.   0.   1.  ]
   [1.   0.   0.  ]
   [0.   1.   0.  ]
   [0.84 0.   0.16]]
  """
  return inferred(passes.SMOOTH, as_posterior, hmm, likelihoods)


@converted
def last_filtered(hmm: Chain, likelihoods: Array) -> tuple[Array, Array]:
  """P[H_T | x_{1:T}] [..., E] and log P[x_{1:T}] [...] in nats, for likelihoods [..., T, E], by a forward pass.

  Zeros and -inf for impossible evidence. Summed over hidden states, the probabilities are the posterior of the memory.
  """
  return inferred(passes.FILTER_TO_END, _unchanged, hmm, likelihoods)


@converted
def last_filtered_probs(hmm: Chain, likelihoods: Array) -> Array:
  """Only the probabilities of `last_filtered`.

  >>> import hmm_jax as hj
  >>> hmm = hj.random_hmm(jax.random.key(0), num_states=3, num_tokens=4)
  >>> last_filtered_probs(hmm, jnp.ones((2, 5, 3))).shape
  (2, 3)
  """
  return last_filtered(hmm, likelihoods)[0]


def inferred(run: Pass, rest: Callable[..., Any], hmm: Chain, likelihoods: Array) -> Any:
  """`rest(hmm, result)` of a pass over each sequence of likelihoods [..., T, E].

  Arrays on the host go through one program, and through those of improbable evidence only if it is; traced ones, and
  those on an accelerator, through one program with all branches.

  Args:
    run: the pass, of `hmm_jax.inference.passes`.
    rest: (distribution, result of the pass [..., T, E]) -> arrays [..., ...]; a function of a module.
    hmm: a distribution.
    likelihoods: as in `forward_backward`.
  """
  if not arguments.are_on_host((hmm, likelihoods)):
    return _in_one_program(run, rest, hmm, likelihoods)
  hmm, likelihoods = jax.tree.map(np.asarray, (hmm, likelihoods))
  _check(hmm, likelihoods)
  rows = likelihoods.reshape(-1, *likelihoods.shape[-2:])
  result = in_blocks(functools.partial(_in_programs, run, rest, hmm), rows, _size_on_host(*rows.shape))
  batch_shape = likelihoods.shape[:-2]
  return jax.tree.map(lambda x: jnp.asarray(x.reshape(batch_shape + x.shape[1:]), x.dtype), result)


def _check(hmm: Chain, likelihoods: Any) -> None:
  num_joint = hmm.joint_initial_probs.shape[-1]
  if likelihoods.ndim < 2 or likelihoods.shape[-1] != num_joint or 0 in likelihoods.shape:
    raise ValueError(f'likelihoods have shape {likelihoods.shape}; valid is [..., T, {num_joint}], no axis empty')


def _size_on_host(count: int, length: int, width: int) -> int:
  """The number of texts in a block: one of few, so that most batches share programs."""
  size = block_size(count, width)
  # Products of fewer columns round differently, and filling up many long texts would cost more than a program.
  has_own_size = count < _LEAST_FILLED or size * length * width > _MOST_FILLED
  return min(size, count) if has_own_size else size


def _in_programs(run: Pass, rest: Callable[..., Any], hmm: Chain, rows: Any) -> Any:
  """`rest` of a pass over rows [B, T, E] on the host, by as many programs as the evidence needs."""
  # Results that logarithms replace may overflow.
  with jax.debug_nans(False):
    result, is_large = jax.device_get(_scaled(run, rest, hmm, rows))
  if is_large.all():
    return result
  certified = is_large | np.asarray(_keeps_all(run, hmm, rows))
  if certified.all():
    return result
  by_logarithms = jax.device_get(_logarithmic(run, rest, hmm, rows))
  return jax.tree.map(lambda *x: np.where(certified.reshape(-1, *(1,) * (x[0].ndim - 1)), *x), result, by_logarithms)


@functools.partial(float64.jit, static_argnames=('run', 'rest'))
def _scaled(run: Pass, rest: Callable[..., Any], hmm: Chain, rows_BxTxE: Array) -> tuple[Any, Array]:
  result, is_large = _of_block(arithmetic.scaled, run, *_floats(hmm, rows_BxTxE))
  return rest(hmm, result), is_large


@functools.partial(float64.jit, static_argnames='run')
def _keeps_all(run: Pass, hmm: Chain, rows_BxTxE: Array) -> Array:
  return _of_block(arithmetic.keeps_all, run, *_floats(hmm, rows_BxTxE))


@functools.partial(float64.jit, static_argnames=('run', 'rest'))
def _logarithmic(run: Pass, rest: Callable[..., Any], hmm: Chain, rows_BxTxE: Array) -> Any:
  return rest(hmm, _of_block(arithmetic.logarithmic, run, *_floats(hmm, rows_BxTxE)))


@functools.partial(float64.jit, static_argnames=('run', 'rest'))
def _in_one_program(run: Pass, rest: Callable[..., Any], hmm: Chain, likelihoods: Array) -> Any:
  _check(hmm, likelihoods)
  initial_probs, matrix, rows = _floats(hmm, likelihoods)
  function = with_batching_rule(in_cache(functools.partial(_of_block, arithmetic.scaled_or_logarithmic, run)))
  result = function(initial_probs, matrix, rows.reshape(-1, *rows.shape[-2:]))
  return rest(hmm, jax.tree.map(lambda x: x.reshape(rows.shape[:-2] + x.shape[1:]), result))


def as_posterior(hmm: Chain, result: Any) -> Posterior:
  """The result of the pass `SMOOTH`."""
  probs, loglik = result
  return Posterior(*probs, loglik)


def _unchanged(hmm: Chain, result: Any) -> Any:
  return result


def _floats(hmm: Chain, likelihoods: Array) -> Any:
  return map(float64.as_float, (hmm.joint_initial_probs, hmm.transition_matrix, likelihoods))


@float64.in_float64
def _of_block(
  function: Callable[..., Any], run: Pass, initial_probs: Array, matrix: Array, rows_BxTxE: Array
) -> Any:
  """What `function` of `arithmetic` gives of rows of a distribution, one for all, or one for each, [B, E], [B, H, H]."""
  batch, length, _ = rows_BxTxE.shape
  rows_TxHxCxB = rows_BxTxE.reshape(batch, length, -1, matrix.shape[-1]).transpose(1, 3, 2, 0)
  rows_TxHxCxB = lax.optimization_barrier(rows_TxHxCxB)  # XLA would transpose once for each use.
  batch_first = lambda x: jnp.moveaxis(x, -1, 0).swapaxes(-1, -2).reshape(batch, *x.shape[:-3], -1)
  result = function(run, *batch_last(initial_probs, matrix, 1), rows_TxHxCxB)
  return jax.tree.map(lambda x: batch_first(x) if x.ndim > 1 else x, result)


def batch_last(initial_probs: Array, matrix: Array, num_axes: int) -> tuple[Array, Array]:
  """Initial probabilities [H, C, ...] and the matrix [H, H] or [H, H, ...]; ... is `num_axes` axes, the batch first."""
  by_parts = initial_probs.reshape(*initial_probs.shape[:-1], -1, matrix.shape[-1]).swapaxes(-1, -2)
  if matrix.ndim == 2:
    return jnp.expand_dims(by_parts, range(2, 2 + num_axes)), matrix
  last = lambda x: jnp.expand_dims(jnp.moveaxis(x, 0, -1), range(3, 2 + num_axes))
  return last(by_parts), last(matrix)
