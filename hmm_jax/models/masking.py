"""BERT's corruption of the input, and the same corruption seen as a noisy channel, for the Bayes optimum."""

from typing import NamedTuple

import jax
from jax import Array
import jax.numpy as jnp
import scipy

from hmm_jax._support import arguments


class Corruption(NamedTuple):
  """Devlin et al. 2019, section 3.1: a position is selected with probability `mask_rate`; a selected token
  becomes [MASK] with probability `mask_share`, a uniform token with `random_share`, and else stays.

  Attributes:
    num_tokens: V; [MASK] is token V.
    mask_rate: share of positions selected.
    mask_share: share of selected positions that show [MASK] (0.8).
    random_share: share of selected positions that show a uniform token (0.1).

  >>> Corruption(num_tokens=4, mask_rate=0.15, mask_share=0.8, random_share=0.1).mask_rate
  0.15
  """

  num_tokens: int
  mask_rate: float
  mask_share: float
  random_share: float


def next_token(num_tokens: int) -> Corruption:
  """The corruption by which masked-LM training trains a causal model: every token is a target and is shown.

  Its loss is the mean of -log P[x_i | x_{1..i-1}] over all positions.

  >>> corrupt(jax.random.key(0), next_token(4), jnp.array([0, 1, 2]))[0].tolist()
  [0, 1, 2]
  """
  return Corruption(num_tokens, mask_rate=1.0, mask_share=0.0, random_share=0.0)


@arguments.converted
def corrupt(key: Array, corruption: Corruption, tokens: Array) -> tuple[Array, Array]:
  """The model's input, int32, and the positions that it must predict, bool; both of the shape of `tokens`.

  >>> inputs, selected = corrupt(jax.random.key(0), Corruption(4, 1.0, 1.0, 0.0), jnp.array([0, 1, 2]))
  >>> inputs.tolist(), selected.tolist()
  ([4, 4, 4], [True, True, True])
  """
  random_below = corruption.mask_share + corruption.random_share
  if not isinstance(random_below, jax.core.Tracer) and not random_below <= 1 + 1e-9:
    raise ValueError(f'mask_share + random_share is {random_below}; valid is at most 1')
  key_select, key_kind, key_token = jax.random.split(key, 3)
  tokens = tokens.astype(jnp.int32)
  selected = jax.random.uniform(key_select, tokens.shape) < corruption.mask_rate
  kind = jax.random.uniform(key_kind, tokens.shape)
  uniform = jax.random.randint(key_token, tokens.shape, 0, corruption.num_tokens)
  shown = jnp.where(kind < random_below, uniform, tokens)
  shown = jnp.where(kind < corruption.mask_share, corruption.num_tokens, shown)
  return jnp.where(selected, shown, tokens), selected


def num_slots(corruption: Corruption, batch_size: int, length: int) -> int:
  """The number of selected positions, at least 1, that no sequence [T] exceeds in 99% of batches of B.

  It is BERT's `max_predictions_per_seq`. Sequences have independent, binomial numbers of selected positions.
  """
  return max(int(scipy.stats.binom.ppf(0.99 ** (1 / batch_size), length, corruption.mask_rate)), 1)


def channel(corruption: Corruption) -> tuple[Array, Array]:
  """P[shown | token] and P[shown | token, selected], both [V + 1, V] with a row for each shown symbol.

  >>> shown, shown_if_selected = channel(Corruption(num_tokens=2, mask_rate=0.5, mask_share=1.0, random_share=0.0))
  >>> print(shown)
  [[0.5 0. ]
   [0.  0.5]
   [0.5 0.5]]
  """
  num_tokens, rate, mask_share, random_share = corruption
  identity = jnp.eye(num_tokens + 1, num_tokens)
  shown_is_mask = jnp.eye(num_tokens + 1)[:, -1:]
  if_selected = (
    mask_share * shown_is_mask
    + random_share / num_tokens * (1 - shown_is_mask)
    + (1 - mask_share - random_share) * identity
  )
  return (1 - rate) * identity + rate * if_selected, if_selected
