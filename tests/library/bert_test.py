"""Facts about the encoder that need no reference implementation."""

import functools

from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from hmm_jax.bert import Bert, BertModel

pytestmark = pytest.mark.usefixtures('without_optimisation')

TINY = Bert(num_tokens=5, num_layers=1, width=8, num_heads=2, ffn_width=16, max_positions=7, dropout_rate=0.0)
TOKENS = np.int32([[0, 5, 3, 3, 1], [4, 1, 2, 5, 0]])


@pytest.fixture(scope='module')
def params():
  """Weights large enough for the model to be far from constant."""
  tree = jax.eval_shape(TINY.init, jax.random.key(0), TOKENS)['params']
  draws = np.random.default_rng(0)
  return jax.tree.map(lambda leaf: draws.normal(leaf.ndim == 1, 0.5, leaf.shape).astype(np.float32), tree)


@functools.partial(jax.jit, static_argnames='bert')
def decoded(bert, params, tokens):
  """What `encode` and `decode` give: hidden states and all V + 1 logits."""
  bound = bert.bind({'params': params})
  hidden = bound.encode(bound.embed(tokens))
  return hidden, bound.decode(hidden)


@functools.partial(jax.jit, static_argnames='bert')
def logits(bert, params, tokens, dropout_key=None):
  rngs = None if dropout_key is None else {'dropout': dropout_key}
  return bert.apply({'params': params}, tokens, dropout_key is None, rngs=rngs)


def test_weights_start_from_a_truncated_normal():
  """Every matrix is `init_stddev` times a standard normal cut at 2; biases are 0, scales 1."""
  bert = TINY.clone(width=32, ffn_width=64, max_positions=64, init_stddev=0.05)
  tree = jax.jit(bert.init)(jax.random.key(1), TOKENS)['params']
  flat = {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}
  matrices = {name: leaf / 0.05 for name, leaf in flat.items() if leaf.ndim == 2}
  assert len(matrices) == 2 + 4 + 1
  for name, leaf in matrices.items():
    assert np.abs(leaf).max() <= 2, name
    assert scipy.stats.kstest(leaf.ravel(), scipy.stats.truncnorm(-2, 2).cdf).pvalue > 1e-4, name
  for name, leaf in flat.items():
    if leaf.ndim == 1:
      np.testing.assert_array_equal(leaf, 1.0 if 'scale' in name else 0.0, name)


def test_scanned_layers_compute_what_unrolled_ones_do():
  """With the numbers of three layers stacked, logits and gradients are those of the layers one after another."""
  unrolled = TINY.clone(num_layers=4)
  scanned = unrolled.clone(scan_layers=True)
  tree = jax.eval_shape(unrolled.init, jax.random.key(0), TOKENS)['params']
  draws = np.random.default_rng(0)
  tree = jax.tree.map(lambda leaf: draws.normal(leaf.ndim == 1, 0.5, leaf.shape).astype(np.float32), tree)

  def stacked(tree):
    layers = [tree[f'layers_{number}'] for number in range(4)]
    rest = {name: leaves for name, leaves in tree.items() if not name.startswith('layers_')}
    return {**rest, 'scanned': jax.tree.map(lambda *leaves: np.stack(leaves), *layers[:3]), 'last': layers[3]}

  shapes = jax.tree.map(np.shape, jax.eval_shape(scanned.init, jax.random.key(0), TOKENS)['params'])
  assert shapes == jax.tree.map(np.shape, stacked(tree))
  loss = lambda bert: jax.jit(jax.value_and_grad(lambda params: (logits(bert, params, TOKENS) ** 2).mean()))
  (value, grads), (expected, expected_grads) = loss(scanned)(stacked(tree)), loss(unrolled)(tree)
  np.testing.assert_allclose(value, expected, rtol=1e-5)
  expected_grads = stacked(jax.tree.map(np.asarray, expected_grads))
  largest = max(np.abs(leaf).max() for leaf in jax.tree.leaves(expected_grads))
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5 * largest), grads, expected_grads)


def test_dropout_acts_only_where_asked_and_by_its_key(params):
  """Evaluation ignores the dropout rate; training is a function of the dropout key and of nothing else."""
  dropping = TINY.clone(dropout_rate=0.3)
  exact = logits(TINY, params, TOKENS)
  np.testing.assert_array_equal(logits(dropping, params, TOKENS), exact)
  first, again, second = (logits(dropping, params, TOKENS, jax.random.key(seed)) for seed in (1, 1, 2))
  np.testing.assert_array_equal(first, again)
  assert np.abs(first - second).max() > 1e-2
  assert np.abs(first - exact).max() > 1e-2


