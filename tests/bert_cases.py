"""The smallest BERT, and parameters of it and of others."""

import jax
import jax.numpy as jnp
import numpy as np

from hmm_jax.models.bert import Bert

SMALLEST = Bert(num_tokens=4, num_layers=1, width=8, num_heads=2, ffn_width=8, max_positions=6, dropout_rate=0.0)


def random_params(bert, seed=0):
  """Weights far from their start, so that the model is not constant and no two of them can be exchanged unseen."""
  tree = jax.eval_shape(bert.init, jax.random.key(0), jnp.zeros((1, 1), jnp.int32))['params']
  draws = np.random.default_rng(seed)
  return jax.tree.map(lambda leaf: draws.normal(leaf.ndim == 1, 0.5, leaf.shape).astype(np.float32), tree)
