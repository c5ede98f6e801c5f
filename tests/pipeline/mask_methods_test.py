"""Methods that read several [MASK]s or classes of tokens, as a trial runs them."""

import functools
import itertools

from mask_chains import CHAIN
import numpy as np
import pytest
from run_cases import QUIET
from settings_cases import settings_of

from experiments.pipeline import downstream, optimal_heads, tuning
from experiments.settings.fields import SettingsError
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


def tuned(method, name='exact', classes=()):
  """The fit to a task; a model by another name than 'exact' is computed as BERT is."""
  frozen = tuning.FrozenModel(name, MODEL, CHAIN, CHAIN)
  trial, tasks = drawn()
  (one,) = tuning.tune(tuning.Job(trial, frozen, method, [0], tasks._replace(token_classes=classes)), QUIET)
  return one


def test_two_masks_decide_the_labels_that_one_does_not():
  accuracies = [
    tuned(method).measured['accuracy'] for method in ('head_whitened', 'masks_converged', 'joint_converged')
  ]
  assert 0.5 < accuracies[0] < 0.9 and accuracies[1:] == [1, 1]


@pytest.mark.parametrize(('method', 'classes'), [('masks', ()), ('joint', ()), ('head', (0, 1, 0))])
def test_heads_read_the_law_of_masks_or_of_classes(method, classes, monkeypatch):
  """Joint probabilities are 3 times as large as they are, as those of one mask."""
  seen, inputs, law = [], drawn()[1].inputs, optimal_heads.exact_law_at_masks
  monkeypatch.setattr(tuning, '_train_starts', lambda job, tuner, features, _: seen.append(features) or 1 / 0)
  with pytest.raises(ZeroDivisionError):
    tuned(method, 'own', classes)
  G = optimal_heads.exact_probs(CHAIN, inputs)
  sums = np.stack([G[:, 0] + G[:, 2], G[:, 1]], 1)
  expected = {'masks': law(CHAIN, inputs, 2, False), 'joint': 3 * law(CHAIN, inputs, 2, True), 'head': sums}
  np.testing.assert_allclose(seen[0], expected[method], atol=1e-6)


@pytest.mark.slow
def test_a_head_behind_a_prompt_is_refitted_on_classes():
  assert tuned('prompt_refit', classes=(0, 1, 0)).trainable['head'].weights.shape == (2, 2)


def test_partitions_of_tokens_are_nested():
  """A finer partition has one class more, and each of its classes lies in a coarser one."""
  partitions = [downstream.nested_classes([3, 0, 4, 2, 1], count) for count in (5, 4, 3, 2)]
  for fine, coarse in itertools.pairwise(partitions):
    assert len(set(zip(fine, coarse))) == len(set(fine)) == len(set(coarse)) + 1


@pytest.mark.parametrize(
  ('field', 'changes'),
  [
    ('bert.max_positions', dict(methods=('masks',), masks__number=17)),
    ('masks.joint', dict(methods=('joint_converged',), masks__joint=4)),
    ('downstream.token_classes', dict(downstream__token_classes=11)),
    ('downstream.token_classes', dict(methods=('attention',), downstream__token_classes=1)),
  ],
)
def test_masks_and_classes_that_do_not_fit_are_refused(field, changes):
  """24 positions hold 16 masks with 8 tokens; four masks have 10,000 words; there are 10 tokens. One less fits."""
  with pytest.raises(SettingsError, match=f'^{field} is'):
    settings_of('smoke', **changes)
  *_, (name, value) = changes.items()
  settings_of('smoke', **changes | {name: value - 1})
