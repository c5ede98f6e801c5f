"""What verifying a folder of records finds, and in which class it looks for it."""

import pathlib
import re

import jax
import numpy as np
import pytest

from experiments.pipeline import verify
from experiments.records import environment, files
from experiments.settings.fields import SettingsError
from experiments.settings.grid import Point


def _record(trial=0, task=0, model='bert', method='head', **fields):
  return {
    'schema_version': 1,
    'experiment': 'prompt_vs_head',
    'scale': 'small',
    'seed': 0,
    **Point(4)._asdict(),
    **dict(trial=trial, task=task, model=model, method=method),
    'accuracy': 0.8 + 0.01 * task,
    'kl_at_mask': 0.1,
    'bayes_floor': 1.5,
    'attention_profile': [[0.1, 1.0, 0.5], [None, None, 0.0]],
    'trial_id': f'of trial {trial}',
    **fields,
  }


def _records(trials=4):
  draws = np.random.default_rng(0)
  return [
    _record(trial, task, model, kl_at_mask=float(draws.random()))
    for trial in range(trials)
    for task in range(2)
    for model in ('bert', 'exact')
  ]


def _wrong(recorded, again, here):
  """The fields that are not the same, with their class, and the whole table."""
  found = verify.compared(recorded, again, lambda record: here)
  assert 'class' in verify.table(found)
  return {one.field: (one.kind, one.verdict) for one in found if not one.is_same}


def _changed(index, **fields):
  records = _records()
  records[index].update(fields)
  return records


def _without(index, field):
  records = _records()
  del records[index][field]
  return records


def test_an_environment_that_cannot_be_compared_is_refused(tmp_path):
  """A line without a manifest beside it may lack what another has."""
  here = environment.environment(jax.devices())
  of = dict(trial_id='of trial 0', model='bert', method='head', tasks=[0])
  files.write_json_lines(tmp_path / 'environment.jsonl', [{**of, **here}])
  assert verify._is_here(tmp_path)(_record())
  for name in ('platform', 'packages', 'tasks'):
    line = {field: value for field, value in {**of, **here}.items() if field != name}
    files.write_json_lines(tmp_path / 'environment.jsonl', [line])
    with pytest.raises(SettingsError, match='a line of environment.jsonl is .*; valid is one with '):
      verify._is_here(tmp_path)


@pytest.mark.parametrize('here', [True, False])
def test_what_is_made_again_is_the_same(here):
  """Equal records are the same in every class."""
  assert not _wrong(_records(), _records(), here)


TAMPERED = [
  (_changed(3, accuracy=0.80001), 'accuracy'),
  (_changed(2, kl_at_mask=_records()[2]['kl_at_mask'] + 1e-12), 'kl_at_mask'),
  (_changed(5, attention_profile=[[0.1, 1.0, 0.5], [0.9, 1.0, 0.0]]), 'attention_profile'),
  (_changed(1, trial_id='of another seed'), 'trial_id'),
  (_changed(1, seed=1), 'seed'),
  (_without(4, 'accuracy'), 'accuracy'),
  (_without(0, 'bayes_floor'), 'bayes_floor'),
  (_changed(0, remark='of no class'), 'remark'),
  (_records()[:-1], 'records'),
  (_records() + [_record(9)], 'records'),
  (_records() + _records()[:1], 'records'),
]


@pytest.mark.parametrize(('recorded', 'field'), TAMPERED)
def test_a_record_that_was_touched_is_found_where_it_came_from(recorded, field):
  """A number, a field, a record or a trial of another seed: in the same environment, where all is bit-equal."""
  (found,) = _wrong(recorded, _records(), here=True).items()
  assert found[0] == field and found[1][0] == verify.EQUAL


def test_elsewhere_settings_and_records_are_equal_all_the_same():
  """Whatever the environment, a lost field, record or trial and another seed are differences."""
  for recorded, field in TAMPERED[3:]:
    assert set(_wrong(recorded, _records(), here=False)) == {field}


@pytest.mark.parametrize(('gap', 'is_far'), [(0.5e-5, False), (2e-5, True)])
def test_elsewhere_what_is_computed_is_within_the_tolerance(gap, is_far):
  """Of the exact model, and of the distribution: relative to the number where that is above 1."""
  again = [r | {'bayes_floor': 1.5 * (1 + gap)} for r in _records()]
  assert _wrong(_records(), again, here=False) == (
    {'bayes_floor': (verify.TOLERANT, '16 of 16 are further apart')} if is_far else {}
  )
  moved = [r | {'kl_at_mask': r['kl_at_mask'] + gap * (r['model'] == 'exact')} for r in _records()]
  assert set(_wrong(_records(), moved, here=False)) == ({'kl_at_mask'} if is_far else set())


def test_elsewhere_trained_numbers_are_tested_for_a_shift_of_their_mean():
  """Differences without a direction pass; one in all trials does not, though tasks of a trial are one unit."""
  draws = np.random.default_rng(1)
  shaken = lambda shift, by: [r | {'accuracy': r['accuracy'] + shift + by(r)} for r in _records()]
  assert not _wrong(_records(), shaken(0.0, lambda r: 0.02 * draws.normal()), here=False)
  kind, verdict = _wrong(_records(), shaken(0.05, lambda r: 0.002 * draws.normal()), here=False)['accuracy']
  assert kind == verify.STATISTICAL and re.match(r'mean over 4 trials moved by \+0.05, p = ', verdict)
  assert 'moved alike' in _wrong(_records(), shaken(0.05, lambda r: 0.0), here=False)['accuracy'][1]
  # Two trials that moved apart are no shift, however many tasks they have.
  apart = shaken(0.0, lambda r: 0.05 * (-1) ** r['trial'] + 0.001 * draws.normal())
  assert not _wrong(_records(), apart, here=False)
  alone = [r for r in shaken(0.05, lambda r: 0.002 * draws.normal()) if r['trial'] == 0]
  assert 'over 4 records' in _wrong([r for r in _records() if r['trial'] == 0], alone, here=False)['accuracy'][1]


def test_elsewhere_another_form_is_a_difference():
  """A number where there was none cannot be tested, and is told."""
  again = _records()
  again[0]['accuracy'] = None
  assert _wrong(_records(), again, here=False)['accuracy'] == (verify.STATISTICAL, '1 of 16 are of another form')


@pytest.mark.parametrize(('field', 'value'), [('num_states', [1]), ('trial', None), ('model', 3)])
def test_a_record_that_does_not_say_what_it_is_of_is_refused(field, value):
  verify._check_names(pathlib.Path('work'), _records())
  with pytest.raises(SettingsError, match=f'^{field} of a record in work is .*; valid is a '):
    verify._check_names(pathlib.Path('work'), [*_records(), {**_record(), field: value}])


@pytest.mark.parametrize('line', ['{}', '{"trial_id": "1", "model": "bert", "method": "head", "tasks": 3}'])
def test_an_environment_that_says_nothing_of_tasks_is_refused(line, tmp_path):
  (tmp_path / 'environment.jsonl').write_text(f'{line}\n')
  with pytest.raises(SettingsError, match='^a line of environment.jsonl is '):
    verify._is_here(tmp_path)
