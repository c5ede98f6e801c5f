"""A step of pretraining beside Hugging Face's and beside its matrix products alone; ensembles beside one model."""

from collections.abc import Callable, Iterator
import functools
import importlib.util
import os
from typing import Any

import jax
from jax import Array
import jax.numpy as jnp
import numpy as np

from experiments.pipeline import cost, pretraining
from experiments.settings.groups import PretrainSettings
from experiments.studies.benchmark import products
from experiments.studies.benchmark.measure import BenchmarkCase, compile_program, compiled, Contender, NotHere, Prepared
from experiments.studies.benchmark.settings import TrainingSettings
import hmm_jax
from hmm_jax import masking, pretrain, sharding
from hmm_jax.bert import Bert

HUGGING_FACE = ('torch', 'transformers')

# States of the HMM that text comes from, of which no time depends.
_NUM_STATES = 10


def cases(settings: TrainingSettings, key: Array) -> Iterator[BenchmarkCase]:
  """A step, by us and by Hugging Face; and steps of several models at once."""
  step = Step(settings, key)
  contenders = [
    Contender('ours', lambda: step.alone),
    Contender('Hugging Face, eager', lambda: step.hugging_face(compiled=False), HUGGING_FACE),
    Contender('Hugging Face, torch.compile', lambda: step.hugging_face(compiled=True), HUGGING_FACE),
    Contender('its matrix products alone', step.products_alone),
  ]
  yield BenchmarkCase('training', step.name, contenders)
  yield step.ensembles('training')


