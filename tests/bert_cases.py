"""Parameters of small BERTs, and what a BERT computes in plain numpy and float64."""

import jax
import jax.numpy as jnp
import numpy as np
from oracles import float64
import scipy.special


def random_params(bert, seed=0):
  """Weights far from their start, so that the model is not constant and no two of them can be exchanged unseen."""
  tree = jax.eval_shape(bert.init, jax.random.key(0), jnp.zeros((1, 1), jnp.int32))['params']
  draws = np.random.default_rng(seed)
  return jax.tree.map(lambda leaf: draws.normal(leaf.ndim == 1, 0.5, leaf.shape).astype(np.float32), tree)


def _dense(params, x):
  return x @ params['kernel'] + params['bias']


def _norm(params, x):
  scaled = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
  return scaled * params['scale'] + params['bias']


def _gelu(x):
  return x * scipy.special.ndtr(x)


def _layer(params, x, num_heads):
  heads = lambda y: np.moveaxis(y.reshape(*y.shape[:-1], num_heads, -1), -2, -3)
  query, key, value = map(heads, np.split(_dense(params['qkv'], x), 3, axis=-1))
  weights = scipy.special.softmax(query @ np.swapaxes(key, -1, -2) / np.sqrt(query.shape[-1]), axis=-1)
  attended = np.moveaxis(weights @ value, -3, -2).reshape(x.shape)
  x = _norm(params['attention_norm'], x + _dense(params['attention_out'], attended))
  return _norm(params['ffn_norm'], x + _dense(params['ffn_out'], _gelu(_dense(params['ffn_in'], x))))


def numpy_logits(bert, params, tokens):
  """Logits [..., T, V + 1] of tokens [..., T] as Devlin et al. (2019) define them."""
  params = float64(params)
  words = params['word_embedding']['embedding']
  x = _norm(params['embedding_norm'], words[tokens] + params['position_embedding'][: tokens.shape[-1]])
  for number in range(bert.num_layers):
    x = _layer(params[f'layers_{number}'], x, bert.num_heads)
  return _norm(params['transform_norm'], _gelu(_dense(params['transform'], x))) @ words.T + params['output_bias']
