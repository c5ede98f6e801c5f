"""BERT (Devlin et al. 2019) in two halves, `embed` and `encode`, so that a prompt can stand between them.

The encoder equals Hugging Face's `BertForMaskedLM` with the same weights, without token types and padding; a causal one
equals its `BertLMHeadModel` as a decoder. `tests/library/bert_parity_test.py` compares logits and gradients.
"""

from collections.abc import Callable, Sequence
import dataclasses
import functools
import math
from typing import Any

from flax import linen as nn
import jax
from jax import Array, lax
import jax.numpy as jnp
import numpy as np

from hmm_jax._support.arguments import check_shape, tree
from hmm_jax._support.display import helped
from hmm_jax._support.float64 import with_promotion
from hmm_jax.models import sharding
from hmm_jax.models.model import at_positions, joined, MaskedLM, parts_with, Positions, Visit

# BERT's epsilon; the fast variance, a difference of two means, would lose digits.
_LayerNorm = functools.partial(nn.LayerNorm, epsilon=1e-12, use_fast_variance=False)


def gelu(x: Array) -> Array:
  """x Phi(x), Phi the standard normal CDF, by one erf; `nn.gelu` evaluates both branches of erfc."""
  return x * (lax.erf(x * math.sqrt(0.5)) + 1) / 2


def _product(x: Array, kernel: Array, bias: Array) -> Array:
  """x kernel + bias.

  Flattening x makes the kernel's gradient one matrix product; on a CPU, XLA copies transposes of higher rank.
  """
  # Of no rows the axis -1 would have no size.
  flat = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
  return (flat @ kernel + bias).reshape(*x.shape[:-1], kernel.shape[-1])


def _rows(table: Array, tokens: Array) -> Array:
  """table[tokens], on accelerators by a product.

  The gradient of an index adds all positions of a token to one row by atomic operations, which wait for each other. On
  an H100 they took up to three quarters of a step of the paper's pretraining.
  """
  return lax.platform_dependent(table, tokens, cpu=lambda table, tokens: table[tokens], default=_rows_by_product)


def _rows_by_product(table: Array, tokens: Array) -> Array:
  one_hot = jax.nn.one_hot(tokens, len(table), dtype=table.dtype)
  return jnp.matmul(one_hot, table, precision='highest')


class Projection(nn.Module):
  """`nn.Dense`, but multiplied as a matrix by `_product`."""

  features: int
  kernel_init: nn.initializers.Initializer
  dtype: jnp.dtype

  @nn.compact
  def __call__(self, x: Array) -> Array:
    kernel = self.param('kernel', self.kernel_init, (x.shape[-1], self.features))
    bias = self.param('bias', nn.initializers.zeros, (self.features,))
    return _product(*nn.dtypes.promote_dtype(x, kernel, bias, dtype=self.dtype))


class Projections(nn.Module):
  """K projections of width D in one kernel [D, K D]; a call computes a range of them."""

  count: int
  kernel_init: nn.initializers.Initializer
  dtype: jnp.dtype

  @nn.compact
  def __call__(self, x: Array, first: int, last: int) -> list[Array]:
    """Projections `first` to `last` - 1 of x [..., D], each of its shape."""
    width, count = x.shape[-1], last - first
    kernel = self.param('kernel', self.kernel_init, (width, self.count * width))
    bias = self.param('bias', nn.initializers.zeros, (self.count * width,))
    columns = slice(first * width, last * width)
    if not sharding.splits_heads():
      x, kernel, bias = nn.dtypes.promote_dtype(x, kernel[:, columns], bias[columns], dtype=self.dtype)
      return jnp.split(_product(x, kernel, bias), count, axis=-1)
    kernel = sharding.by_heads(kernel.reshape(width, self.count, width)[:, first:last])
    x, kernel, bias = nn.dtypes.promote_dtype(x, kernel, bias[columns].reshape(count, width), dtype=self.dtype)
    return [y.reshape(x.shape) for y in jnp.unstack(jnp.tensordot(x.reshape(-1, width), kernel, 1) + bias, axis=1)]


class AttentionWeights(nn.Module):
  """Softmax of scores [..., T, T] in float32: a module without parameters, so that `predict_visiting` sees it."""

  def __call__(self, scores: Array) -> Array:
    return jax.nn.softmax(scores.astype(jnp.float32)).astype(scores.dtype)


def _attended(
  query: Array, key: Array, value: Array, weigh: Callable[[Array], Array], causal: bool, positions: Positions
) -> Array:
  """Values [..., T, N, d] weighed by `weigh` of the scores; a causal query sees the keys up to its position."""
  scores = jnp.einsum('...qnd,...knd->...nqk', query, key) / jnp.sqrt(query.shape[-1]).astype(query.dtype)
  if causal:
    own = jnp.arange(scores.shape[-2]) if positions is None else jnp.asarray(positions)
    is_seen = jnp.arange(scores.shape[-1]) <= own[..., None, :, None]
    # Its weight is 0 as that of -inf, at which jax_debug_infs would stop.
    scores = jnp.where(is_seen, scores, jnp.finfo(scores.dtype).min)
  return jnp.einsum('...nqk,...knd->...qnd', weigh(scores), value)


