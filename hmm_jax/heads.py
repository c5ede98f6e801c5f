"""Classification heads: functions of a model's output."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array


class LinearHead(NamedTuple):
  """Scores features @ weights + bias; on G_1 it is the paper's b^T G_1(x) (Theorem 3.3), a row a class.

  Attributes:
    weights: [F, C].
    bias: [C].
  """

  weights: Array | np.ndarray
  bias: Array | np.ndarray


def init_linear_head(key: Array, num_features: int, num_classes: int) -> LinearHead:
  """Uniform in +-1 / sqrt(F), as PyTorch's `nn.Linear`, which the released code uses."""
  bound = 1 / math.sqrt(num_features)
  key_weights, key_bias = jax.random.split(key)
  return LinearHead(
    jax.random.uniform(key_weights, (num_features, num_classes), minval=-bound, maxval=bound),
    jax.random.uniform(key_bias, (num_classes,), minval=-bound, maxval=bound),
  )


def linear_scores(head: LinearHead, features: Array) -> Array:
  """Scores [..., C] of features [..., F]."""
  return jnp.matmul(features, head.weights, precision=jax.lax.Precision.HIGHEST) + head.bias
