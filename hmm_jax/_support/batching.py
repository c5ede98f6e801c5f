"""A batching rule of `jax.vmap` for functions of a distribution and sequences."""

from collections.abc import Callable
import functools
from typing import Any

import jax
from jax import Array
import jax.numpy as jnp

from hmm_jax._support import float64
from hmm_jax._support.blocks import even_size, map_blocks

# Entries of the messages that a CPU works on at a time: they stay in its fastest cache.
_CACHE_ENTRIES = 1600
# From this many sequences per distribution, a loop over distributions is faster than one batch of all.
_MANY = 16


def with_batching_rule(function: Callable[..., Any]) -> Callable[..., Any]:
  """Wrap `function`: float64, first-order reverse mode only, and `jax.vmap` as fast as a batch axis.

  Args:
    function: (initial_probs [E], transition matrix [H, H], *sequences [B, ...]) -> arrays [B, ...]. It must also accept
      a distribution per sequence, [B, E] and [B, H, H], and treat sequences independently.
  """
  forward = _mapped(function, is_pull_back=False)
  # The residuals are the arguments: `vmap` does not see the batch axis of arrays inside of `function`.
  pull_back = _mapped(lambda *args: jax.vjp(function, *args[:-1])[1](args[-1]), is_pull_back=True)
  with_slopes = jax.custom_vjp(forward)
  with_slopes.defvjp(
    lambda *args: (_undifferentiable(forward)(*args), args),
    lambda args, slopes: _undifferentiable(pull_back)(*args, slopes),
  )
  return with_slopes


def block_size(count: int, width: int) -> int:
  """The number of sequences of this width that a CPU works on at a time, of `count` or more."""
  size = even_size(count, 1, max(_CACHE_ENTRIES // width, 16))
  # Whole vector registers, and no stride of a power of two, which caches are slow at.
  return (-(-size // 16) | 1) * 16


def in_cache(function: Callable[..., Any]) -> Callable[..., Any]:
  """Wrap a function of a distribution and rows [B, T, E] so that a CPU works on few sequences at a time."""

  def by_blocks(initial_probs: Array, matrix: Array, rows: Array) -> Any:
    count = size = len(rows)
    if jax.default_backend() == 'cpu':
      size = min(block_size(count, rows.shape[-1]), count)
    if matrix.ndim == 2:
      return map_blocks(functools.partial(function, initial_probs, matrix), rows, size)
    return map_blocks(lambda block: function(*block), (initial_probs, matrix, rows), size)

  return by_blocks


def _undifferentiable(function: Callable[..., Any]) -> Callable[..., Any]:
  """Wrap `function` so that differentiating it raises TypeError."""

  def refuse(primals: Any, tangents: Any) -> Any:
    raise TypeError('inference supports one reverse-mode derivative, not second derivatives such as jax.hessian')

  refusing = jax.custom_jvp(function)
  refusing.defjvp(refuse)
  return refusing


def _beside(size: int, count: int, x: Array, is_mapped: bool, is_of_sequence: bool = True) -> Array:
  """An argument of `count` sequences, with the mapped axis of this size folded into that of sequences."""
  x = x if is_mapped else jnp.broadcast_to(x, (size, *x.shape))
  x = x if is_of_sequence else jnp.broadcast_to(x[:, None], (size, count, *x.shape[1:]))
  return x.reshape(size * count, *x.shape[2:])


def _mapped(function: Callable[..., Any], is_pull_back: bool) -> Callable[..., Any]:
  """Wrap `function` so that `jax.vmap` folds the mapped axis into its batch of sequences.

  A pull-back returns the distribution's cotangents first, summed over the sequences of one call. JAX sums them over the
  mapped axis where the distribution is unmapped.
  """
  call = jax.custom_batching.custom_vmap(float64.in_float64(function))

  @call.def_vmap
  @float64.in_float64
  def batched(size: int, is_mapped: Any, *args: Any) -> tuple[Any, Any]:
    (initial_probs, matrix, *sequences), (*of_distribution, of_first) = args, is_mapped[:3]
    count = sequences[0].shape[int(of_first)]
    has_own = matrix.ndim - of_distribution[1] == 3
    beside = functools.partial(_beside, size, count)
    distribution = initial_probs, matrix
    if is_pull_back or has_own or any(of_distribution):
      if count >= _MANY and not has_own:
        axes = jax.tree.map(lambda is_mapped: 0 if is_mapped else None, tuple(is_mapped))
        result = jax.vmap(jax.custom_batching.sequential_vmap(call), axes)(*args)
        return result, jax.tree.map(lambda _: True, result)
      distribution = beside(initial_probs, is_mapped[0], has_own), beside(matrix, is_mapped[1], has_own)
    result = call(*distribution, *jax.tree.map(beside, sequences, list(is_mapped[2:])))
    result = jax.tree.map(lambda x: x.reshape(size, count, *x.shape[1:]), result)
    if is_pull_back and not has_own:
      result = (*(slopes.sum(1) for slopes in result[:2]), *result[2:])
    return result, jax.tree.map(lambda _: True, result)

  return call
