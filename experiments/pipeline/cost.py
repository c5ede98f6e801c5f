"""The cost of pretraining, from its settings alone: floating-point operations (FLOPs) of matrix products.

A product of [m, k] and [k, n] has 2 m k n FLOPs. Entrywise work counts as none: GELU, softmax, norms and AdamW.
"""

import functools
import math
from typing import NamedTuple

from experiments.settings.grid import Settings
from hmm_jax.bert import Bert
from hmm_jax.masking import num_slots


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


def pretraining_step(s: Settings, read: int | None = None) -> int:
  """FLOPs of one optimiser step: forward, twice that backward, and Muon's.

  It reads out `read` positions of a sequence, by default as many as it has slots.
  """
  batch_size, length = s.pretrain.batch_size, s.corpus.chunk_length
  read = read or num_slots(s.corruption(), batch_size, length)
  of_muon = muon(s) if s.pretrain.optimizer == 'muon' else 0
  return training_flops(products(s.bert_module(), batch_size, length, read)) + of_muon


def muon(s: Settings) -> int:
  """FLOPs of Muon's update: five times X X^T, its square, and a product with X, for each matrix X."""
  b = s.bert
  matrix_flops = lambda few, many: 5 * (4 * few**2 * many + 2 * few**3)
  square, oblong = (matrix_flops(*sorted((b.width, size))) for size in (b.width, b.ffn_width))
  return b.num_layers * (4 * square + 2 * oblong) + square
