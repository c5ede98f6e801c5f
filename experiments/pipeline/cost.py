"""The cost of pretraining, from its settings alone: floating-point operations (FLOPs) of matrix products, and bytes.

A product of [m, k] and [k, n] has 2 m k n FLOPs. Entrywise work counts as none: GELU, softmax, norms and the optimiser.
"""

import functools
import math
from typing import NamedTuple

import jax

from experiments.settings.grid import Settings
from hmm_jax import pretraining
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


def num_params(s: Settings) -> int:
  """The number of BERT's parameters."""
  return sum(leaf.size for leaf in jax.tree.leaves(_state(s).params))


def state_bytes(s: Settings) -> int:
  """Bytes of parameters and optimiser moments, float32: two moments with AdamW, one for a matrix that Muon trains."""
  return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(_state(s)))


@functools.cache
def _state(s: Settings) -> pretraining.TrainState:
  """The shapes of a pretraining's state; nothing is computed."""
  optimizer = s.pretrain.gradient_transformation(s.pretrain.num_steps)
  return jax.eval_shape(lambda: pretraining.init_train_state(jax.random.key(0), s.bert_module(), optimizer))


def activation_bytes(s: Settings, batch: float, length: int) -> float:
  """Bytes of one batch in the dtype of pretraining: what each layer stores for its gradient, and the logits.

  The last layer counts as if all positions were read: that much is reserved for a batch that overflows its slots.
  """
  b = s.bert
  layer = 10 * b.width + 3 * b.ffn_width + 3 * b.num_heads * length
  return batch * length * ((4 if b.dtype == 'float32' else 2) * b.num_layers * layer + 12 * s.hmm.num_tokens)
