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
CLASSES = (0, 1, 0)


@functools.cache
def drawn():
  """Settings of two masks, and the tasks of two mu that no number in G tells."""
  sizes = dict(length=7, num_train=200, num_validation=8, num_test=100)
  changes = {f'downstream__{name}': size for name, size in sizes.items()}
  trial = Trial(settings_of('smoke', hmm__num_tokens=3, masks__number=2, **changes), POINT, 0)
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


@pytest.mark.parametrize('classes', [(), CLASSES])
@pytest.mark.parametrize('name', ['exact', 'own'])
def test_heads_read_laws_of_masks_and_of_classes(name, classes, monkeypatch):
  """Joint probabilities are 3 times as large as they are, as those of one mask."""
  seen, inputs = [], drawn()[1].inputs
  monkeypatch.setattr(tuning, '_train_starts', lambda job, tuner, features, _: seen.append(features) or 1 / 0)
  for method in ('head', 'masks', 'joint'):
    with pytest.raises(ZeroDivisionError):
      tuned(method, name, classes)
  sums = np.eye(3)[:, [0, 1, 2]] if not classes else np.array([[1, 0], [0, 1], [1, 0]])
  marginals, joint = (optimal_heads.exact_law_at_masks(CHAIN, inputs, 2, joint) for joint in (False, True))
  expected = (
    optimal_heads.exact_probs(CHAIN, inputs) @ sums,
    marginals @ np.kron(np.eye(2), sums),
    3 * joint @ np.kron(sums, sums),
  )
  for features, law in zip(seen, expected, strict=True):
    np.testing.assert_allclose(features, law, atol=1e-6)


@pytest.mark.slow
def test_a_head_behind_a_prompt_reads_classes_too():
  """It is refitted on two numbers, as a converged head without a prompt."""
  for method in ('prompt_refit', 'head_whitened'):
    for one in tuned(method, classes=CLASSES):
      assert one.trainable['head'].weights.shape == (2, 2)


def test_partitions_of_tokens_are_nested():
  """Each class is a union of classes of a finer partition, two of which it joins at most."""
  order = np.random.default_rng(0).permutation(10)
  partitions = [np.array(downstream.nested_classes(order, count)) for count in range(10, 1, -1)]
  for fine, coarse in itertools.pairwise(partitions):
    assert len(set(zip(fine, coarse))) == len(set(fine)) == len(set(coarse)) + 1
  other = settings_of(downstream__token_classes=5, downstream__partition=1)
  classes = [
    downstream._classes(one, drawn()[0].keys().tasks) for one in (settings_of(downstream__token_classes=5), other)
  ]
  assert [sorted(np.bincount(some)) for some in classes] == [[2] * 5] * 2 and classes[0] != classes[1]


@pytest.mark.parametrize(
  ('method', 'changes', 'place'),
  [('inner_prompt', {}, 1), ('prompt', {}, 0), ('prompt', dict(prompt__place='inner'), 1)],
)
def test_a_prompt_stands_where_its_method_or_setting_says(method, changes, place):
  assert tuning.build(settings_of('smoke', **changes), POINT, MODEL, method).prompt.place == place


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
