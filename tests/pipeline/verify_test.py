"""Verification of a folder of records."""

from figures_cases import record
import pytest

from experiments.pipeline import verify
from experiments.settings.grid import Point


def _record(trial=0, task=0, model='bert', **fields):
  profile = dict(attention_profile=[[0.1, 1.0, 0.5], [None, None, 0.0]], attention_by='entropy', accuracy_at_most=1.0)
  ids = dict.fromkeys(('trial_id', 'pretraining_id', 'environment'), f'of trial {trial}')
  return record(Point(4), model, 'head', 0.8, trial=trial, task=task, **profile, **ids, **fields)


def _records():
  return [_record(trial, task, model) for trial in range(2) for task in range(2) for model in ('bert', 'exact')]


def _different(recorded, again):
  """The fields that differ."""
  return {row.field for row in verify.compared(recorded, again).itertuples() if row.differ}


def _changed(index, **fields):
  """The records, of which one has other fields; a field of None is gone."""
  records = _records()
  changed = {name: value for name, value in (records[index] | fields).items() if value is not None}
  return [*records[:index], changed, *records[index + 1 :]]


@pytest.mark.parametrize(
  ('recorded', 'field'),
  [
    (_changed(3, accuracy=0.8 + 1e-12), 'accuracy'),
    (_changed(2, seed=7.0), 'seed'),
    (_changed(5, attention_profile=[[0.1, 1.0, 0.5], [0.9, 1.0, 0.0]]), 'attention_profile'),
    (_changed(1, trial_id='of another seed'), 'records'),
    (_changed(4, accuracy=None), 'accuracy'),
    (_records()[:-1], 'records'),
    (_records() + _records()[:1], 'records'),
  ],
)
def test_a_record_that_was_touched_is_found(recorded, field):
  """A number, its type, a field, a record or a trial of another seed."""
  assert _different(recorded, _records()) == {field}


def test_records_of_another_environment_can_be_equal():
  assert not _different(_changed(0, environment='another'), _records())


def test_a_field_that_came_after_all_records_is_no_difference():
  again = [record | {'linear': True} for record in _records()]
  assert not _different(_records(), again)
  assert _different(again[:1] + _records()[1:], again) == {'linear'}
