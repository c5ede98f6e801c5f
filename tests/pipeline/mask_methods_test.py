"""Methods that read several [MASK]s, as a trial runs them."""

import functools

from mask_chains import CHAIN
import numpy as np
import pytest
from run_cases import QUIET
from settings_cases import settings_of

from experiments.pipeline import downstream, methods, optimal_heads, tuning
from experiments.pipeline.job import FrozenModel, Job
from experiments.settings.grid import Point
from experiments.settings.trial import Trial
from hmm_jax.models.model import ExactModel
from hmm_jax.tuning.tasks import labelled

pytestmark = pytest.mark.usefixtures('without_optimisation')

POINT, MODEL = Point(CHAIN.num_states), ExactModel(CHAIN.num_tokens)


@functools.cache
def drawn():
  """A trial of two masks, and tasks whose labels no head on G gets right."""
  sizes = dict(downstream__length=7, downstream__num_train=200, downstream__num_test=100)
  trial = Trial(settings_of('smoke', hmm__num_tokens=3, masks__number=2, **sizes), POINT, 0)
  tasks = downstream.draw(trial.settings, CHAIN, trial.keys().downstream, trial.keys().tasks)
  task = labelled(np.array([[-1, 2, -2, 0], [0] * 4]), tasks.label_probs(tasks.inputs))
  return trial, tasks._replace(tasks=[task, task])


def job_of(method, name='exact'):
  trial, tasks = drawn()
  return Job(trial, FrozenModel(name, MODEL, CHAIN, CHAIN), method, [0], tasks, QUIET)


def test_two_masks_decide_the_labels_that_one_does_not():
  (one,), (two,) = (tuning.tune(job_of(method)) for method in ('head_whitened', 'masks_converged'))
  assert 0.5 < one.measured['accuracy'] < 0.9 and two.measured['accuracy'] == 1


def test_heads_read_the_marginals_of_masks():
  """A model's own, as BERT's are computed, are those that float64 fits read."""
  own, exact = (methods.WAYS['masks'].read(job_of('masks', name), None) for name in ('own', 'exact'))
  np.testing.assert_allclose(own, exact, atol=1e-6)
  np.testing.assert_array_equal(exact, optimal_heads.exact_marginals_at_masks(CHAIN, drawn()[1].inputs, 2))
