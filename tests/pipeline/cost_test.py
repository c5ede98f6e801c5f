"""What pretraining costs: predicted from its settings, and counted in what JAX traces and XLA compiles."""

from conftest import compiling_fast
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from settings_cases import settings_of

from experiments.pipeline import cost, pretraining
from hmm_jax import sharding


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


@pytest.mark.slow
@pytest.mark.parametrize(('scale', 'optimizer'), [('smoke', 'muon'), ('paper', 'adamw')])
def test_the_products_of_pretraining_are_those_of_the_traced_step(scale, optimizer):
  """To the last one, where a batch fits into the slots and where it does not."""
  settings = settings_of(scale, pretrain__optimizer=optimizer)
  train_steps, shapes = _train_steps(settings)
  jaxpr = jax.make_jaxpr(train_steps)(*shapes).jaxpr
  total = lambda **how: settings.pretrain.steps_per_call * cost.pretraining_step(settings, **how)
  assert _products(jaxpr) == total()
  assert _products(jaxpr, max) == total(read=settings.corpus.chunk_length)
  # BERT-base with 6 layers, in the paper's size.
  assert scale != 'paper' or sum(leaf.size for leaf in jax.tree.leaves(shapes[0].params)) == 43_522_571


@pytest.mark.slow
def test_xla_counts_what_is_predicted():
  """At the small scale. XLA counts one step of the loop, of a conditional the dearer branch, and entries besides."""
  settings = settings_of()
  train_steps, shapes = _train_steps(settings)
  with compiling_fast():
    compiled = train_steps.lower(*shapes).compile()
  everywhere = cost.pretraining_step(settings, settings.corpus.chunk_length)
  assert everywhere < compiled.cost_analysis()['flops'] < 1.05 * everywhere
