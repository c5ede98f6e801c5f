"""Masked-LM pretraining, and how far the pretrained model is from the ideal one.

Everything random at step s is a function of (key, s), so that resuming needs the step alone. The corpus stays on
the device as small integers, and many steps run in one call.
"""

from collections.abc import Callable
import functools
from typing import Any, NamedTuple

import jax
from jax import lax
import jax.numpy as jnp
from jax.sharding import Mesh
import numpy as np
import optax
import scipy.special

from hmm_jax import compilation
from hmm_jax import outputs
from hmm_jax import sharding
from hmm_jax.bert import Bert
from hmm_jax.hmm import conditional_token_probs
from hmm_jax.hmm import Distribution
from hmm_jax.hmm import evidence_likelihoods
from hmm_jax.masking import channel
from hmm_jax.masking import corrupt
from hmm_jax.masking import Corruption
from hmm_jax.model import exact_model
from hmm_jax.model import MaskedLM

Array = jax.Array


class TrainState(NamedTuple):
  """What a checkpoint holds.

  Attributes:
    step: [] int32, steps taken.
    params: the tree of `Bert`, float32.
    opt_state: of the optimiser.
  """

  step: Array
  params: Any
  opt_state: Any


class Batches(NamedTuple):
  """How chunks are met: each epoch visits a fresh permutation of all chunks and drops the last partial batch.

  Attributes:
    key: PRNG key of the order, of the corruption and of dropout.
    num_chunks: chunks in the corpus.
    batch_size: B.
  """

  key: Array
  num_chunks: int
  batch_size: int

  @property
  def steps_per_epoch(self) -> int:
    return self.num_chunks // self.batch_size

  def order(self, epoch: Array) -> Array:
    """The permutation of chunks that `epoch` follows."""
    return jax.random.permutation(jax.random.fold_in(self.key, epoch), self.num_chunks)

  def indices(self, order: Array, step: Array) -> Array:
    """Which chunks [B] step `step` sees, given the order of its epoch."""
    start = step % self.steps_per_epoch * self.batch_size
    return lax.dynamic_slice(order, (start,), (self.batch_size,))


def init_train_state(key: Array, bert: Bert, optimizer: optax.GradientTransformation) -> TrainState:
  """A fresh state; jit it with `out_shardings` to create it where it will live."""
  params = bert.init(key, jnp.zeros((1, 1), jnp.int32))['params']
  return TrainState(jnp.zeros((), jnp.int32), params, optimizer.init(params))


def masked_cross_entropy(logits: Array, targets: Array, selected: Array) -> Array:
  """Mean over selected positions of -log softmax(logits)[target], in nats; 0 where none is selected."""
  losses = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
  return jnp.where(selected, losses, 0).sum() / jnp.maximum(selected.sum(), 1)


def train_step(
  bert: Bert,
  optimizer: optax.GradientTransformation,
  corruption: Corruption,
  state: TrainState,
  chunks: Array,
  key: Array,
) -> tuple[TrainState, Array]:
  """One step on chunks [B, T]: the new state and the masked-LM loss before it. `key` decides the corruption."""
  key_corrupt, key_dropout = jax.random.split(key)
  inputs, selected = corrupt(key_corrupt, corruption, chunks)

  def loss_fn(params):
    deterministic = bert.dropout_rate == 0
    logits = bert.apply({'params': params}, inputs, deterministic, rngs={'dropout': key_dropout})
    return masked_cross_entropy(logits, chunks.astype(jnp.int32), selected)

  loss, grads = jax.value_and_grad(loss_fn)(state.params)
  updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
  return TrainState(state.step + 1, optax.apply_updates(state.params, updates), opt_state), loss


