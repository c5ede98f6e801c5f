"""What a model says of many inputs: a block at a time, so that inputs of one length share a compiled program."""

from collections.abc import Callable
import functools
from typing import Any

import jax
import numpy as np

from hmm_jax.model import MaskedLM

Array = jax.Array


@functools.partial(jax.jit, static_argnames='model')
def token_probs(model: MaskedLM, params: Any, tokens: Array) -> Array:
  """What the model predicts at every position of tokens [..., T], [..., T, V]."""
  return model.predict(params, model.embed(params, tokens))


@functools.partial(jax.jit, static_argnames='model')
def representation(model: MaskedLM, params: Any, tokens: Array) -> Array:
  """What the model's predictions are read out of at every position of tokens [..., T], [..., T, R]."""
  return model.represent(params, model.embed(params, tokens))


def in_blocks(function: Callable[[Any], Any], inputs: Any, size: int) -> Any:
  """`function` of `size` inputs at a time, concatenated: numpy arrays with leading axis n, in trees or alone.

  The last block is filled up with the first inputs, so that all are of one shape.
  """
  count = len(jax.tree.leaves(inputs)[0])
  blocked = jax.tree.map(lambda x: np.resize(x, (-(-count // size), size, *x.shape[1:])), inputs)
  blocks = range(-(-count // size))
  outputs = [jax.device_get(function(jax.tree.map(lambda x, b=b: x[b], blocked))) for b in blocks]
  return jax.tree.map(lambda *parts: np.concatenate(parts)[:count], *outputs)
