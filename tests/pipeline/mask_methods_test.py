"""Methods that read several [MASK]s, as a trial runs them."""

import functools

from mask_chains import CHAIN
import numpy as np
import pytest
from run_cases import QUIET
from settings_cases import settings_of

from experiments.pipeline import downstream, optimal_heads, tuning
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
  tasks = downstream.draw(trial.settings, POINT, (), CHAIN, trial.keys().downstream, trial.keys().tasks)
  task = labelled(np.array([[-1, 2, -2, 0], [0] * 4]), tasks.label_probs(tasks.inputs))
  return trial, tasks._replace(tasks=[task, task])


def tuned(method, name='exact'):
  """The fit to a task; a model by another name than 'exact' is computed as BERT is."""
  trial, tasks = drawn()
  (one,) = tuning.tune(tuning.Job(trial, tuning.FrozenModel(name, MODEL, CHAIN, CHAIN), method, [0], tasks), QUIET)
  return one


def test_two_masks_decide_the_labels_that_one_does_not():
  one, two = (tuned(method).measured['accuracy'] for method in ('head_whitened', 'masks_converged'))
  assert 0.5 < one < 0.9 and two == 1


def test_heads_read_the_marginals_of_masks(monkeypatch):
  """A model's own are those that float64 fits read."""
  seen = []
  monkeypatch.setattr(tuning, '_train_starts', lambda job, tuner, features, _: seen.append(features) or 1 / 0)
  with pytest.raises(ZeroDivisionError):
    tuned('masks', 'own')
  np.testing.assert_allclose(seen[0], optimal_heads.exact_marginals_at_masks(CHAIN, drawn()[1].inputs, 2), atol=1e-6)
