"""Evaluation of a function on many inputs in blocks of one size: bounded memory, one compiled program."""

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
  """The block size that splits `count` inputs of `entries` each most evenly, at most `most` entries a block."""
  num_blocks = -(-count // max(most // entries, 1))
  return -(-count // max(num_blocks, 1))


def in_blocks(function: Callable[[Any], Any], inputs: Any, size: int) -> Any:
  """Apply `function` to `size` inputs at a time and concatenate on the host; trees of numpy arrays, leading axis n.

  The last block is padded with the first inputs, so that all blocks have one shape.
  """
  count = _count(inputs)
  filled = jax.tree.map(lambda x: np.resize(x, (-(-count // size) * size, *x.shape[1:])), inputs)
  block = lambda start: jax.tree.map(lambda x: x[start : start + size], filled)
  results = [jax.device_get(function(block(start))) for start in range(0, count, size)]
  return jax.tree.map(lambda *parts: np.concatenate(parts)[:count], *results)


def map_blocks(function: Callable[[Any], Any], inputs: Any, size: int) -> Any:
  """Apply `function` to `size` inputs at a time inside one program; trees of arrays, leading axis n.

  The last block overlaps the one before it, which avoids a padded copy of all inputs.
  """
  count = _count(inputs)
  size = min(size, count)
  block_result = lambda start: function(jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, start, size), inputs))

  def fill(result: Any, start: Array) -> tuple[Any, None]:
    put = lambda x, part: lax.dynamic_update_slice_in_dim(x, part, start, 0)
    return jax.tree.map(put, result, block_result(start)), None

  empty = jax.tree.map(lambda x: jnp.zeros((count, *x.shape[1:]), x.dtype), jax.eval_shape(block_result, 0))
  return lax.scan(fill, empty, jnp.minimum(jnp.arange(0, count, size), count - size))[0]
