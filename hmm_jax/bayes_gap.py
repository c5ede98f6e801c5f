"""How far a model is from the ideal one: the Bayes floor of the masked-LM loss, KL and total variation from G."""

import functools
from typing import Any, NamedTuple

import jax
from jax import Array
import jax.numpy as jnp
import numpy as np
import scipy.special

from hmm_jax import compilation, masking
from hmm_jax.blocks import in_blocks
from hmm_jax.float64 import positive_or_one
from hmm_jax.hmm import conditional_token_probs, Distribution, evidence_likelihoods
from hmm_jax.model import ExactModel, MaskedLM, token_probs


class Ideal(NamedTuple):
  """Inputs, and what the ideal model predicts on them; numpy arrays.

  Attributes:
    inputs: [n, T] int32 tokens with [MASK] as V.
    weights: [n, T], which predictions count; they sum to 1, or are all 0 where none does.
    token_probs: [n, T, V], the exact distribution of the true token at each position given the input.
  """

  inputs: Array | np.ndarray
  weights: Array | np.ndarray
  token_probs: Array | np.ndarray


class Gap(NamedTuple):
  """The distance of a model from the ideal one, averaged over the counted positions, in nats but for the last.

  Attributes:
    loss: E[-log model(x_i)] under the exact conditional of x_i, so without the noise of drawing it.
    floor: the exact conditional entropy, the loss of the ideal model.
    kl: KL(ideal || model) = loss - floor.
    total_variation: half the L1 distance, in [0, 1].
  """

  loss: float
  floor: float
  kl: float
  total_variation: float


def ideal_under_corruption(key: Array, hmm: Distribution, corruption: masking.Corruption, chunks: Array) -> Ideal:
  """The Bayes optimum of the masked-LM loss on corrupted chunks [n, T].

  The optimum knows the corruption's rates but not which visible tokens it altered: with y the corrupted input,
  P[x_i | y, i selected] is proportional to P[x_i | y_{-i}] P[y_i | x_i, i selected], and the first factor is
  message passing on the likelihood rows P[y_t | H_t]. Pass the chain as seen from a chunk's start.
  """
  return jax.device_get(_under_corruption(key, hmm, corruption, chunks))


@functools.partial(jax.jit, static_argnames='corruption', compiler_options=compilation.ONCE)
def _under_corruption(key: Array, hmm: Distribution, corruption: masking.Corruption, chunks: Array) -> Ideal:
  inputs, selected = masking.corrupt(key, corruption, chunks)
  seen, seen_if_selected = masking.channel(corruption)
  token_probs = conditional_token_probs(hmm, evidence_likelihoods(hmm, seen[inputs])) * seen_if_selected[inputs]
  # Where the corruption always shows [MASK], a visible token is never selected and its row is 0.
  token_probs = token_probs / positive_or_one(token_probs.sum(-1, keepdims=True))
  return Ideal(inputs, selected / jnp.maximum(selected.sum(), 1), token_probs)


def _exact_token_probs(hmm: Distribution, tokens: np.ndarray, batch_size: int) -> np.ndarray:
  predict = functools.partial(token_probs, ExactModel(hmm.num_tokens), hmm)
  return in_blocks(predict, tokens, batch_size)


def ideal_at_mask(hmm: Distribution, inputs: np.ndarray, *, batch_size: int) -> Ideal:
  """G_1 on downstream inputs [n, T], whose first token is [MASK], computed on `batch_size` of them at a time."""
  weights = np.zeros(inputs.shape)
  weights[:, 0] = 1 / len(inputs)
  return Ideal(inputs, weights, _exact_token_probs(hmm, inputs, batch_size))


def ideal_one_at_a_time(hmm: Distribution, documents: np.ndarray, *, batch_size: int) -> Ideal:
  """G_i for every i of documents [n, T], each from the document with position i masked: [n T, T] inputs."""
  count, length = documents.shape
  is_masked = np.tile(np.eye(length, dtype=bool), (count, 1))
  inputs = np.where(is_masked, hmm.num_tokens, np.repeat(documents, length, axis=0)).astype(np.int32)
  # G_i does not look at token i, so that one pass over a document serves all its positions.
  token_probs = np.repeat(_exact_token_probs(hmm, documents, batch_size), length, axis=0)
  return Ideal(inputs, is_masked / is_masked.sum(), token_probs)


def measure_gap(model: MaskedLM, params: Any, ideal: Ideal, *, batch_size: int) -> Gap:
  """How far `model` is from `ideal`, its predictions computed on `batch_size` inputs at a time."""
  predict = functools.partial(token_probs, model, params)
  probs = np.maximum(np.float64(in_blocks(predict, ideal.inputs, batch_size)), np.finfo(np.float32).tiny)
  mean = lambda values: float((ideal.weights * values.sum(-1)).sum())
  loss, floor = mean(-ideal.token_probs * np.log(probs)), mean(scipy.special.entr(np.float64(ideal.token_probs)))
  return Gap(loss, floor, loss - floor, mean(np.abs(ideal.token_probs - probs)) / 2)
