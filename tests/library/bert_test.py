"""Facts about the encoder; that it is BERT, `bert_parity_test` shows."""

import functools

from bert_cases import random_params
import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
import scipy.stats

from hmm_jax.models.bert import Bert, BertModel

V = 5
TINY = Bert(num_tokens=V, num_layers=2, width=8, num_heads=2, ffn_width=16, max_positions=7, dropout_rate=0.0)
PARAMS = random_params(TINY)
TOKENS = np.int32([[0, V, 3, 3, 1], [4, 1, 2, V, 0]])


@functools.partial(jax.jit, static_argnames='bert')
def logits(bert, params, tokens):
  return bert.apply({'params': params}, tokens)


def test_weights_start_from_a_truncated_normal():
  """Every matrix is `init_stddev` times a standard normal cut at 2; biases are 0, scales 1."""
  bert = TINY.clone(num_layers=1, width=32, ffn_width=64, max_positions=64, init_stddev=0.05)
  tree = jax.jit(bert.init)(jax.random.key(1), TOKENS)['params']
  for path, leaf in jax.tree.leaves_with_path(tree):
    name = jax.tree_util.keystr(path)
    if leaf.ndim == 2:
      assert np.abs(leaf).max() <= 0.1, name
      assert scipy.stats.kstest(np.ravel(leaf) / 0.05, scipy.stats.truncnorm(-2, 2).cdf).pvalue > 1e-4, name
    else:
      np.testing.assert_array_equal(leaf, float('scale' in name), name)


def test_accelerators_look_tokens_up_without_a_scatter_and_get_the_same(monkeypatch):
  """A scatter of many positions to few rows took three quarters of a step on an H100."""
  model, weights = BertModel(TINY), np.random.default_rng(0).normal(size=(*TOKENS.shape, 8))
  loss = lambda params: (jnp.sin(model.embed(params, TOKENS)) * weights).sum()
  traced = jax.jit(jax.grad(loss)).trace(PARAMS)
  assert 'scatter' not in traced.lower(lowering_platforms=('cuda',)).as_text()
  found = jax.grad(loss)(PARAMS)
  monkeypatch.setattr(jax.lax, 'platform_dependent', lambda *args, default, cpu: default(*args))
  jax.tree.map(functools.partial(np.testing.assert_allclose, atol=1e-5), jax.grad(loss)(PARAMS), found)