class Step:
  """One step of pretraining of one model on one text, which everything here is measured on."""

  def __init__(self, settings: TrainingSettings, key: Array):
    self.settings, self.key = settings, key
    self.bert = bert = settings.bert.module(settings.num_tokens)
    self.corruption = settings.pretrain.corruption(settings.num_tokens)
    self.batch_size, self.length = sizes = settings.pretrain.batch_size, settings.corpus.chunk_length
    shape = f'L{bert.num_layers} D{bert.width} T{self.length} B{self.batch_size}'
    self.name = f'training step, {shape}, {settings.bert.dtype}'
    self.products = cost.products(bert, *sizes, masking.num_slots(self.corruption, *sizes))

  @functools.cached_property
  def corpus(self) -> Array:
    """Chunks [S, T]."""
    hmm = hmm_jax.random_hmm(self.key, _NUM_STATES, self.settings.num_tokens)
    return hmm_jax.sample_corpus(self.key, hmm, self.settings.corpus.num_chunks, self.length)

  def batches(self, count: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Inputs, targets and what is selected, each [B, T]; losses are compared on the first."""
    chunks = self.corpus[: count * self.batch_size].reshape(count, self.batch_size, self.length)
    inputs, selected = masking.corrupt(self.key, self.corruption, chunks)
    return list(zip(*(np.asarray(x) for x in (inputs, chunks, selected))))

  @functools.cached_property
  def params(self) -> Any:
    """Where every contender starts."""
    return jax.jit(lambda key: self.bert.init(key, jnp.zeros((1, 1), jnp.int32))['params'])(self.key)

  @functools.cached_property
  def alone(self) -> Prepared:
    """Our model alone, compiled once, with which Hugging Face and ensembles are compared."""
    return self.ours(self.bert)

  @functools.cached_property
  def loss_in_float64(self) -> float | None:
    """Hugging Face's loss in float64 at the start; None where it is not installed or cannot hold our numbers."""
    if self.bert.scan_layers or not all(map(importlib.util.find_spec, HUGGING_FACE)):
      return None
    from experiments.studies.benchmark import hugging_face

    return hugging_face.loss_of(hugging_face.model_of(self.bert, self.params).double(), self.batches(1)[0])

  def _error(self, loss: float) -> Callable[[Any], float] | None:
    expected = self.loss_in_float64
    return None if expected is None else lambda _: abs(loss - expected)

  def _figures(self, bert: Bert) -> dict[str, Any]:
    tokens, flops = self.batch_size * self.length, cost.training_flops(self.products)
    return {'tokens': tokens, 'product_flops': flops, 'dtype': jnp.dtype(bert.dtype).name}

  def ours(
    self,
    bert: Bert,
    *,
    num_members: int | None = None,
    options: dict[str, Any] | None = None,
    precision: str = 'default',
    pretrain: PretrainSettings | None = None,
  ) -> Prepared:
    """Calls of many steps; of `num_members` models at once where that is a number.

    `options` are the compiler's, `precision` is that of products of float32. `pretrain` may have another learning rate
    than the settings.
    """
    corpus, key, p = self.corpus, self.key, pretrain or self.settings.pretrain
    if num_members:
      init, train_steps = self._ensemble(bert, p, num_members)
      key = jax.random.split(self.key, num_members)
      corpus = jnp.broadcast_to(corpus, (num_members, *corpus.shape))
    else:
      init, train_steps = pretraining.compiled(bert, p, p.num_steps, sharding.make_mesh())
    state = init(key)
    with jax.default_matmul_precision(precision):
      program, seconds = compile_program(train_steps, state, corpus, key, options=options)

    def call() -> Array:
      nonlocal state
      state, losses = program(state, corpus, key)
      return losses

    members = num_members or 1
    return Prepared(
      call,
      None if num_members else self._error(float(_loss(bert, state.params, self.batches(1)[0]))),
      units=members * p.steps_per_call,
      units_of_loop=members,
      program=program,
      compile_seconds=seconds,
      figures=self._figures(bert),
    )

  def _ensemble(self, bert: Bert, p: PretrainSettings, num_members: int) -> tuple[Any, Any]:
    mesh, optimizer = sharding.make_mesh(), p.gradient_transformation(p.num_steps)
    init_one = lambda key: pretrain.init_train_state(key, bert, optimizer)
    init = jax.jit(jax.vmap(init_one), out_shardings=sharding.members_sharded(mesh))
    sizes = dict(batch_size=p.batch_size, steps_per_call=p.steps_per_call, num_members=num_members)
    return init, pretrain.make_train_steps(bert, optimizer, self.corruption, mesh=mesh, **sizes)

  def products_alone(self) -> Prepared:
    """The least that our step could take."""
    steps = self.settings.pretrain.steps_per_call
    multiply = jax.jit(functools.partial(products.multiply, repeats=steps))
    factors = products.operands(self.products, self.bert.dtype)
    with jax.default_matmul_precision('default'):
      return compiled(multiply, factors, units=steps, figures=self._figures(self.bert))

  def hugging_face(self, compiled: bool, attention: str = 'eager', device: str = 'cpu') -> Prepared:
    """As many steps a call as ours, on batches that are corrupted before the clock runs."""
    if self.bert.scan_layers:
      raise NotHere('cannot hold the numbers of scanned layers')
    import torch

    from experiments.studies.benchmark import hugging_face

    torch.set_num_threads(os.cpu_count() or 1)
    p, model = self.settings.pretrain, hugging_face.model_of(self.bert, self.params, attention)
    loss = hugging_face.loss_of(model, self.batches(1)[0])
    call = hugging_face.train_steps(
      model,
      self.batches(p.steps_per_call),
      adamw=dict(lr=p.learning_rate, betas=(0.9, p.b2), weight_decay=p.weight_decay, fused=True),
      clip_norm=p.clip_norm,
      compiled=compiled,
      half_precision=self.bert.dtype == jnp.bfloat16,
      device=device,
    )
    tokens = self.batch_size * self.length
    return Prepared(call, self._error(loss), units=p.steps_per_call, figures={'tokens': tokens})

  def ensembles(self, part: str) -> BenchmarkCase:
    """Steps of several models at once; the unit is one step of one model."""
    at_once = lambda count: Contender(f'ours, {count} at once', lambda: self.ours(self.bert, num_members=count))
    contenders = [Contender('ours', lambda: self.alone), *map(at_once, self.settings.num_members)]
    return BenchmarkCase(part, f'a step of each of several models, {self.settings.bert.dtype}', contenders)


@functools.partial(jax.jit, static_argnames='bert')
def _loss(bert: Bert, params: Any, batch: tuple[Array, Array, Array]) -> Array:
  """The masked-LM loss without dropout on (inputs, targets, selected)."""
  inputs, targets, selected = batch
  logits: Any = bert.apply({'params': params}, inputs)
  return pretrain.masked_cross_entropy(logits, targets.astype(jnp.int32), selected)
