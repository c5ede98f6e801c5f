"""What pretraining costs: predicted from its settings, and counted in what JAX traces and XLA allocates."""

import dataclasses

from conftest import compiling_fast
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from settings_cases import settings_of

from experiments.pipeline import cost, pretraining
from hmm_jax import sharding


def _products(jaxpr):
  """FLOPs of the products in a jaxpr; of a conditional, those of its cheapest branch."""
  total = 0
  for equation in jaxpr.eqns:
    inner = [_products(sub) for sub in jax.extend.core.jaxprs_in_params(equation.params)]
    if equation.primitive.name == 'dot_general':
      (contracted, _), _ = equation.params['dimension_numbers']
      shape = equation.invars[0].aval.shape
      total += 2 * equation.outvars[0].aval.size * np.prod([shape[axis] for axis in contracted])
    elif equation.primitive.name == 'cond':
      total += min(inner)
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


@pytest.mark.slow
@pytest.mark.parametrize('scale', ['smoke', 'paper'])
def test_the_bytes_of_pretraining_are_those_of_its_state(scale):
  settings = settings_of(scale, pretrain__optimizer='adamw')
  _, shapes = _train_steps(settings)
  assert cost.num_params(settings) == sum(leaf.size for leaf in jax.tree.leaves(shapes[0].params))
  sizes = [leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes[0])]
  assert sum(sizes) == pytest.approx(cost.state_bytes(settings), abs=32)


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
def test_xla_allocates_what_is_predicted():
  """At the small scale a call takes the activations with the gradients, to a third."""
  settings = settings_of(pretrain__optimizer='adamw')
  train_steps, shapes = _train_steps(settings)
  with compiling_fast():
    compiled = train_steps.lower(*shapes).compile()
  activations = cost.activation_bytes(settings, settings.pretrain.batch_size, settings.corpus.chunk_length)
  allocated = compiled.memory_analysis().temp_size_in_bytes
  assert allocated == pytest.approx(activations + 4 * cost.num_params(settings), rel=1 / 3)
