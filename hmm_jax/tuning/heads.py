"""Classification heads on a model's output: linear at the [MASK], or attention over all positions (section 4.1).

A `Head` initialises parameters and computes scores. The parameters are trees of arrays, `LinearHead` and
`AttentionHead`, the same as those that a theorem constructs.
"""

import dataclasses
import functools
import math
from typing import Any, NamedTuple, Protocol

import jax
from jax import Array, lax
import jax.numpy as jnp
import numpy as np

from hmm_jax._support import arguments

_matmul = functools.partial(jnp.matmul, precision=lax.Precision.HIGHEST)


class Head(Protocol):
  """A map from model output to class scores. Leading axes `...` are batches; P prompt rows come first, L = P + T.

  >>> head: Head = Linear(num_classes=2)
  >>> head.positions(prompt_length=3).tolist()
  [3]
  """

  def init(self, key: Array, num_features: int, prompt_length: int, length: int) -> Any:
    """Parameters for outputs of F = `num_features`, P = `prompt_length` and T = `length`."""

  def positions(self, prompt_length: int) -> np.ndarray | None:
    """The positions [Q], of L, that the head reads, negative ones from the end; None for all."""
    return None

  def read(self, outputs: Array, tokens: Array) -> Any:
    """The input of `scores`, from the model's outputs [..., Q, F] at `positions` and the tokens [..., T]."""
    return outputs

  def scores(self, params: Any, features: Any) -> Array:
    """Class scores [..., C] from what `read` returned."""

  def attend(self, params: Any, features: Any) -> Array:
    """Attention weights [..., L], which sum to 1. Raises ValueError for a head without attention."""
    raise ValueError('this head has no attention; valid are Attention and OfficialAttention')


def positions_read(head: Head, prompt_length: int, length: int) -> np.ndarray | None:
  """The positions [Q] that a head reads behind P = `prompt_length` rows of texts of T = `length`, from 0 on.

  >>> positions_read(Linear(num_classes=2, position=-1), prompt_length=3, length=5).tolist()
  [7]
  """
  positions = head.positions(prompt_length)
  if positions is None:
    return None
  positions = np.asarray(positions)
  return np.where(positions < 0, positions + prompt_length + length, positions)


def check_head(head: Head, num_classes: int, num_features: int, length: int) -> None:
  """Raise an error unless a head can be tuned on outputs [..., F] for texts of T = `length` tokens.

  Nothing is computed: scores and their slopes by the parameters are traced, for two texts. ValueError names what is no
  head, positions that do not exist and scores of another shape than [2, C]; JAX raises TypeError if there is no slope.
  """
  arguments.require(hasattr(head, 'scores'), 'head', head, f'a Head, such as hj.Linear({num_classes})')
  positions = positions_read(head, 0, length)
  positions = np.arange(length) if positions is None else positions
  arguments.check_ids('positions', positions, length)

  def total(params: Any) -> tuple[Array, Array]:
    scores = head.scores(
      params, head.read(jnp.ones((2, len(positions), num_features)), jnp.zeros((2, length), jnp.int32))
    )
    return scores.sum(), scores

  params = jax.eval_shape(lambda: head.init(jax.random.key(0), num_features, 0, length))
  _, scores = jax.eval_shape(jax.grad(total, has_aux=True), params)
  arguments.check_shape('head scores of two texts', scores, 2, num_classes)


