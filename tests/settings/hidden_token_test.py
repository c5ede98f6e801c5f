"""Settings of a hidden last token and of causal models: ids, and where prompts stand."""

import pytest
from settings_cases import settings_of

from experiments.pipeline import methods
from experiments.settings.grid import Point
from experiments.settings.trial import Trial
from hmm_jax.models.model import ExactModel
from hmm_jax.models.shifted import Shifted
from hmm_jax.tuning.tuner import Prompt

POINT = Point(4)


def test_ids_tell_causal_from_masked():
  changes = {}, {'bert__causal': False}, {'bert__causal': False, 'downstream__hidden': 'first'}
  trials = [Trial(settings_of('smoke', 'next_token', **each), POINT, 0) for each in changes]
  ids = zip(*((trial.id, trial.pretraining_id) for trial in trials))
  assert [*map(len, map(set, ids))] == [3, 2]


@pytest.mark.parametrize(('hidden', 'position', 'place'), (('last', -1, -1), ('first', 0, 1)))
def test_prompts_stand_before_the_text_or_beside_the_hidden_token(hidden, position, place):
  """A shift is one vector, which takes the place of no token."""
  settings, names = settings_of('smoke', downstream__hidden=hidden), ('prompt', 'inner_prompt', 'shift')
  built = [methods.tuner_of(name, Trial(settings, POINT, 0), ExactModel(10)) for name in names]
  assert [each.prompt for each in built] == [Prompt(4, 0.5), Prompt(4, 0.5, place), Prompt(1, 0.5, place)]
  assert {each.head.position for each in built} == {position} and built[2].model == Shifted(ExactModel(10))
  assert [*map(settings.num_rows_added, names)] == [4, 4, 0]
