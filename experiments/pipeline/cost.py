"""The cost of pretraining, from its settings alone: floating-point operations (FLOPs) of matrix products.

A product of [m, k] and [k, n] has 2 m k n FLOPs. Entrywise work counts as none: GELU, softmax, norms and the optimiser.
"""

import functools
import math
from typing import NamedTuple

from hmm_jax.bert import Bert


class Product(NamedTuple):
  """`batch` products [rows, inner] x [inner, columns] side by side."""

  batch: int
  rows: int
  inner: int
  columns: int


def products(bert: Bert, batch_size: int, length: int, num_read: int) -> list[Product]:
  """The matrix products of a forward pass over B chunks [T], of which `num_read` positions each are read out.

  The last layer computes keys and values everywhere, and all else where it is read.
  """
  width, head_width = bert.width, bert.width // bert.num_heads

  def dense(positions: int, columns: int, inner: int = width) -> Product:
    return Product(1, batch_size * positions, inner, columns)

  def layer(positions: int) -> list[Product]:
    """The products behind queries, keys and values."""
    heads = functools.partial(Product, batch_size * bert.num_heads, positions)
    attention = [heads(head_width, length), heads(length, head_width), dense(positions, width)]
    return [*attention, dense(positions, bert.ffn_width), dense(positions, width, bert.ffn_width)]

  before = [dense(length, 3 * width), *layer(length)] * (bert.num_layers - 1)
  last = [dense(num_read, width), dense(length, 2 * width), *layer(num_read)]
  return [*before, *last, dense(num_read, width), dense(num_read, bert.num_tokens + 1)]


def training_flops(products: list[Product]) -> int:
  """FLOPs forward and backward: the results, and the gradients of both factors."""
  return 6 * sum(map(math.prod, products))
