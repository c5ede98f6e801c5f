"""Settings that do not fit each other: each is refused before anything is written, by its name."""

import dataclasses

import pytest
from settings_cases import settings_of

from experiments.own import data
from experiments.pipeline import checks
from experiments.settings.fields import SettingsError
from experiments.settings.trial import trials
from experiments.studies import registry

CELLS, NEXT, MEMORY = 'memory_cells', 'next_token', 'memory_vs_vanilla'


def _smoke(experiment='prompt_vs_head', **changes):
  return settings_of('smoke', experiment, **changes)


@pytest.mark.parametrize(
  ('field', 'settings'),
  [
    ('pretrain.batch_size', _smoke(corpus__document_length=8)),
    ('bert.width', _smoke(bert__width=17)),
    ('bert.max_positions', _smoke(prompt__length=16)),
    ('bert.max_positions', _smoke(methods=('masks',), masks__number=17)),
    ('pretrain.num_steps', _smoke(pretrain__num_steps=45)),
    ('pretrain.warmup_steps', _smoke(pretrain__warmup_steps=40)),
    ('attention.warmup_steps', _smoke(CELLS, attention__warmup_steps=8)),
    ('memory.label_cell', _smoke(CELLS, memory__cells=(1, 2), memory__label_cell=1)),
    # 3^8 configurations.
    (r'hmm is .*at \|H\|=8 \|M\|=3 N=8', _smoke(CELLS, memory__cells=(8,), memory__sizes=(3,), num_states=(8,))),
    (r'hmm is .*at \|H\|=4 \|M\|=2 N=3', _smoke(CELLS, memory__cells=(3,), memory__sizes=(2,), num_states=(4,))),
    ('hmm', _smoke(MEMORY, memory__sizes=(0,), num_states=(1,), memory__vanilla_methods=())),
    ('downstream.num_positions', _smoke(downstream__num_positions=5)),
    ('downstream.num_labels', _smoke(downstream__num_labels=301, downstream__num_train=300)),
    ('attention.form', _smoke(attention__form='official', methods=('attention_blind',))),
    ('models', _smoke(models=('none',), methods=('head',))),
    ('downstream.hidden', _smoke(NEXT, downstream__hidden='first')),
    ('downstream.hidden', _smoke(NEXT, methods=('masks',))),
    ('downstream.hidden', _smoke(NEXT, methods=('head_best',))),
    ('downstream.num_positions', _smoke(NEXT, downstream__num_positions=8)),
    # Out of order, within a call of the program, and past the end.
    ('checkpoints', _smoke(checkpoints=(20, 10))),
    ('checkpoints', _smoke(checkpoints=(15, 40))),
    ('checkpoints', _smoke(checkpoints=(20, 50))),
    ('pretrained_from', _smoke(checkpoints=(20,), pretrained_from='elsewhere-0123456789ab')),
    ('pretrained_from', _smoke(models=('bert', 'other_bert'), pretrained_from='elsewhere-0123456789ab')),
    ('models', _smoke(models=('other_bert',), distribution='mess3-0123456789ab')),
  ],
)
def test_settings_that_do_not_fit_each_other_are_refused(field, settings):
  with pytest.raises(SettingsError, match=f'^{field}'):
    checks.check_grid(settings)


@pytest.mark.parametrize(
  ('field', 'experiment', 'changes'),
  [
    ('temperatures', 'belief_states', dict(num_states=(4, 4), temperatures=(0.1, 0.1))),
    ('checkpoints', 'belief_states', dict(checkpoints=(20, 39))),
    ('bert.model.max_positions', 'degradation', {'bert.model.max_positions': 7}),
    ('sentence', 'example_4_1', dict(sentence='The horse in the pasture.')),
    ('sentence', 'example_4_1', dict(sentence='')),
    ('pretrain.optimizer', 'benchmark', dict(pretrain__optimizer='muon')),
  ],
)
def test_a_study_refuses_settings_that_it_cannot_run(field, experiment, changes):
  with pytest.raises(SettingsError, match=f'^{field} is'):
    registry.EXPERIMENTS[experiment].check(_smoke(experiment, **changes), data.NOTHING)


def test_each_size_has_a_number_of_draws():
  with pytest.raises(SettingsError, match='^num_trials_by_size'):
    trials(_smoke(num_trials_by_size=(1, 2, 3)))


@pytest.mark.parametrize(
  'changes',
  [
    # A cut text may be longer than BERT.
    dict(downstream__length=500, downstream__num_positions=24, prompt__length=22),
    # Methods that need no model are tuned without one.
    dict(models=('exact',), methods=('tokens',)),
    dict(models=('bert',), methods=('masks',), masks__number=16),
    dict(checkpoints=(20, 40)),
  ],
)
def test_settings_at_the_edge_are_accepted(changes):
  checks.check_grid(dataclasses.replace(_smoke(**changes), num_states=(4,)))
