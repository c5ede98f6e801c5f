"""Settings of a hidden last token and of causal models: what they refuse, what they name, and what keeps its id."""

import pytest
from settings_cases import settings_of

from experiments.pipeline import tuning
from experiments.settings.fields import SettingsError
from experiments.settings.grid import Point
from experiments.settings.trial import Trial
from hmm_jax.models.masking import next_token
from hmm_jax.models.model import ExactModel


def trial(**changes):
  return Trial(settings_of('smoke', 'next_token', **changes), Point(4), 0)


@pytest.mark.parametrize(
  ('changes', 'sentence'),
  (
    ({'downstream__hidden': 'first'}, "downstream.hidden is 'first'; valid is 'last' if bert.causal is True"),
    ({'methods': ('masks',)}, "downstream.hidden is 'last'; valid is 'first' for method masks"),
    ({'methods': ('joint_converged',)}, "downstream.hidden is 'last'; valid is 'first' for method joint_converged"),
    ({'methods': ('head_best',)}, "downstream.hidden is 'last'; valid is 'first' for method head_best"),
    ({'downstream__label_state': 'silent'}, "downstream.label_state is 'silent'; valid is 'first' if"),
    ({'downstream__num_positions': 8}, "downstream.num_positions is 8; valid is 0 if downstream.hidden is 'last'"),
    ({'bert__attention': 'cudnn'}, "bert.causal is True; valid is False if attention is 'cudnn'"),
  ),
)
def test_what_makes_no_sense_is_refused_in_a_sentence(changes, sentence):
  with pytest.raises(SettingsError, match=f'^{sentence}'):
    settings_of('smoke', 'next_token', **changes)


@pytest.mark.parametrize('experiment', ('plateau', 'which_theorem', 'benchmark'))
def test_studies_of_masked_models_refuse_a_hidden_last_token(experiment):
  with pytest.raises(SettingsError, match="^downstream.hidden is 'last'; valid is 'first'"):
    settings_of('smoke', experiment, downstream__hidden='last')


def test_ids_tell_causal_from_masked_and_defaults_are_no_part_of_them():
  """The ids of the mirror differ from those of the paper's task, and a field at its default is no part of one."""
  causal, masked = trial(), trial(bert__causal=False)
  first = trial(bert__causal=False, downstream__hidden='first')
  assert len({causal.pretraining_id, masked.pretraining_id}) == 2 and masked.pretraining_id == first.pretraining_id
  assert len({each.id for each in (causal, masked, first)}) == len({x.draws_id for x in (causal, masked, first)}) == 3
  plain = Trial(settings_of('smoke'), Point(4), 0)
  # Written before the fields existed.
  assert (plain.id, plain.pretraining_id) == ('f5263c2678a9', 'ef374fd4a2ab')


def test_a_causal_model_is_trained_on_every_token():
  assert trial().settings.corruption == next_token(10) != trial(bert__causal=False).settings.corruption


@pytest.mark.parametrize(('hidden', 'places'), (('last', (0, -1)), ('first', (0, 1))))
def test_prompts_stand_before_the_text_or_beside_the_hidden_token(hidden, places):
  settings = settings_of('smoke', downstream__hidden=hidden)
  built = [tuning.build(settings, Point(4), ExactModel(10), method) for method in ('prompt', 'inner_prompt')]
  assert tuple(tuner.prompt.place for tuner in built) == places
  assert {tuner.head.position for tuner in built} == {settings.downstream.hidden_position}
