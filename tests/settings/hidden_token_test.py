"""Settings of a hidden last token and of causal models: refusals, ids, and where prompts stand."""

import pytest
from settings_cases import settings_of

from experiments.pipeline import tuning
from experiments.settings.fields import SettingsError
from experiments.settings.grid import Point
from experiments.settings.trial import Trial
from hmm_jax.models.masking import next_token
from hmm_jax.models.model import ExactModel

POINT = Point(4)


@pytest.mark.parametrize(
  ('experiment', 'changes', 'sentence'),
  (
    ('next_token', {'downstream__hidden': 'first'}, "downstream.hidden is 'first'; valid is 'last' if bert.causal"),
    ('next_token', {'methods': ('masks',)}, "downstream.hidden is 'last'; valid is 'first' for method masks"),
    ('next_token', {'methods': ('head_best',)}, "downstream.hidden is 'last'; valid is 'first' for method head_best"),
    ('next_token', {'downstream__label_state': 'silent'}, "downstream.label_state is 'silent'; valid is 'first' if"),
    ('next_token', {'downstream__num_positions': 8}, 'downstream.num_positions is 8; valid is 0 if'),
    ('next_token', {'bert__attention': 'cudnn'}, "bert.causal is True; valid is False if attention is 'cudnn'"),
    ('plateau', {'downstream__hidden': 'last'}, "downstream.hidden is 'last'; valid is 'first': the study"),
  ),
)
def test_what_makes_no_sense_is_refused_in_a_sentence(experiment, changes, sentence):
  with pytest.raises(SettingsError, match=f'^{sentence}'):
    settings_of('smoke', experiment, **changes)


def test_ids_tell_causal_from_masked_and_are_what_they_were_before_the_fields():
  changes = {}, {'bert__causal': False}, {'bert__causal': False, 'downstream__hidden': 'first'}
  causal, masked, first = (Trial(settings_of('smoke', 'next_token', **each), POINT, 0) for each in changes)
  assert len({trial.id for trial in (causal, masked, first)}) == 3
  assert causal.draws_id != masked.draws_id and masked.pretraining_id == first.pretraining_id
  assert causal.settings.corruption == next_token(10) != masked.settings.corruption
  plain = Trial(settings_of('smoke'), POINT, 0)
  assert (plain.id, plain.pretraining_id) == ('f5263c2678a9', 'ef374fd4a2ab')


@pytest.mark.parametrize(('hidden', 'position', 'places'), (('last', -1, [0, -1]), ('first', 0, [0, 1])))
def test_prompts_stand_before_the_text_or_beside_the_hidden_token(hidden, position, places):
  settings = settings_of('smoke', downstream__hidden=hidden)
  built = [tuning.build(settings, POINT, ExactModel(10), method) for method in ('prompt', 'inner_prompt')]
  assert [tuner.prompt.place for tuner in built] == places and built[0].head.position == position
