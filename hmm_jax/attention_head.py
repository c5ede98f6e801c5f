"""Attention heads: functions of the token probabilities predicted at every position (section 4.1 of the paper)."""

from collections.abc import Callable
import functools
import math
from typing import Any, NamedTuple

import jax
from jax import lax
import jax.numpy as jnp
import numpy as np

from hmm_jax.heads import init_linear_head
from hmm_jax.heads import linear_scores
from hmm_jax.heads import LinearHead

Array = jax.Array


class AttentionHead(NamedTuple):
  """One query over the positions of a sequence, equations (4.1) and (4.2), with a column of `output` for each class.

  Positions of a prompt come first, L = P + T. The paper has Q = |H| + 1 and F = |M||H|.

  Attributes:
    query: [Q], the paper's q.
    key_weights: [Q, V], Theta^(K).
    positions: [L, Q], beta.
    value_weights: [F, V], Theta^(V).
    token_embeddings: [V + 1, F], e, with a row for [MASK].
    prompt_embeddings: [P, F], what stands for e at the positions of the prompt.
    output: [F, C], b.
  """

  query: Array | np.ndarray
  key_weights: Array | np.ndarray
  positions: Array | np.ndarray
  value_weights: Array | np.ndarray
  token_embeddings: Array | np.ndarray
  prompt_embeddings: Array | np.ndarray
  output: Array | np.ndarray


class OfficialAttentionHead(NamedTuple):
  """The released code's head: an attention of its own for each token of the vocabulary, then a linear head.

  Attributes:
    query: [V].
    linear: on the V averages.
  """

  query: Array
  linear: LinearHead


class SequenceHead(NamedTuple):
  """A head on the predictions at all positions, as the pair of functions that a tuner trains and applies.

  Attributes:
    init: (key, prompt length P, sequence length T) -> head.
    scores: (head, token probabilities [..., P + T, V], tokens [..., T]) -> class scores [..., C].
    attend: (head, token probabilities) -> attention weights [..., P + T], which sum to 1.
  """

  init: Callable[[Array, int, int], Any]
  scores: Callable[[Any, Array, Array], Array]
  attend: Callable[[Any, Array], Array]


_matmul = functools.partial(jnp.matmul, precision=lax.Precision.HIGHEST)


def softmax_or_argmax(logits: Array, temperature: float) -> Array:
  """softmax(logits / temperature) on the last axis; its limit at temperature 0 shares 1 among the largest logits."""
  if temperature > 0:
    return jax.nn.softmax(logits / temperature)
  is_largest = (logits == logits.max(-1, keepdims=True)).astype(logits.dtype)
  return is_largest / is_largest.sum(-1, keepdims=True)


def attention_weights(head: AttentionHead, token_probs: Array, temperature: float) -> Array:
  """Weights [..., L] of the positions from q^T (Theta^(K) G_i + beta_i), equation (4.1).

  Args:
    head: the parameters.
    token_probs: [..., L, V], the model's G.
    temperature: of the softmax; 0 is the paper's argmax, which averages over ties.
  """
  keys = _matmul(token_probs, head.key_weights.T) + head.positions
  return softmax_or_argmax(_matmul(keys, head.query), temperature)


def attention_scores(head: AttentionHead, token_probs: Array, tokens: Array, temperature: float) -> Array:
  """Class scores [..., C]: the weighted mean over positions of b^T ((Theta^(V) G_i) * e(x_i)), equation (4.2)."""
  weights = attention_weights(head, token_probs, temperature)
  embeddings = head.token_embeddings[tokens]
  prompt = jnp.broadcast_to(head.prompt_embeddings, embeddings.shape[:-2] + head.prompt_embeddings.shape)
  values = _matmul(token_probs, head.value_weights.T) * jnp.concatenate([prompt, embeddings], axis=-2)
  mean = jnp.einsum('...l,...lf->...f', weights, values, precision=lax.Precision.HIGHEST)
  return _matmul(mean, head.output)


def init_attention_head(
  key: Array, num_tokens: int, num_classes: int, *, key_size: int, value_size: int, prompt_length: int, length: int
) -> AttentionHead:
  """Matrices as PyTorch's `nn.Linear`, embeddings standard normal as its `nn.Embedding`, positions 0."""
  keys = jax.random.split(key, 6)
  uniform = lambda key, shape, fan_in: jax.random.uniform(key, shape, minval=-1, maxval=1) / math.sqrt(fan_in)
  return AttentionHead(
    query=uniform(keys[0], (key_size,), key_size),
    key_weights=uniform(keys[1], (key_size, num_tokens), num_tokens),
    positions=jnp.zeros((prompt_length + length, key_size)),
    value_weights=uniform(keys[2], (value_size, num_tokens), num_tokens),
    token_embeddings=jax.random.normal(keys[3], (num_tokens + 1, value_size)),
    prompt_embeddings=jax.random.normal(keys[4], (prompt_length, value_size)),
    output=uniform(keys[5], (value_size, num_classes), value_size),
  )


@functools.cache
def attention_head(
  num_tokens: int, num_classes: int, *, key_size: int, value_size: int, temperature: float
) -> SequenceHead:
  """The paper's head with a softmax of this temperature, 0 for its argmax (which has no gradient by the keys)."""

  def init(key, prompt_length, length):
    sizes = dict(key_size=key_size, value_size=value_size, prompt_length=prompt_length, length=length)
    return init_attention_head(key, num_tokens, num_classes, **sizes)

  return SequenceHead(
    init=init,
    scores=lambda head, token_probs, tokens: attention_scores(head, token_probs, tokens, temperature),
    attend=lambda head, token_probs: attention_weights(head, token_probs, temperature),
  )


def _official_weights(head: OfficialAttentionHead, token_probs: Array) -> Array:
  return jax.nn.softmax(token_probs * head.query, axis=-2)


@functools.cache
def official_attention_head(num_tokens: int, num_classes: int) -> SequenceHead:
  """`OfficialAttentionHead`, whose query starts at 0: the mean over positions. It sees neither tokens nor places."""

  def scores(head, token_probs, tokens):
    del tokens
    return linear_scores(head.linear, (_official_weights(head, token_probs) * token_probs).sum(-2))

  return SequenceHead(
    init=lambda key, prompt_length, length: OfficialAttentionHead(
      jnp.zeros(num_tokens), init_linear_head(key, num_tokens, num_classes)
    ),
    scores=scores,
    attend=lambda head, token_probs: _official_weights(head, token_probs).mean(-1),
  )