class Layer(nn.Module):
  """One post-LN transformer layer: attention, then feed-forward, each added to its input and normalised."""

  num_heads: int
  ffn_width: int
  dropout_rate: float
  init_stddev: float
  dtype: jnp.dtype
  causal: bool = False

  @nn.compact
  def __call__(self, parts: Sequence[Array], positions: Positions = None) -> Array:
    """The layer's output [B, Q, D] at `positions`; only keys and values are computed at all positions.

    The input [B, T, D] comes in parts along time whose batch axes broadcast: a part shared by the batch is projected
    once. A causal layer attends from each position to it and to those before.
    """
    init = nn.initializers.truncated_normal(self.init_stddev)
    dense = functools.partial(Projection, dtype=self.dtype, kernel_init=init)
    norm = functools.partial(_LayerNorm, dtype=self.dtype)
    dropout = nn.Dropout(self.dropout_rate, deterministic=not self.has_rng('dropout'))
    x_BxTxD = joined(parts)
    width = x_BxTxD.shape[-1]
    x_BxQxD, project = at_positions(x_BxTxD, positions), Projections(3, init, self.dtype, name='qkv')
    projected_parts = lambda first: [joined(ys) for ys in zip(*(project(part, first, 3) for part in parts))]
    projected = projected_parts(0) if positions is None else [*project(x_BxQxD, 0, 1), *projected_parts(1)]
    query, key, value = (y.reshape(*y.shape[:-1], self.num_heads, width // self.num_heads) for y in projected)
    weigh = lambda scores: dropout(AttentionWeights(name='attention_weights')(scores))
    attended = _attended(query, key, value, weigh, self.causal, positions)
    attended = attended.reshape(x_BxQxD.shape)
    x_BxQxD = norm(name='attention_norm')(x_BxQxD + dropout(dense(width, name='attention_out')(attended)))

    ffn = gelu(dense(self.ffn_width, name='ffn_in')(x_BxQxD))
    return norm(name='ffn_norm')(x_BxQxD + dropout(dense(width, name='ffn_out')(ffn)))


class Bert(nn.Module):
  """The language model, masked or causal. Axes before time are batches.

  A causal one predicts the next token: row i of its output is the law of token i given those before it, so that rows
  stand where those of a masked one do. It reads [MASK] as the beginning of a text.

  Attributes:
    num_tokens: V; token V is [MASK].
    num_layers: transformer layers.
    width: D.
    num_heads: attention heads.
    ffn_width: width of the feed-forward layer.
    max_positions: longest sequence, prompt included.
    dropout_rate: of embeddings, attention weights and both residual branches, if there is an rng 'dropout'.
    init_stddev: of the truncated normal that weights start from (0.02 in BERT, whose width is 768).
    dtype: of the computation; parameters, softmax and normalisation statistics are float32.
    causal: whether row i sees only the tokens before i.

  >>> bert = Bert(num_tokens=4, num_layers=1, width=8, num_heads=2, ffn_width=16, max_positions=5, dropout_rate=0.0)
  >>> bert.width
  8
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
  causal: bool = False

  def setup(self) -> None:
    if self.width % self.num_heads:
      raise ValueError(f'width is {self.width}; valid are multiples of num_heads, {self.num_heads}')
    init = nn.initializers.truncated_normal(self.init_stddev)
    self.word_embedding = nn.Embed(self.num_tokens + 1, self.width, embedding_init=init, dtype=self.dtype)
    self.position_embedding = self.param('position_embedding', init, (self.max_positions, self.width))
    self.embedding_norm = _LayerNorm(dtype=self.dtype)
    self.embedding_dropout = nn.Dropout(self.dropout_rate, deterministic=not self.has_rng('dropout'))
    of_layer = self.num_heads, self.ffn_width, self.dropout_rate, self.init_stddev, self.dtype, self.causal
    self.layers = [Layer(*of_layer) for _ in range(self.num_layers)]
    self.transform = Projection(self.width, kernel_init=init, dtype=self.dtype)
    self.transform_norm = _LayerNorm(dtype=self.dtype)
    self.output_bias = self.param('output_bias', nn.initializers.zeros, (self.num_tokens + 1,))

  def embed(self, tokens: Array) -> Array:
    """Word embeddings [..., T, D]; positions are added by `encode`, so that a prompt shifts them."""
    return _rows(self.word_embedding.embedding, tokens).astype(self.dtype)

  def encode(self, *parts: Array, positions: Positions = None) -> Array:
    """The last layer's hidden states at `positions`, [..., Q, D], of embeddings [..., T, D].

    Embeddings may come in parts along time, such as a prompt and a text, whose leading axes broadcast. Raises
    ValueError past `max_positions`.
    """
    length = sum(part.shape[-2] for part in parts)
    for part in parts:
      check_shape('embeddings or a prompt', part, ..., self.width)
    if length > self.max_positions:
      raise ValueError(f'prompt and text have {length} positions; valid is at most max_positions, {self.max_positions}')
    if self.causal:
      parts = self._shifted(parts)
    places = jnp.split(self.position_embedding[:length], np.cumsum([part.shape[-2] for part in parts])[:-1])
    parts = tuple(part.astype(self.dtype) + place.astype(self.dtype) for part, place in zip(parts, places))
    parts = tuple(self.embedding_dropout(self.embedding_norm(x)) for x in parts)
    for layer in self.layers[:-1]:
      parts = (layer(parts),)
    return self.layers[-1](parts, positions)

  def _shifted(self, parts: Sequence[Array]) -> tuple[Array, ...]:
    """The embeddings of the beginning and of all tokens but the last: row i has the token before i."""
    beginning = self.embed(jnp.array([self.num_tokens]))
    *parts, last = joined([beginning, parts[0].astype(self.dtype)]), *parts[1:]
    # The hidden token may be a part of its own.
    return tuple(part for part in (*parts, last[..., :-1, :]) if part.shape[-2])

  def decode(self, hidden: Array) -> Array:
    """Logits [..., T, V + 1] in float32, with the word embedding as the output matrix."""
    x = self.transform_norm(gelu(self.transform(hidden)))
    return self.word_embedding.attend(x).astype(jnp.float32) + self.output_bias

  def __call__(self, tokens: Array, positions: Positions = None) -> Array:
    """Logits at `positions`, [..., Q, V]: [MASK] is never a target, so its logit is left out."""
    return self.decode(self.encode(self.embed(tokens), positions=positions))[..., : self.num_tokens]


@helped
@dataclasses.dataclass(frozen=True)
class BertModel(MaskedLM):
  """`bert` as a `MaskedLM`; its parameters are the linen variables' 'params' tree.

  >>> bert = Bert(num_tokens=4, num_layers=1, width=8, num_heads=2, ffn_width=16, max_positions=5, dropout_rate=0.0)
  >>> params = bert.init(jax.random.key(0), jnp.zeros((1, 5), jnp.int32))['params']
  >>> model = BertModel(bert)
  >>> model.embed(params, jnp.array([[4, 1, 2, 3, 0]])).shape
  (1, 5, 8)
  """

  bert: Bert

  name = 'bert'

  @property
  def num_tokens(self) -> int:
    return self.bert.num_tokens

  @property
  def causal(self) -> bool:
    return self.bert.causal

  @property
  def max_positions(self) -> int:
    return self.bert.max_positions

  def embed(self, params: Any, tokens: Array) -> Array:
    return self._apply(Bert.embed, params, tokens)

  def predict(self, params: Any, embeddings: Array, positions: Positions = None) -> Array:
    return self.decode(params, self.represent(params, embeddings, positions))

  def predict_prompted(
    self, params: Any, prompts: Array, tokens: Array, positions: Positions = None, place: int = 0
  ) -> Array:
    # Prompts and texts stay apart up to the first layer's projections, so that a text is projected only once.
    parts = parts_with(prompts, self.embed(params, tokens), place)
    return self.decode(params, self._apply(Bert.encode, params, *parts, positions=positions))

  def represent(self, params: Any, embeddings: Array, positions: Positions = None) -> Array:
    return self._apply(Bert.encode, params, embeddings, positions=positions)

  def predict_visiting(self, params: Any, embeddings: Array, visit: Visit, positions: Positions = None) -> Array:
    """Override: visits 'embeddings', with positions and normalised, and for each layer 'attention_1' and 'layer_1'."""
    names = {'embedding_dropout': 'embeddings'}
    for number in range(self.bert.num_layers):
      layer = f'layers_{number}'
      names |= {f'{layer}/attention_weights': f'attention_{number + 1}', layer: f'layer_{number + 1}'}

    def visiting(call: Any, args: Any, kwargs: Any, context: nn.module.InterceptorContext) -> Any:
      output, path = call(*args, **kwargs), '/'.join(context.module.path)
      return visit(names[path], output) if path in names else output

    with nn.intercept_methods(visiting):
      hidden = self.represent(params, embeddings)
    return self.decode(params, at_positions(hidden, positions))

  def decode(self, params: Any, hidden: Array) -> Array:
    return jax.nn.softmax(self._apply(Bert.decode, params, hidden)[..., : self.num_tokens])

  @with_promotion
  def _apply(self, method: Callable[..., Any], params: Any, *args: Array, **kwargs: Any) -> Any:
    return self.bert.apply({'params': tree('params', params)}, *args, method=method, **kwargs)
