"""The cost of pretraining, counted in traced operations."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from settings_cases import settings_of

from experiments.pipeline import pretraining
from hmm_jax.models import sharding


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


@pytest.mark.slow
def test_tuned_differs_from_the_paper_only_in_training():
  """The scale `tuned` has the paper's model, text and tasks, and no more operations than `paper`."""
  paper, tuned = settings_of('paper'), settings_of('tuned')
  assert dataclasses.replace(tuned, scale='paper', pretrain=paper.pretrain) == paper != tuned
  totals = []
  key = jax.eval_shape(lambda: jax.random.key(0))
  for settings in (paper, tuned):
    p, corpus = settings.pretrain, settings.corpus
    init, train_steps = pretraining.compiled(settings.bert_module(), p, p.num_steps, sharding.make_mesh())
    chunks = jax.ShapeDtypeStruct((corpus.num_chunks, corpus.chunk_length), jnp.uint8)
    of_call = _products(jax.make_jaxpr(train_steps)(jax.eval_shape(init, key), chunks, key).jaxpr)
    totals.append(of_call * p.num_steps / p.steps_per_call)
  assert 0.97 * totals[0] < totals[1] <= totals[0]
