"""What pretraining costs: predicted from its settings, and counted in what JAX traces and XLA compiles."""

import dataclasses

from conftest import compiling_fast
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from settings_cases import settings_of

from experiments.pipeline import cost, pretraining
from hmm_jax import masking, sharding


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


def _train_steps(settings):
  """The compiled steps, and the shapes that they take."""
  p, corpus = settings.pretrain, settings.corpus
  init, train_steps = pretraining.compiled(settings.bert_module(), p, p.num_steps, sharding.make_mesh())
  key = jax.eval_shape(lambda: jax.random.key(0))
  chunks = jax.ShapeDtypeStruct((corpus.num_chunks, corpus.chunk_length), jnp.uint8)
  return train_steps, (jax.eval_shape(init, key), chunks, key)


def _step_flops(settings, num_read):
  """Predicted FLOPs of a step without those of its optimiser."""
  sizes = settings.pretrain.batch_size, settings.corpus.chunk_length
  return cost.training_flops(cost.products(settings.bert_module(), *sizes, num_read))


@pytest.mark.slow
@pytest.mark.parametrize('scale', ['smoke', 'paper'])
def test_the_products_of_pretraining_are_those_of_the_traced_step(scale):
  """To the last one, where a batch fits into the slots and where it does not."""
  settings = settings_of(scale, pretrain__optimizer='adamw')
  train_steps, shapes = _train_steps(settings)
  jaxpr = jax.make_jaxpr(train_steps)(*shapes).jaxpr
  length, each = settings.corpus.chunk_length, settings.pretrain.steps_per_call
  slots = masking.num_slots(settings.corruption(), settings.pretrain.batch_size, length)
  assert _products(jaxpr) == each * _step_flops(settings, slots)
  assert _products(jaxpr, max) == each * _step_flops(settings, length)
  # BERT-base with 6 layers, in the paper's size.
  assert scale != 'paper' or sum(leaf.size for leaf in jax.tree.leaves(shapes[0].params)) == 43_522_571


@pytest.mark.slow
def test_tuned_differs_from_the_paper_in_training_alone():
  """The scale `tuned` has the paper's model, text and tasks, and no more operations than `paper`."""
  paper, tuned = settings_of('paper'), settings_of('tuned')
  assert dataclasses.replace(tuned, scale='paper', pretrain=paper.pretrain) == paper != tuned
  totals = []
  for settings in (paper, tuned):
    train_steps, shapes = _train_steps(settings)
    of_call = _products(jax.make_jaxpr(train_steps)(*shapes).jaxpr)
    totals.append(of_call * settings.pretrain.num_steps / settings.pretrain.steps_per_call)
  assert 0.97 * totals[0] < totals[1] <= totals[0]


@pytest.mark.slow
def test_xla_counts_what_is_predicted():
  """At the small scale. XLA counts one step of the loop, of a conditional the dearer branch, and entries besides."""
  settings = settings_of(pretrain__optimizer='adamw')
  train_steps, shapes = _train_steps(settings)
  with compiling_fast():
    compiled = train_steps.lower(*shapes).compile()
  everywhere = _step_flops(settings, settings.corpus.chunk_length)
  assert everywhere < compiled.cost_analysis()['flops'] < 1.05 * everywhere