def make_train_steps(
  bert: Bert,
  optimizer: optax.GradientTransformation,
  corruption: Corruption,
  *,
  batch_size: int,
  steps_per_call: int,
  mesh: Mesh,
) -> Callable[[TrainState, Array, Array], tuple[TrainState, Array]]:
  """Compiles `(state, corpus [N, T], key) -> (state, losses [steps_per_call])` over the mesh.

  The batch is split over `data`; the state is donated. One compilation serves every corpus of one shape, if the
  first state is already on the mesh.
  """

  def train_steps(state, corpus, key):
    key_order, key_noise = jax.random.split(key)
    batches = Batches(key_order, corpus.shape[0], batch_size)

    def one(carry, _):
      state, ordered_epoch, order = carry
      epoch = state.step // batches.steps_per_epoch
      order = lax.cond(epoch != ordered_epoch, lambda: batches.order(epoch), lambda: order)
      chunks = jnp.take(corpus, batches.indices(order, state.step), axis=0)
      chunks = lax.with_sharding_constraint(chunks, sharding.batch_sharded(mesh))
      key = jax.random.fold_in(key_noise, state.step)
      state, loss = train_step(bert, optimizer, corruption, state, chunks, key)
      return (state, epoch, order), loss

    unordered = jnp.int32(-1), jnp.arange(corpus.shape[0])
    (state, *_), losses = lax.scan(one, (state, *unordered), length=steps_per_call)
    return state, losses

  whole = sharding.replicated(mesh)
  return jax.jit(train_steps, donate_argnums=0, in_shardings=(whole, whole, whole), out_shardings=(whole, whole))


class Ideal(NamedTuple):
  """Inputs, and what the ideal model predicts on them; numpy arrays.

  Attributes:
    inputs: [n, T] int32 tokens with [MASK] as V.
    weights: [n, T], which predictions count; they sum to 1, or are all 0 where none does.
    token_probs: [n, T, V], the exact distribution of the true token at each position given the input.
  """

  inputs: np.ndarray
  weights: np.ndarray
  token_probs: np.ndarray


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


def ideal_under_corruption(key: Array, hmm: Distribution, corruption: Corruption, chunks: Array) -> Ideal:
  """The Bayes optimum of the masked-LM loss on corrupted chunks [n, T].

  The optimum knows the corruption's rates but not which visible tokens it altered: with y the corrupted input,
  P[x_i | y, i selected] is proportional to P[x_i | y_{-i}] P[y_i | x_i, i selected], and the first factor is
  message passing on the likelihood rows P[y_t | H_t]. Pass the chain as seen from a chunk's start.
  """
  return Ideal(*jax.device_get(_under_corruption(key, hmm, corruption, chunks)))


@functools.partial(jax.jit, static_argnames='corruption', compiler_options=compilation.ONCE)
def _under_corruption(
  key: Array, hmm: Distribution, corruption: Corruption, chunks: Array
) -> tuple[Array, Array, Array]:
  inputs, selected = corrupt(key, corruption, chunks)
  seen, seen_if_selected = channel(corruption)
  token_probs = conditional_token_probs(hmm, evidence_likelihoods(hmm, seen[inputs])) * seen_if_selected[inputs]
  # Where the corruption always shows [MASK], a visible token is never selected and its row is 0.
  totals = token_probs.sum(-1, keepdims=True)
  token_probs = token_probs / jnp.where(totals > 0, totals, 1)
  return inputs, selected / jnp.maximum(selected.sum(), 1), token_probs


def _exact_token_probs(hmm: Distribution, tokens: np.ndarray, batch_size: int) -> np.ndarray:
  predict = functools.partial(outputs.token_probs, exact_model(hmm.num_tokens), hmm)
  return outputs.in_blocks(predict, tokens, batch_size)


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
  predict = functools.partial(outputs.token_probs, model, params)
  probs = np.maximum(np.float64(outputs.in_blocks(predict, ideal.inputs, batch_size)), np.finfo(np.float32).tiny)
  mean = lambda values: float((ideal.weights * values.sum(-1)).sum())
  loss, floor = mean(-ideal.token_probs * np.log(probs)), mean(scipy.special.entr(np.float64(ideal.token_probs)))
  return Gap(loss, floor, loss - floor, mean(np.abs(ideal.token_probs - probs)) / 2)