class LinearHead(NamedTuple):
  """A linear head, features @ weights + bias; on G_1 it is the paper's b^T G_1(x) (Theorem 3.3), one row per class.

  Attributes:
    weights: [F, C].
    bias: [C].

  >>> head = LinearHead(weights=np.eye(2), bias=np.array([0.0, 1.0]))
  >>> print(linear_scores(head, jnp.array([0.25, 0.75])))
  [0.25 1.75]
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


@arguments.converted
def linear_scores(head: LinearHead, features: Array) -> Array:
  """Scores [..., C] of features [..., F].

  >>> linear_scores(LinearHead(np.ones((4, 2)), np.zeros(2)), jnp.ones((7, 4))).shape
  (7, 2)
  """
  return _matmul(features, head.weights) + head.bias


class AttentionHead(NamedTuple):
  """One query over the positions of a sequence, equations (4.1) and (4.2), with a column of `output` for each class.

  Positions of a prompt come first, L = P + T. The paper has Q = |H| + 1 and F = |M||H|.

  Attributes:
    query: [Q], the paper's q.
    key_weights: [Q, V], Theta^(K).
    positions: [L, Q], beta.
    value_weights: [F, V], Theta^(V).
    token_embeddings: [V + 1, F], e, with a row for [MASK].
    prompt_embeddings: [P, F], in place of e at the prompt's positions.
    output: [F, C], b.

  >>> head = Attention(num_classes=2, key_size=3, value_size=6)
  >>> params = head.init(jax.random.key(0), num_features=4, prompt_length=1, length=5)
  >>> params.key_weights.shape, params.positions.shape, params.token_embeddings.shape
  ((3, 4), (6, 3), (5, 6))
  """

  query: Array | np.ndarray
  key_weights: Array | np.ndarray
  positions: Array | np.ndarray
  value_weights: Array | np.ndarray
  token_embeddings: Array | np.ndarray
  prompt_embeddings: Array | np.ndarray
  output: Array | np.ndarray


class OfficialAttentionHead(NamedTuple):
  """The released code's head: one attention for each token of the vocabulary, then a linear head.

  Attributes:
    query: [V].
    linear: on the V averages.
  """

  query: Array
  linear: LinearHead


def argmax_weights(logits: Array) -> Array:
  """Equal weights on the largest logits [..., L], 0 on others: the limit of softmax(logits / temperature) at 0.

  Logits within rounding of the largest are ties: within eps^(2/3), 4e-11 in float64 and 2e-5 in float32, times its size
  if that is above 1.

  >>> print(argmax_weights(jnp.array([1.0, 2.0, 2.0])))
  [0.  0.5 0.5]
  """
  largest = logits.max(-1, keepdims=True)
  size = jnp.where(jnp.isfinite(largest), jnp.abs(largest), 1)
  rounding = jnp.finfo(logits.dtype).eps ** (2 / 3) * jnp.maximum(size, 1)
  is_largest = (logits >= largest - rounding).astype(logits.dtype)
  return is_largest / is_largest.sum(-1, keepdims=True)


@arguments.converted
def attention_weights(head: AttentionHead, token_probs: Array, argmax: bool = False) -> Array:
  """Weights [..., L] of the positions from q^T (Theta^(K) G_i + beta_i), equation (4.1).

  Args:
    head: the parameters.
    token_probs: [..., L, V], the model's G.
    argmax: True for the paper's argmax, which averages over ties, in place of a softmax.

  >>> head = Attention(num_classes=2, key_size=3, value_size=6)
  >>> params = head.init(jax.random.key(0), num_features=4, prompt_length=0, length=5)
  >>> print(attention_weights(params, jnp.ones((5, 4))))
  [0.2 0.2 0.2 0.2 0.2]
  """
  arguments.check_shape('token_probs', token_probs, ..., len(head.positions), head.key_weights.shape[-1])
  keys = _matmul(token_probs, head.key_weights.T) + head.positions
  logits = _matmul(keys, head.query)
  return argmax_weights(logits) if argmax else jax.nn.softmax(logits)


@arguments.converted
def attention_scores(head: AttentionHead, token_probs: Array, tokens: Array, argmax: bool = False) -> Array:
  """Class scores [..., C]: the weighted mean over positions of b^T ((Theta^(V) G_i) * e(x_i)), equation (4.2).

  >>> head = Attention(num_classes=2, key_size=3, value_size=6)
  >>> params = head.init(jax.random.key(0), num_features=4, prompt_length=0, length=5)
  >>> attention_scores(params, jnp.ones((7, 5, 4)), jnp.zeros((7, 5), int)).shape
  (7, 2)
  """
  weights = attention_weights(head, token_probs, argmax)
  embeddings = head.token_embeddings[tokens]
  prompt = jnp.broadcast_to(head.prompt_embeddings, embeddings.shape[:-2] + head.prompt_embeddings.shape)
  values = _matmul(token_probs, head.value_weights.T) * jnp.concatenate([prompt, embeddings], axis=-2)
  mean = jnp.einsum('...l,...lf->...f', weights, values, precision=lax.Precision.HIGHEST)
  return _matmul(mean, head.output)


@dataclasses.dataclass(frozen=True)
class AtMask(Head):
  """A head on the output at the [MASK].

  Attributes:
    num_classes: C.
    position: of the [MASK] in the text, 0 the first and -1 the last.
  """

  num_classes: int
  position: int = 0

  def positions(self, prompt_length: int) -> np.ndarray:
    return np.array([self.position if self.position < 0 else prompt_length + self.position])

  def read(self, outputs: Array, tokens: Array) -> Array:
    return outputs[..., 0, :]


@dataclasses.dataclass(frozen=True)
class Linear(AtMask):
  """`LinearHead` on the output at the [MASK].

  >>> head = Linear(num_classes=2)
  >>> params = head.init(jax.random.key(0), num_features=4, prompt_length=0, length=5)
  >>> head.scores(params, jnp.ones((7, 4))).shape
  (7, 2)
  """

  def init(self, key: Array, num_features: int, prompt_length: int, length: int) -> LinearHead:
    return init_linear_head(key, num_features, self.num_classes)

  def scores(self, params: LinearHead, features: Array) -> Array:
    return linear_scores(params, features)


@dataclasses.dataclass(frozen=True)
class Attention(Head):
  """`AttentionHead` with a softmax.

  The head of (4.2) reads the text twice, as predictions G_i and as tokens x_i. A control reads it once.

  Attributes:
    num_classes: C.
    key_size: Q.
    value_size: F.
    argmax: True for the paper's argmax in place of the softmax, whose gradient in the keys is 0.
    reads_probs: False makes every G_i uniform: scores are sum_i a_i w_{x_i}, a_i by position alone, a position-weighted
      bag of words.
    reads_tokens: False makes every x_i token 0, so that e(0) is a factor of Theta^(V).

  >>> head = Attention(num_classes=2, key_size=3, value_size=6)
  >>> params = head.init(jax.random.key(0), num_features=4, prompt_length=0, length=5)
  >>> head.attend(params, head.read(jnp.ones((7, 5, 4)), jnp.zeros((7, 5), int))).shape
  (7, 5)
  """

  num_classes: int
  key_size: int
  value_size: int
  argmax: bool = False
  reads_probs: bool = True
  reads_tokens: bool = True

  def init(self, key: Array, num_features: int, prompt_length: int, length: int) -> AttentionHead:
    """Matrices as PyTorch's `nn.Linear`, embeddings standard normal as its `nn.Embedding`, positions 0."""
    keys = jax.random.split(key, 6)
    uniform = lambda key, shape, fan_in: jax.random.uniform(key, shape, minval=-1, maxval=1) / math.sqrt(fan_in)
    return AttentionHead(
      query=uniform(keys[0], (self.key_size,), self.key_size),
      key_weights=uniform(keys[1], (self.key_size, num_features), num_features),
      positions=jnp.zeros((prompt_length + length, self.key_size)),
      value_weights=uniform(keys[2], (self.value_size, num_features), num_features),
      token_embeddings=jax.random.normal(keys[3], (num_features + 1, self.value_size)),
      prompt_embeddings=jax.random.normal(keys[4], (prompt_length, self.value_size)),
      output=uniform(keys[5], (self.value_size, self.num_classes), self.value_size),
    )

  def read(self, outputs: Array, tokens: Array) -> tuple[Array, Array]:
    probs = outputs if self.reads_probs else jnp.full_like(outputs, 1 / outputs.shape[-1])
    return probs, tokens if self.reads_tokens else jnp.zeros_like(tokens)

  def scores(self, params: AttentionHead, features: tuple[Array, Array]) -> Array:
    return attention_scores(params, *features, self.argmax)

  def attend(self, params: AttentionHead, features: tuple[Array, Array]) -> Array:
    return attention_weights(params, features[0], self.argmax)


@dataclasses.dataclass(frozen=True)
class OfficialAttention(Head):
  """`OfficialAttentionHead`, whose query starts at 0: the mean over positions. It reads no tokens or positions."""

  num_classes: int

  def init(self, key: Array, num_features: int, prompt_length: int, length: int) -> OfficialAttentionHead:
    return OfficialAttentionHead(jnp.zeros(num_features), init_linear_head(key, num_features, self.num_classes))

  def scores(self, params: OfficialAttentionHead, features: Array) -> Array:
    return linear_scores(params.linear, (self._weights(params, features) * features).sum(-2))

  def attend(self, params: OfficialAttentionHead, features: Array) -> Array:
    return self._weights(params, features).mean(-1)

  def _weights(self, params: OfficialAttentionHead, token_probs: Array) -> Array:
    return jax.nn.softmax(token_probs * params.query, axis=-2)
