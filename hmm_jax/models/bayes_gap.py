"""The distance of a model from the ideal one: Bayes floor of the training loss, KL and total variation from G."""

from typing import Any, NamedTuple

from jax import Array
import jax.numpy as jnp
import numpy as np
import scipy.special

from hmm_jax._support import arguments
from hmm_jax._support.blocks import in_blocks
from hmm_jax._support.float64 import positive_or_one
from hmm_jax.distributions.hmm import conditional_token_probs, Distribution, evidence_likelihoods
from hmm_jax.models import masking
from hmm_jax.models.model import ExactModel, MaskedLM, token_probs


class Ideal(NamedTuple):
  """Inputs and the ideal model's predictions on them; numpy arrays.

  Attributes:
    inputs: [n, T] int32 tokens with [MASK] as V.
    positions: [n, Q] int32, the positions that are compared.
    weights: [n, Q], the weight of each prediction; they sum to 1, or are all 0 if none counts.
    token_probs: [n, Q, V], the exact distribution of the true token at each of `positions` given the input.
  """

  inputs: Array | np.ndarray
  positions: Array | np.ndarray
  weights: Array | np.ndarray
  token_probs: Array | np.ndarray


class Gap(NamedTuple):
  """The distance of a model from the ideal one: weighted means over positions, in nats but for the last.

  Attributes:
    loss: E[-log model(x_i)] under the exact conditional of x_i, hence without sampling noise.
    floor: the exact conditional entropy, the loss of the ideal model.
    kl: KL(ideal || model) = loss - floor.
    total_variation: half the L1 distance, in [0, 1].

  >>> import hmm_jax as hj, jax
  >>> hmm = hj.random_hmm(jax.random.key(0), num_states=3, num_tokens=4)
  >>> ideal = ideal_at_mask(hmm, np.tile([4, 1, 2, 3, 0], (6, 1)), batch_size=6)
  >>> round(measure_gap(ExactModel(num_tokens=4), hmm, ideal, batch_size=6).total_variation, 6)
  0.0
  """

  loss: float
  floor: float
  kl: float
  total_variation: float


@arguments.converted
def ideal_under_corruption(key: Array, hmm: Distribution, corruption: masking.Corruption, chunks: Array) -> Ideal:
  """The Bayes optimum of the masked-LM loss on corrupted chunks [n, T].

  The optimum knows the corruption's rates but not which visible tokens it altered: with y the corrupted input,
  P[x_i | y, i selected] is proportional to P[x_i | y_{-i}] P[y_i | x_i, i selected], and the first factor is
  message passing on the likelihood rows P[y_t | H_t]. Pass the chain as seen from a chunk's start.
  """
  inputs, selected = masking.corrupt(key, corruption, chunks)
  seen, seen_if_selected = masking.channel(corruption)
  token_probs = conditional_token_probs(hmm, evidence_likelihoods(hmm, seen[inputs])) * seen_if_selected[inputs]
  # If the corruption always shows [MASK], a visible token is never selected and its row is 0.
  token_probs = token_probs / positive_or_one(token_probs.sum(-1, keepdims=True))
  everywhere = jnp.broadcast_to(jnp.arange(inputs.shape[1]), inputs.shape)
  return Ideal(inputs, everywhere, selected / jnp.maximum(selected.sum(), 1), token_probs)


def _predicted(model: MaskedLM, params: Any, inputs: Any, positions: Any, batch_size: int) -> np.ndarray:
  predict = lambda block: token_probs(model, params, *block)
  return in_blocks(predict, (inputs, positions), batch_size)


@arguments.converted
def ideal_at_mask(hmm: Distribution, inputs: np.ndarray, *, batch_size: int, hidden: int = 0) -> Ideal:
  """G on downstream inputs [n, T] at their [MASK], position `hidden`, -1 the last, in batches of `batch_size`.

  >>> import hmm_jax as hj, jax
  >>> hmm = hj.random_hmm(jax.random.key(0), num_states=3, num_tokens=4)
  >>> ideal_at_mask(hmm, np.tile([4, 1, 2, 3, 0], (6, 1)), batch_size=6).token_probs.shape
  (6, 1, 4)
  """
  position = arguments.position('hidden', hidden, inputs.shape[1])
  return _ideal_at(hmm, inputs, np.full((len(inputs), 1), position, np.int32), batch_size)


def _ideal_at(hmm: Distribution, inputs: np.ndarray, positions: np.ndarray, batch_size: int) -> Ideal:
  probs = _predicted(ExactModel(hmm.num_tokens), hmm, inputs, positions, batch_size)
  return Ideal(inputs, positions, np.full(positions.shape, 1 / len(inputs)), probs)


@arguments.converted
def ideal_next_tokens(hmm: Distribution, documents: Array | np.ndarray) -> Ideal:
  """P[X_i | x_{1..i-1}] for every i of documents [n, T]: the optimum of the next-token loss.

  >>> import hmm_jax as hj, jax
  >>> hmm = hj.random_hmm(jax.random.key(0), num_states=3, num_tokens=4)
  >>> ideal_next_tokens(hmm, jnp.zeros((6, 5), int)).token_probs.shape
  (6, 5, 4)
  """
  arguments.check_ids('documents', documents, hmm.num_tokens)
  documents = documents.astype(np.int32)
  everywhere = np.broadcast_to(np.arange(documents.shape[1], dtype=np.int32), documents.shape)
  weights = np.full(documents.shape, 1 / documents.size, np.float32)
  return Ideal(documents, everywhere, weights, token_probs(ExactModel(hmm.num_tokens, causal=True), hmm, documents))


@arguments.converted
def ideal_one_at_a_time(hmm: Distribution, documents: np.ndarray, *, batch_size: int) -> Ideal:
  """G_i for every i of documents [n, T], each from the document with position i masked: [n T, T] inputs."""
  count, length = documents.shape
  masked = np.tile(np.arange(length, dtype=np.int32), count)[:, None]
  inputs = np.repeat(np.asarray(documents, np.int32), length, axis=0)
  np.put_along_axis(inputs, masked, hmm.num_tokens, axis=1)
  return _ideal_at(hmm, inputs, masked, batch_size)


def measure_gap(model: MaskedLM, params: Any, ideal: Ideal, *, batch_size: int) -> Gap:
  """The distance of `model` from `ideal`, with predictions in batches of `batch_size`.

  >>> import hmm_jax as hj, jax
  >>> hmm, other = (hj.random_hmm(jax.random.key(seed), num_states=3, num_tokens=4) for seed in range(2))
  >>> ideal = ideal_at_mask(hmm, np.tile([4, 1, 2, 3, 0], (6, 1)), batch_size=6)
  >>> measure_gap(ExactModel(num_tokens=4), other, ideal, batch_size=6).kl > 0
  True
  """
  probs = np.float64(_predicted(model, params, ideal.inputs, ideal.positions, batch_size))
  probs = np.maximum(probs, np.finfo(np.float32).tiny)
  mean = lambda values: float((ideal.weights * values.sum(-1)).sum())
  loss, floor = mean(-ideal.token_probs * np.log(probs)), mean(scipy.special.entr(np.float64(ideal.token_probs)))
  return Gap(loss, floor, loss - floor, mean(np.abs(ideal.token_probs - probs)) / 2)
