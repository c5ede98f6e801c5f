"""BERT (Devlin et al. 2019) in two halves, `embed` and `encode`, so that a prompt can stand between them.

The encoder equals Hugging Face's `BertForMaskedLM` with the same weights (token types and padding, which the
text here has none of, left out); `tests/bert_parity_test.py` compares logits and gradients.
"""

import functools

from flax import linen as nn
import jax
import jax.numpy as jnp

from hmm_jax.model import MaskedLM

Array = jax.Array


class Layer(nn.Module):
  """One post-LN transformer layer: attention, then feed-forward, each added to its input and normalised."""

  num_heads: int
  ffn_width: int
  dropout_rate: float
  init_stddev: float
  dtype: jnp.dtype

  @nn.compact
  def __call__(self, x_BxTxD: Array, deterministic: bool) -> Array:
    init = nn.initializers.truncated_normal(self.init_stddev)
    dense = functools.partial(nn.Dense, dtype=self.dtype, kernel_init=init)
    norm = functools.partial(nn.LayerNorm, epsilon=1e-12, use_fast_variance=False, dtype=self.dtype)
    dropout = nn.Dropout(self.dropout_rate, deterministic=deterministic)
    width = x_BxTxD.shape[-1]

    qkv = dense(3 * width, name='qkv')(x_BxTxD)
    qkv = qkv.reshape(qkv.shape[:-1] + (3, self.num_heads, width // self.num_heads))
    query, key, value = jnp.moveaxis(qkv, -3, 0)
    scores = jnp.einsum('...qnd,...knd->...nqk', query, key) / jnp.sqrt(query.shape[-1]).astype(self.dtype)
    weights = dropout(jax.nn.softmax(scores.astype(jnp.float32)).astype(self.dtype))
    attended = jnp.einsum('...nqk,...knd->...qnd', weights, value).reshape(x_BxTxD.shape)
    x_BxTxD = norm(name='attention_norm')(x_BxTxD + dropout(dense(width, name='attention_out')(attended)))

    ffn = nn.gelu(dense(self.ffn_width, name='ffn_in')(x_BxTxD), approximate=False)
    return norm(name='ffn_norm')(x_BxTxD + dropout(dense(width, name='ffn_out')(ffn)))


class Bert(nn.Module):
  """The masked language model. Axes before time are batches.

  Attributes:
    num_tokens: V; token V is [MASK].
    num_layers: transformer layers.
    width: D.
    num_heads: attention heads.
    ffn_width: width of the feed-forward layer.
    max_positions: longest sequence, prompt included.
    dropout_rate: of embeddings, attention weights and both residual branches.
    init_stddev: of the truncated normal that weights start from (0.02 in BERT, whose width is 768).
    dtype: of the computation; parameters, softmax and normalisation statistics are float32.
  """

  num_tokens: int
  num_layers: int
  width: int
  num_heads: int
  ffn_width: int
  max_positions: int
  dropout_rate: float
  init_stddev: float = 0.02
  dtype: jnp.dtype = jnp.float32

  def setup(self):
    init = nn.initializers.truncated_normal(self.init_stddev)
    norm = functools.partial(nn.LayerNorm, epsilon=1e-12, use_fast_variance=False, dtype=self.dtype)
    self.word_embedding = nn.Embed(self.num_tokens + 1, self.width, embedding_init=init, dtype=self.dtype)
    self.position_embedding = self.param('position_embedding', init, (self.max_positions, self.width))
    self.embedding_norm = norm()
    self.embedding_dropout = nn.Dropout(self.dropout_rate)
    self.layers = [
      Layer(self.num_heads, self.ffn_width, self.dropout_rate, self.init_stddev, self.dtype)
      for _ in range(self.num_layers)
    ]
    self.transform = nn.Dense(self.width, kernel_init=init, dtype=self.dtype)
    self.transform_norm = norm()
    self.output_bias = self.param('output_bias', nn.initializers.zeros, (self.num_tokens + 1,))

  def embed(self, tokens: Array) -> Array:
    """Word embeddings [..., T, D]; positions are added by `encode`, so that a prompt shifts them."""
    return self.word_embedding(tokens)

  def encode(self, embeddings: Array, deterministic: bool = True) -> Array:
    """The last layer's hidden states [..., T, D]. Raises ValueError past `max_positions`."""
    length = embeddings.shape[-2]
    if length > self.max_positions:
      raise ValueError(f'sequence length {length} exceeds max_positions {self.max_positions}')
    x = embeddings.astype(self.dtype) + self.position_embedding[:length].astype(self.dtype)
    x = self.embedding_dropout(self.embedding_norm(x), deterministic=deterministic)
    for layer in self.layers:
      x = layer(x, deterministic)
    return x

  def decode(self, hidden: Array) -> Array:
    """Logits [..., T, V + 1] in float32, with the word embedding as the output matrix."""
    x = self.transform_norm(nn.gelu(self.transform(hidden), approximate=False))
    return self.word_embedding.attend(x).astype(jnp.float32) + self.output_bias

  def __call__(self, tokens: Array, deterministic: bool = True) -> Array:
    """Logits over the vocabulary, [..., T, V]: [MASK] is never a target, so its logit is left out."""
    return self.decode(self.encode(self.embed(tokens), deterministic))[..., : self.num_tokens]


@functools.cache
def masked_lm(bert: Bert) -> MaskedLM:
  """`bert` through the interface of models; its parameters are the linen variables' 'params' tree."""

  def embed(params, tokens):
    return bert.apply({'params': params}, tokens, method=Bert.embed)

  def encode(params, embeddings):
    return bert.apply({'params': params}, embeddings, method=Bert.encode)

  def predict(params, embeddings):
    logits = bert.apply({'params': params}, encode(params, embeddings), method=Bert.decode)
    return jax.nn.softmax(logits[..., : bert.num_tokens])

  return MaskedLM(
    name='bert',
    num_tokens=bert.num_tokens,
    embed=embed,
    predict=predict,
    represent=encode,
    embedding_size=lambda params: bert.width,
    prompt_center=0.0,
    prompt_unit=1.0,
    project_prompt=lambda prompt: prompt,
  )
