"""A function of many inputs, a block of fixed size at a time: bounded memory, and one compiled program."""

from collections.abc import Callable
from typing import Any

import jax
from jax import Array, lax
import jax.numpy as jnp
import numpy as np


def _count(inputs: Any) -> int:
  count = len(jax.tree.leaves(inputs)[0])
  if not count:
    raise ValueError('inputs are empty; valid is at least one')
  return count


def even_size(count: int, entries: int, most: int) -> int:
  """The size of blocks, as even as can be, of inputs with this many entries each and at most `most` in a block."""
  num_blocks = -(-count // max(most // entries, 1))
  return -(-count // max(num_blocks, 1))


def in_blocks(function: Callable[[Any], Any], inputs: Any, size: int) -> Any:
  """`function` of `size` inputs at a time, concatenated on the host: numpy arrays, leading axis n, in trees or alone.

  The last block is filled up with the first inputs, so that all are of one shape.
  """
  count = _count(inputs)
  filled = jax.tree.map(lambda x: np.resize(x, (-(-count // size) * size, *x.shape[1:])), inputs)
  block = lambda start: jax.tree.map(lambda x: x[start : start + size], filled)
  results = [jax.device_get(function(block(start))) for start in range(0, count, size)]
  return jax.tree.map(lambda *parts: np.concatenate(parts)[:count], *results)


def map_blocks(function: Callable[[Any], Any], inputs: Any, size: int) -> Any:
  """`function` of `size` inputs at a time, inside of one program: arrays with leading axis n, in trees or alone.

  The last block overlaps the one before it, which spares a padded copy of everything.
  """
  count = _count(inputs)
  size = min(size, count)
  block_result = lambda start: function(jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, start, size), inputs))

  def fill(result: Any, start: Array) -> tuple[Any, None]:
    put = lambda x, part: lax.dynamic_update_slice_in_dim(x, part, start, 0)
    return jax.tree.map(put, result, block_result(start)), None

  empty = jax.tree.map(lambda x: jnp.zeros((count, *x.shape[1:]), x.dtype), jax.eval_shape(block_result, 0))
  return lax.scan(fill, empty, jnp.minimum(jnp.arange(0, count, size), count - size))[0]
