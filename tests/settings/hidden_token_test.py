"""Settings of a hidden last token: where prompts stand."""

import pytest
from settings_cases import settings_of

from experiments.pipeline import methods
from experiments.settings.grid import Point
from experiments.settings.trial import Trial
from hmm_jax.models.model import ExactModel
from hmm_jax.models.shifted import Shifted
from hmm_jax.tuning.tuner import Prompt


@pytest.mark.parametrize(('hidden', 'position', 'place'), (('last', -1, -1), ('first', 0, 1)))
def test_prompts_stand_before_the_text_or_beside_the_hidden_token(hidden, position, place):
  """A shift is one vector, which takes the place of no token."""
  settings, names = settings_of('smoke', downstream__hidden=hidden), ('prompt', 'inner_prompt', 'shift')
  built = [methods.tuner_of(name, Trial(settings, Point(4), 0), ExactModel(10)) for name in names]
  assert [each.prompt for each in built] == [Prompt(4, 0.5), Prompt(4, 0.5, place), Prompt(1, 0.5, place)]
  assert {each.head.position for each in built} == {position} and built[2].model == Shifted(ExactModel(10))
  assert [*map(settings.num_rows_added, names)] == [4, 4, 0]