def test_dropout_falls_on_embeddings_attention_weights_and_both_branches(params):
  """One dropout acts on the embeddings, and in each layer one on [heads, T, T] weights and two on [T, D] branches."""
  shapes = []

  def record(next_fun, args, kwargs, context):
    if isinstance(context.module, nn.Dropout):
      shapes.append(args[0].shape)
      assert context.module.rate == 0.3
    return next_fun(*args, **kwargs)

  dropping = TINY.clone(dropout_rate=0.3)
  with nn.intercept_methods(record):
    jax.eval_shape(
      lambda: dropping.apply({'params': params}, TOKENS, False, rngs={'dropout': jax.random.key(0)}),
    )
  assert sorted(shapes) == sorted([(2, 5, 8), (2, 2, 5, 5), (2, 5, 8), (2, 5, 8)])


def test_order_of_tokens_matters_through_position_embeddings_alone(params):
  """Reordering the input reorders the logits if position embeddings are zero, and changes them otherwise."""
  order = np.array([3, 0, 4, 1, 2])
  blind = {**params, 'position_embedding': np.zeros_like(params['position_embedding'])}
  of = functools.partial(logits, TINY)
  np.testing.assert_allclose(of(blind, TOKENS[:, order]), of(blind, TOKENS)[:, order], atol=1e-5)
  moved = of(params, TOKENS[:, order]) - of(params, TOKENS)[:, order]
  assert np.abs(moved).max(axis=(0, 2)).min() > 1e-2


def test_every_position_sees_every_other(params):
  """The logits at each position have a gradient in the embedding of each position: attention is not causal."""
  bert = TINY.bind({'params': params})
  embedded = params['word_embedding']['embedding'][TOKENS[0]]
  jacobian = jax.jit(jax.jacobian(lambda x: bert.decode(bert.encode(x))))(embedded)
  assert np.abs(jacobian).max(axis=(1, 3)).min() > 1e-4


def test_a_sequence_past_max_positions_is_refused(params):
  """`encode` takes max_positions rows and raises ValueError naming the limit for one more."""
  encode = functools.partial(TINY.bind({'params': params}).encode)
  shape = lambda length: jax.eval_shape(encode, jax.ShapeDtypeStruct((length, 8), jnp.float32)).shape
  assert shape(7) == (7, 8)
  with pytest.raises(ValueError, match='8 exceeds max_positions 7'):
    shape(8)


def test_leading_axes_are_batches(params):
  """Logits of tokens [K, B, T] are those of each sequence on its own."""
  tokens = np.stack([TOKENS, TOKENS[::-1], (TOKENS + 1) % 6])
  together = logits(TINY, params, tokens)
  assert together.shape == (3, 2, 5, 5)
  alone = np.stack([np.stack([logits(TINY, params, row) for row in rows]) for rows in tokens])
  np.testing.assert_allclose(together, alone, atol=1e-5)


def test_bfloat16_is_for_the_computation_only(params):
  """Under bfloat16 the parameters and logits are float32, hidden states bfloat16, and the logits nearly the same."""
  half = TINY.clone(dtype=jnp.bfloat16)
  fresh = jax.eval_shape(half.init, jax.random.key(0), TOKENS)['params']
  assert {leaf.dtype for leaf in jax.tree.leaves(fresh)} == {jnp.dtype('float32')}
  assert jax.eval_shape(functools.partial(decoded, half), params, TOKENS)[0].dtype == jnp.bfloat16
  half_logits = logits(half, params, TOKENS)
  assert half_logits.dtype == jnp.float32
  difference = np.abs(half_logits - logits(TINY, params, TOKENS)).max()
  assert 0 < difference < 0.2


def test_output_matrix_is_the_word_embedding(params):
  """Doubling a word's embedding doubles its logit beyond the bias and no other, at given hidden states."""
  hidden = np.random.default_rng(3).normal(size=(4, 8)).astype(np.float32)
  params = {**params, 'output_bias': np.arange(6, dtype=np.float32)}
  twice = np.where(np.arange(6) == 2, 2, 1)
  doubled = {**params, 'word_embedding': {'embedding': params['word_embedding']['embedding'] * twice[:, None]}}
  decode = jax.jit(lambda params: TINY.apply({'params': params}, hidden, method=Bert.decode))
  before, after = (np.asarray(decode(tree)) - params['output_bias'] for tree in (params, doubled))
  assert np.abs(before[:, 2]).min() > 1e-3
  np.testing.assert_allclose(after, before * twice, atol=1e-5)


def test_mask_is_never_predicted(params):
  """Calling the module gives the V token logits of `decode`, [MASK] left out; the interface gives their softmax."""
  _, every = decoded(TINY, params, TOKENS)
  assert every.shape == (2, 5, 6)
  np.testing.assert_allclose(logits(TINY, params, TOKENS), every[..., :5], atol=1e-5)
  lm = BertModel(TINY)
  probs = jax.jit(lambda params: lm.predict(params, lm.embed(params, TOKENS)))(params)
  weights = np.exp(np.asarray(every[..., :5], np.float64))
  np.testing.assert_allclose(probs, weights / weights.sum(-1, keepdims=True), atol=1e-6)
