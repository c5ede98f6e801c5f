"""What a run costs: predicted from its settings, and counted in what JAX traces and XLA compiles."""

import functools

from conftest import compiling_fast
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.pipeline import cost, pretraining, tuning
from experiments.settings import config as config_lib
from experiments.settings.grid import Point
from experiments.studies import registry
from experiments.studies.cost import cost_report
from hmm_jax import inference, sharding
from hmm_jax.hmm import HMM
from hmm_jax.memory_hmm import MemoryHMM


def _settings(scale='smoke', **changes):
  config = config_lib.shipped('prompt_vs_head')['get_config'](scale)
  config.update_from_flattened_dict(changes)
  return registry.from_config(config)


def _products(jaxpr, choose=min):
  """FLOPs of the products in a jaxpr; of a conditional, those of the branch that is chosen."""
  total = 0
  for equation in jaxpr.eqns:
    inner = [_products(sub, choose) for sub in jax.extend.core.jaxprs_in_params(equation.params)]
    if equation.primitive.name == 'dot_general':
      (contracted, _), _ = equation.params['dimension_numbers']
      shape = equation.invars[0].aval.shape
      total += 2 * equation.outvars[0].aval.size * np.prod([shape[axis] for axis in contracted])
    elif equation.primitive.name == 'cond':
      total += choose(inner)
    else:
      total += equation.params.get('length', 1) * sum(inner)
  return total


def _train_steps(settings, **sizes):
  """The compiled steps, and the shapes that they take."""
  p, corpus = settings.pretrain, settings.corpus
  init, train_steps = pretraining.compiled(settings.bert_module(), p, p.num_steps, sharding.make_mesh(**sizes))
  key = jax.eval_shape(lambda: jax.random.key(0))
  chunks = jax.ShapeDtypeStruct((corpus.num_chunks, corpus.chunk_length), jnp.uint8)
  return train_steps, (jax.eval_shape(init, key), chunks, key)


@pytest.mark.parametrize('optimizer', ['adamw', 'muon'])
@pytest.mark.parametrize('scale', ['smoke', 'small', 'paper'])
def test_the_products_of_pretraining_are_those_of_the_traced_step(scale, optimizer):
  """To the last one, where a batch fits into the slots and where it does not; and so are the parameters."""
  settings = _settings(scale, **{'pretrain.optimizer': optimizer})
  train_steps, shapes = _train_steps(settings)
  jaxpr = jax.make_jaxpr(train_steps)(*shapes).jaxpr
  total = lambda **how: settings.pretrain.steps_per_call * sum(cost.pretraining_step(settings, **how).values())
  assert _products(jaxpr) == total()
  assert _products(jaxpr, max) == total(read=settings.corpus.chunk_length)
  assert cost.num_params(settings) == sum(leaf.size for leaf in jax.tree.leaves(shapes[0].params))
  sizes = [leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes[0])]
  assert sum(sizes) == pytest.approx(cost.state_bytes(settings), abs=32)


@pytest.mark.parametrize(
  ('method', 'seen'), [('prompt', 33), ('prompt', 20), ('finetune', 33), ('finetune', 40), ('prompt_attention', 33)]
)
def test_the_products_of_tuning_are_those_of_the_traced_step(method, seen):
  """All tasks of a trial at the small scale, to the head's own, which the width of BERT dwarfs; of cut texts too."""
  whole = _settings('small')
  cut = {} if seen == 33 else {'downstream.length': 50, 'downstream.num_positions': whole.prompt_length(method) + seen}
  settings = _settings('small', **cut)
  model, tasks = pretraining.tuned_model(settings.bert_module()), settings.tasks_per_trial
  tuner, batch_size = tuning._tuner(settings, Point(4), model, method), settings.tuning(method).batch_size
  _, (state, *_) = _train_steps(settings)
  params, inputs = state.params, jnp.zeros((batch_size, seen), jnp.int32)
  trainable = jax.eval_shape(
    lambda params: jax.vmap(lambda key: tuner.init(key, params, inputs))(jax.random.split(jax.random.key(0), tasks)),
    params,
  )
  loss = lambda trainable, params: tuner.scores(trainable, params, inputs).sum()
  counted = _products(jax.make_jaxpr(jax.grad(loss))(trainable, params).jaxpr)
  assert counted == pytest.approx(sum(cost.tuning_step(settings, method).values()), rel=0.03)


@pytest.mark.parametrize('memory', [0, 3])
def test_the_products_of_inference_are_those_of_the_traced_pass(memory):
  """Forward and back, of a chain and of a memory of three values, in proportion to its configurations."""
  rows, count, length = lambda *shape: jnp.ones(shape), 16, 9
  hmm = HMM(rows(4), rows(4, 4), rows(4, 5))
  if memory:
    hmm = MemoryHMM(rows(memory), rows(4), rows(4, 4), np.zeros(4, np.int32), rows(memory, 4, 5))
  point = Point(4, memory, bool(memory))
  likelihoods = rows(count, length, point.joint_states)
  jaxpr = jax.make_jaxpr(functools.partial(inference.forward_backward, hmm))(likelihoods)
  assert _products(jaxpr.jaxpr) == count * cost.inference(point, length)


def test_xla_counts_and_allocates_what_is_predicted():
  """At the small scale. XLA counts one step of the loop, of a conditional the dearer branch, and entries besides.

  What it allocates for a call is within a third of the activations with the gradients.
  """
  settings = _settings('small')
  train_steps, shapes = _train_steps(settings)
  with compiling_fast():
    compiled = train_steps.lower(*shapes).compile()
  everywhere = sum(cost.pretraining_step(settings, settings.corpus.chunk_length).values())
  assert everywhere < compiled.cost_analysis()['flops'] < 1.05 * everywhere
  activations = cost.activation_bytes(settings, settings.pretrain.batch_size, settings.corpus.chunk_length)
  allocated = compiled.memory_analysis().temp_size_in_bytes
  assert allocated == pytest.approx(activations + 4 * cost.num_params(settings), rel=1 / 3)


def test_gradients_are_sent_around_a_ring_or_not_at_all():
  """Each of n devices sends 2 (n - 1) / n of them, of the word embedding two. What XLA does: sharding_test."""
  settings = _settings()
  embedding = (settings.hmm.num_tokens + 1) * settings.bert.width
  gradients = 4 * (cost.num_params(settings) + embedding)
  assert not cost.communication(settings, 1, 1, 1)
  assert cost.communication(settings, 2, 1, 1) == {('all-reduce', ('data',)): gradients}
  assert cost.communication(settings, 8, 1, 1) == {('all-reduce', ('data',)): pytest.approx(1.75 * gradients)}


def test_the_page_on_cost_has_the_tables_of_today():
  """Where this fails, `python -m experiments.studies.cost.cost_report` writes them."""
  page = cost_report.PAGE.read_text()
  assert cost_report.filled(page) == page and page.count('| --- |') >= 5
