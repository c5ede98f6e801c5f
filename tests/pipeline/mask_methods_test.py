"""Methods that read several [MASK]s, or put the prompt behind the [MASK], as a trial runs them."""

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

# Three states and two tokens: one [MASK] has rank 2, two have rank 3, by their joint law and by their marginals.
WEIGHTS = [2, -2, -2], [1.9, -2, -2]
POINT, MODEL = Point(CHAIN.num_states), ExactModel(CHAIN.num_tokens)


def settings(**changes):
  sizes = dict(length=7, num_train=200, num_validation=8, num_test=100)
  changes |= {f'downstream__{name}': size for name, size in sizes.items()}
  return settings_of('smoke', hmm__num_tokens=2, masks__number=2, **changes)


@functools.cache
def tasks():
  trial = Trial(settings(), POINT, 0)
  drawn = downstream.draw(trial.settings, POINT, (), CHAIN, trial.keys().downstream, trial.keys().tasks)
  probs = drawn.label_probs(drawn.inputs)
  return drawn._replace(tasks=[labelled(np.array([mu, [0, 0, 0]]), probs) for mu in WEIGHTS])


def tuned(method, name='exact', **changes):
  """The trainables and measurements of two tasks; a model by another name is computed in float32, as BERT is."""
  frozen = tuning.FrozenModel(name, MODEL, CHAIN, functools.partial(optimal_heads.exact_probs, CHAIN))
  job = tuning.Job(Trial(settings(**changes), POINT, 0), frozen, method, [0, 1], tasks())
  return [(one.trainable, one.measured) for one in tuning.tune(job, QUIET)]


@pytest.mark.parametrize(
  ('method', 'least', 'most'), [('head_whitened', 0.5, 0.9), ('masks_converged', 1, 1), ('joint_converged', 1, 1)]
)
def test_two_masks_decide_the_labels_that_one_does_not(method, least, most):
  for _, measured in tuned(method):
    assert least <= measured['clear_accuracy'] <= most


def test_methods_by_schedule_read_the_law_too(monkeypatch):
  """Joint probabilities are 2 times as large as they are, as those of one mask; BERT's law comes from its passes."""
  seen = []
  monkeypatch.setattr(tuning, '_train_starts', lambda job, tuner, features, _: seen.append(features) or 1 / 0)
  for method, name in itertools.product(('masks', 'joint'), ('exact', 'own')):
    with pytest.raises(ZeroDivisionError):
      tuned(method, name)
  law = functools.partial(optimal_heads.exact_law_at_masks, CHAIN, tasks().inputs, 2)
  for features, expected in zip(seen, [law(False)] * 2 + [2 * law(True)] * 2, strict=True):
    np.testing.assert_allclose(features, expected, atol=1e-6)


@pytest.mark.parametrize(
  ('method', 'changes', 'place'),
  [('inner_prompt', {}, 1), ('prompt', {}, 0), ('prompt', dict(prompt__place='inner'), 1)],
)
def test_a_prompt_stands_where_its_method_or_setting_says(method, changes, place):
  assert tuning.build(settings(**changes), POINT, MODEL, method).prompt.place == place


@pytest.mark.parametrize(
  ('field', 'changes'),
  [
    ('bert.max_positions', dict(methods=('masks',), masks__number=17)),
    ('downstream.num_positions', dict(methods=('masks',), downstream__num_positions=5)),
    ('masks.joint', dict(methods=('joint_converged',), masks__joint=4)),
  ],
)
def test_masks_that_do_not_fit_are_refused(field, changes):
  """24 positions hold 16 masks with 8 tokens; 5 masks and a token need 6 positions; four masks have 10,000 words."""
  with pytest.raises(SettingsError, match=f'^{field} is'):
    settings_of('smoke', **changes)
  # One less, or one position more.
  name, value = list(changes.items())[-1]
  settings_of('smoke', **changes | {name: value + (1 if 'positions' in name else -1)})
