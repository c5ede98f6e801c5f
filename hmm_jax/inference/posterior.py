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

Arrays in host memory go through a program of scaled messages, and only where evidence is small through those that check
them and that take logarithms. Traced arrays go through one program with all branches.
"""

from collections.abc import Callable
import functools
from typing import Any, NamedTuple, Protocol

import jax
from jax import Array, lax
import jax.numpy as jnp
import numpy as np

from hmm_jax._support import float64
from hmm_jax._support.arguments import are_on_host, check_shape, converted
from hmm_jax._support.batching import block_size, in_cache, with_batching_rule
from hmm_jax._support.blocks import in_blocks
from hmm_jax._support.display import shown
from hmm_jax.inference import arithmetic, passes

# Batches on the host of at least so many texts are filled up to one of few sizes, of at most so many entries.
_LEAST_FILLED, _MOST_FILLED = 8, 2**20

# A pass of `passes`, and what is made of a distribution and the result of one.
Run = Callable[..., Any]
Finish = Callable[[Any, Any], Any]


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
  return posterior(by_sequence(passes.smooth, hmm, likelihoods))


def posterior(result: Any) -> Posterior:
  """The `Posterior` of what `by_sequence` gives of `passes.smooth`."""
  probs, loglik = result
  return Posterior._make((*probs, loglik))


@converted
def last_filtered(hmm: Chain, likelihoods: Array) -> tuple[Array, Array]:
  """P[H_T | x_{1:T}] [..., E] and log P[x_{1:T}] [...] in nats, for likelihoods [..., T, E], by a forward pass.

  Zeros and -inf for impossible evidence. Summed over hidden states, the probabilities are the posterior of the memory.
  """
  return by_sequence(passes.filter_to_end, hmm, likelihoods)


@converted
def last_filtered_probs(hmm: Chain, likelihoods: Array) -> Array:
  """Only the probabilities of `last_filtered`.

  >>> import hmm_jax as hj
  >>> hmm = hj.random_hmm(jax.random.key(0), num_states=3, num_tokens=4)
  >>> last_filtered_probs(hmm, jnp.ones((2, 5, 3))).shape
  (2, 3)
  """
  return last_filtered(hmm, likelihoods)[0]


def by_sequence(run: Run, hmm: Chain, likelihoods: Array, finish: Finish | None = None) -> Any:
  """The probabilities and the log-likelihood of a pass over each sequence of likelihoods [..., T, E].

  Its arrays [..., H, C, B] become [..., E]. With `finish`, a function of a module, `finish(hmm, result)`, a tree of
  arrays that have the axes of sequences.
  """
  if not are_on_host((hmm, likelihoods)):
    return _in_one_program(run, finish, hmm, likelihoods)
  # Joint laws of numpy arrays compile nothing.
  hmm = jax.tree.map(np.asarray, hmm)
  check_rows(hmm, likelihoods, ...)
  rows_BxTxE = np.asarray(likelihoods).reshape(-1, *likelihoods.shape[-2:])
  count, length, width = rows_BxTxE.shape
  size = block_size(count, width)
  # Products of fewer columns round differently, and to fill up many long texts would cost more than a program.
  if count < _LEAST_FILLED or size * length * width > _MOST_FILLED:
    size = min(size, count)

  def of_block(rows: Array) -> Any:
    result = _in_programs(run, hmm, rows)
    return _finished(finish, hmm, result) if finish else result

  result = in_blocks(of_block, rows_BxTxE, size)
  return jax.tree.map(lambda x: jnp.asarray(x.reshape(likelihoods.shape[:-2] + x.shape[1:]), x.dtype), result)


def check_rows(hmm: Chain, likelihoods: Array, *batch: Any) -> None:
  """Raise ValueError unless `likelihoods` are [T, E], behind the axes of a batch."""
  name = 'likelihoods, which token_likelihoods(hmm, tokens) makes,'
  check_shape(name, likelihoods, *batch, 'T', hmm.joint_initial_probs.shape[-1])


def _in_programs(run: Run, hmm: Chain, rows_BxTxE: Array) -> Any:
  """The result of a pass over rows on the host, by as many programs as their evidence needs."""
  # A result that logarithms replace may be NaN.
  with jax.debug_nans(False):
    result, is_large = jax.device_get(_program(arithmetic.scaled, run, hmm, rows_BxTxE))
  if is_large.all():
    return result
  certified = np.asarray(_program(arithmetic.certified, run, hmm, rows_BxTxE))
  if certified.all():
    return result
  by_logarithms = jax.device_get(_program(arithmetic.logarithmic, run, hmm, rows_BxTxE))
  return jax.tree.map(lambda x, y: np.where(certified.reshape(-1, *[1] * (x.ndim - 1)), x, y), result, by_logarithms)


@functools.partial(float64.jit, static_argnames=('function', 'run'))
def _program(function: Callable[..., Any], run: Run, hmm: Chain, rows_BxTxE: Array) -> Any:
  """`_of_block` of arrays on the host."""
  return float64.in_float64(_of_block)(function, run, *_floats(hmm, rows_BxTxE))


@functools.partial(float64.jit, static_argnames='finish')
def _finished(finish: Finish, hmm: Chain, result: Any) -> Any:
  """`finish(hmm, result)` of arrays on the host."""
  return finish(hmm, result)


@functools.partial(float64.jit, static_argnames=('run', 'finish'))
def _in_one_program(run: Run, finish: Finish | None, hmm: Chain, likelihoods: Array) -> Any:
  """`by_sequence` of traced arrays, or of those on an accelerator: all branches are compiled."""
  check_rows(hmm, likelihoods, ...)
  rows_BxTxE = likelihoods.reshape(-1, *likelihoods.shape[-2:])
  certified = functools.partial(run, arithmetic.if_needed)
  of_block = functools.partial(_of_block, arithmetic.scaled_or_logarithmic, certified)
  result = with_batching_rule(in_cache(of_block))(*_floats(hmm, rows_BxTxE))
  result = jax.tree.map(lambda x: x.reshape(likelihoods.shape[:-2] + x.shape[1:]), result)
  return finish(hmm, result) if finish else result


def _floats(hmm: Chain, rows: Array) -> Any:
  return map(float64.as_float, (hmm.joint_initial_probs, hmm.transition_matrix, rows))


def _of_block(
  function: Callable[..., Any], run: Callable[..., Any], initial_probs: Array, matrix: Array, rows_BxTxE: Array
) -> Any:
  """`function(run, ...)` of rows of a distribution that is one for all, or one for each, [B, E] and [B, H, H]."""
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
