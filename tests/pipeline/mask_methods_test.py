"""Methods that read several [MASK]s, classes of tokens or a prompt behind the [MASK], as a trial runs them."""

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
  """A trial of two masks, and tasks of two mu that no head on G gets right."""
  sizes = dict(downstream__length=7, downstream__num_train=200, downstream__num_test=100)
  trial = Trial(settings_of('smoke', hmm__num_tokens=3, masks__number=2, **sizes), POINT, 0)
  tasks = downstream.draw(trial.settings, POINT, (), CHAIN, trial.keys().downstream, trial.keys().tasks)
  weights = np.array([[[2, -1, -1, -1.5], [0] * 4], [[-1, 2, -2, 0], [0] * 4]])
  return trial, tasks._replace(tasks=[labelled(mu, tasks.label_probs(tasks.inputs)) for mu in weights])


def tuned(method, name='exact', classes=()):
  """The two tasks; a model by another name than 'exact' is computed as BERT is."""
  frozen = tuning.FrozenModel(name, MODEL, CHAIN, functools.partial(optimal_heads.exact_probs, CHAIN))
  trial, tasks = drawn()
  return tuning.tune(tuning.Job(trial, frozen, method, [0, 1], tasks._replace(token_classes=classes)), QUIET)


@pytest.mark.parametrize('method', ['masks_converged', 'joint_converged'])
def test_two_masks_decide_the_labels_that_one_does_not(method):
  for one, other in zip(tuned(method), tuned('head_whitened')):
    assert one.measured['accuracy'] == 1 and 0.5 < other.measured['accuracy'] < 0.9


@pytest.mark.parametrize('name', ['exact', 'own'])
@pytest.mark.parametrize(('method', 'classes'), [('masks', ()), ('joint', ()), ('head', (0, 1, 0))])
def test_heads_read_the_law_of_masks_or_of_classes(method, classes, name, monkeypatch):
  """Joint probabilities are 3 times as large as they are, as those of one mask."""
  seen, inputs, law = [], drawn()[1].inputs, optimal_heads.exact_law_at_masks
  monkeypatch.setattr(tuning, '_train_starts', lambda job, tuner, features, _: seen.append(features) or 1 / 0)
  with pytest.raises(ZeroDivisionError):
    tuned(method, name, classes)
  G = optimal_heads.exact_probs(CHAIN, inputs)
  sums = np.stack([G[:, 0] + G[:, 2], G[:, 1]], 1)
  expected = {'masks': law(CHAIN, inputs, 2, False), 'joint': 3 * law(CHAIN, inputs, 2, True), 'head': sums}
  np.testing.assert_allclose(seen[0], expected[method], atol=1e-6)


@pytest.mark.slow
def test_a_head_behind_a_prompt_is_refitted_on_classes():
  for one in tuned('prompt_refit', classes=(0, 1, 0)):
    assert one.trainable['head'].weights.shape == (2, 2)


def test_partitions_of_tokens_are_nested_and_even():
  """A finer partition has one class more; each of its classes lies in a coarser one."""
  order = np.random.default_rng(0).permutation(10)
  partitions = [downstream.nested_classes(order, count) for count in range(10, 1, -1)]
  for fine, coarse in itertools.pairwise(partitions):
    assert len(set(zip(fine, coarse))) == len(set(fine)) == len(set(coarse)) + 1
  assert [sorted(np.bincount(classes)) for classes in partitions[5:]] == [[2] * 5, [2, 2, 2, 4], [2, 4, 4], [4, 6]]


@pytest.mark.parametrize(('method', 'place'), [('inner_prompt', 'before'), ('prompt', 'inner'), ('prompt', 'before')])
def test_a_prompt_stands_where_its_method_or_setting_says(method, place):
  tuner = tuning.build(settings_of(prompt__place=place), POINT, MODEL, method)
  assert tuner.prompt.place == (method == 'inner_prompt' or place == 'inner')


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
