"""A step of pretraining beside Hugging Face's and beside its matrix products alone."""

from collections.abc import Callable, Iterator
import functools
from typing import Any

import jax
from jax import Array
import jax.numpy as jnp
import numpy as np

from experiments.pipeline import cost
from experiments.studies.benchmark import products
from experiments.studies.benchmark.measure import Case, compile_program, compiled, Prepared
from experiments.studies.benchmark.settings import TrainingSettings
import hmm_jax
from hmm_jax import masking, sharding
from hmm_jax.bert import Bert
from hmm_jax.pretraining import init_train_state, make_train_steps, masked_cross_entropy, state_shardings

# torch's label for a position that is not selected.
_IGNORED = -100
# States of the text's HMM; no time depends on them.
_NUM_STATES = 10


def cases(settings: TrainingSettings, key: Array) -> Iterator[Case]:
  """A step, by us and by Hugging Face."""
  step = Step(settings, key)
  yield (
    step.name,
    {
      'ours': step.ours,
      'Hugging Face, eager': functools.partial(step.hugging_face, compiled=False),
      'Hugging Face, torch.compile': functools.partial(step.hugging_face, compiled=True),
      'its matrix products alone': step.products_alone,
    },
  )


class Step:
  """The pretraining step, of one model on one text, that all contenders here run."""

  def __init__(self, settings: TrainingSettings, key: Array):
    self.key, self.pretrain = key, settings.pretrain
    self.bert = bert = settings.bert.module(settings.num_tokens)
    self.corruption = settings.pretrain.corruption(settings.num_tokens)
    self.sizes = batch_size, length = settings.pretrain.batch_size, settings.corpus.chunk_length
    self.dtype = settings.bert.dtype
    self.name = f'training step, L{bert.num_layers} D{bert.width} T{length} B{batch_size}, {self.dtype}'
    self.products = cost.products(bert, *self.sizes, masking.num_slots(self.corruption, *self.sizes))
    # Fields of the record of every contender here.
    self.tokens = {'tokens': batch_size * length}
    self.fields = self.tokens | {'product_flops': cost.training_flops(self.products), 'dtype': self.dtype}
    hmm = hmm_jax.random_hmm(key, _NUM_STATES, settings.num_tokens)
    self.corpus = hmm_jax.sample_corpus(key, hmm, settings.corpus.num_chunks, length)

  @functools.cached_property
  def batches(self) -> list[tuple[np.ndarray, np.ndarray]]:
    """Inputs and labels [B, T] of a call of steps; losses are compared on the first."""
    chunks = jnp.resize(self.corpus, (self.pretrain.steps_per_call, *self.sizes))
    inputs, selected = masking.corrupt(self.key, self.corruption, chunks)
    return list(zip(np.asarray(inputs, np.int64), np.where(selected, np.asarray(chunks, np.int64), _IGNORED)))

  @functools.cached_property
  def params(self) -> Any:
    """The initial parameters of every contender."""
    return jax.jit(self.bert.init)(self.key, jnp.zeros((1, 1), jnp.int32))['params']

  @functools.cached_property
  def loss_in_float64(self) -> float | None:
    """Hugging Face's loss in float64 at the start; None where it is not installed."""
    try:
      from experiments.studies.benchmark import hugging_face
    except ModuleNotFoundError:
      return None
    return hugging_face.loss_of(hugging_face.model_of(self.bert, self.params).double(), self.batches[0])

  def _error(self, loss: float) -> Callable[[Any], float] | None:
    expected = self.loss_in_float64
    return None if expected is None else lambda _: abs(loss - expected)

  def ours(self, options: dict[str, Any] | None = None, **changes: Any) -> Prepared:
    """Our compiled steps; `options` are the compiler's, `changes` replace fields of the model."""
    bert, p, mesh, key, corpus = self.bert.clone(**changes), self.pretrain, sharding.make_mesh(), self.key, self.corpus
    optimizer = p.gradient_transformation(p.num_steps)
    init, where = lambda key: init_train_state(key, bert, optimizer), state_shardings(bert, optimizer, mesh)
    train_steps = make_train_steps(
      bert,
      optimizer,
      self.corruption,
      batch_size=p.batch_size,
      steps_per_call=p.steps_per_call,
      mesh=mesh,
    )
    state = jax.jit(init, out_shardings=where)(key)
    program, fields = compile_program(train_steps, state, corpus, key, options=options)
    fields |= self.fields | {'dtype': bert.dtype.name}

    def call() -> Array:
      nonlocal state  # Donated, so that a call goes on from the one before.
      state, losses = program(state, corpus, key)
      return losses

    # Scanned layers have other initial draws, hence other losses.
    error = None if bert.scan_layers else self._error(self._loss(bert))
    return Prepared(call, error, p.steps_per_call, fields)

  def _loss(self, bert: Bert) -> float:
    """The masked-LM loss without dropout at the start."""
    inputs, labels = map(jnp.asarray, self.batches[0])
    logits: Any = jax.jit(bert.apply)({'params': self.params}, inputs)
    return masked_cross_entropy(logits, jnp.maximum(labels, 0), labels != _IGNORED).item()

  def products_alone(self) -> Prepared:
    """The matrix products of our step alone, a lower bound of its time."""
    steps = self.pretrain.steps_per_call
    multiply = functools.partial(products.multiply, repeats=steps)
    return compiled(multiply, products.operands(self.products, self.bert.dtype), units=steps, **self.fields)

  def hugging_face(self, compiled: bool, attention: str = 'eager') -> Prepared:
    """Hugging Face's steps, as many a call as ours, on batches corrupted before timing."""
    from experiments.studies.benchmark import hugging_face

    model = hugging_face.model_of(self.bert, self.params, attention)
    error = self._error(hugging_face.loss_of(model, self.batches[0]))
    is_half = self.dtype == 'bfloat16'
    call = hugging_face.train_steps(model, self.batches, self.pretrain, compiled, half_precision=is_half)
    return Prepared(call, error, len(self.batches), self.tokens)
