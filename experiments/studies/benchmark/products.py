"""The matrix products of one step of pretraining alone: what the step would take if all else were free."""

import functools
from typing import NamedTuple

import jax
from jax import Array, lax
import jax.numpy as jnp

from hmm_jax.bert import Bert

# Of one product: both factors, and the slope of a loss in the result.
Operands = tuple[Array, Array, Array]


class Product(NamedTuple):
  """`batch` products [rows, inner] x [inner, columns] side by side."""

  batch: int
  rows: int
  inner: int
  columns: int

  @property
  def flops(self) -> int:
    """Forward and backward: the result, and the slopes in both factors."""
    return 3 * 2 * self.batch * self.rows * self.inner * self.columns


def forward_products(bert: Bert, batch_size: int, length: int, num_read: int) -> list[Product]:
  """Those of a pass forward over B chunks [T], of which `num_read` positions each are read out.

  The last layer computes keys and values everywhere, and all else where it is read.
  """
  width, head_width, vocabulary = bert.width, bert.width // bert.num_heads, bert.num_tokens + 1

  def layer(positions: int) -> list[Product]:
    dense = functools.partial(Product, 1, batch_size * positions)
    heads = functools.partial(Product, batch_size * bert.num_heads, positions)
    attention = [heads(head_width, length), heads(length, head_width), dense(width, width)]
    return [*attention, dense(width, bert.ffn_width), dense(bert.ffn_width, width)]

  everywhere = functools.partial(Product, 1, batch_size * length)
  read = functools.partial(Product, 1, batch_size * num_read)
  before = [everywhere(width, 3 * width), *layer(length)] * (bert.num_layers - 1)
  last = [read(width, width), everywhere(width, 2 * width), *layer(num_read)]
  return [*before, *last, read(width, width), read(width, vocabulary)]


def operands(products: list[Product], dtype: jnp.dtype) -> list[Operands]:
  """Factors of their own for each product, since the products of a step share none."""
  return [_operands(product, jnp.dtype(dtype), jax.random.key(index)) for index, product in enumerate(products)]


@functools.partial(jax.jit, static_argnames=('product', 'dtype'))
def _operands(product: Product, dtype: jnp.dtype, key: Array) -> Operands:
  batch, rows, inner, columns = product
  shapes = (batch, rows, inner), (batch, inner, columns), (batch, rows, columns)
  left, right, slope = (jax.random.normal(k, shape, dtype) for k, shape in zip(jax.random.split(key, 3), shapes))
  return left, right, slope


@functools.partial(jax.jit, static_argnames='repeats')
def multiply(factors: list[Operands], repeats: int) -> Array:
  """Does every product `repeats` times, forward and backward; the number that is returned means nothing."""

  def once(total: Array, _: None) -> tuple[Array, None]:
    # Without barriers XLA would take the products out of the loop, or work out no more than the entries that are read.
    fresh, total = lax.optimization_barrier((factors, total))
    results = lax.optimization_barrier([_forward_and_backward(*of_product) for of_product in fresh])
    return total + sum(x[0, 0, 0].astype(jnp.float32) for x in jax.tree.leaves(results)), None

  return lax.scan(once, jnp.float32(0), length=repeats)[0]


def _forward_and_backward(left: Array, right: Array, slope: Array) -> Operands:
  transposed = lambda x: x.swapaxes(-1, -2)
  return left @ right, slope @ transposed(right), transposed(left) @ slope
