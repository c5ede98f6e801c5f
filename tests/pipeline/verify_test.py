"""What verifying a folder of records finds, and within which tolerance."""

import pytest

from experiments.pipeline import verify
from experiments.records import results
from experiments.settings.grid import Point


def _record(trial=0, task=0, model='bert', **fields):
  return {
    **dict(schema_version=results.SCHEMA_VERSION, experiment='prompt_vs_head', scale='small', seed=0),
    **Point(4)._asdict(),
    **dict(trial=trial, task=task, model=model, method='head', accuracy=0.8 + 0.01 * task, kl_at_mask=0.1),
    **dict(bayes_floor=1.5, attention_profile=[[0.1, 1.0, 0.5], [None, None, 0.0]]),
    **dict.fromkeys(('trial_id', 'pretraining_id', 'environment'), f'of trial {trial}'),
    **fields,
  }


def _records():
  return [_record(trial, task, model) for trial in range(2) for task in range(2) for model in ('bert', 'exact')]


def _wrong(recorded, again, here):
  """How many values are wrong by field, with its tolerance."""
  rows = verify.compared(recorded, again, {record['environment'] for record in recorded} if here else ())
  return {row.field: (row.tolerance, row.wrong) for row in rows.itertuples() if row.wrong}


def _changed(index, **fields):
  """The records, of which one has other fields; a field of None is gone."""
  records = _records()
  changed = {name: value for name, value in (records[index] | fields).items() if value is not None}
  return [*records[:index], changed, *records[index + 1 :]]


@pytest.mark.parametrize(
  ('recorded', 'field', 'is_of_rounding'),
  [
    (_records(), None, False),
    (_changed(3, accuracy=0.8 + 1e-12), 'accuracy', True),
    (_changed(5, attention_profile=[[0.1, 1.0, 0.5], [0.9, 1.0, 0.0]]), 'attention_profile', True),
    (_changed(1, trial_id='of another seed'), 'records', False),
    (_changed(4, accuracy=None), 'accuracy', False),
    (_records()[:-1], 'records', False),
    (_records() + _records()[:1], 'records', False),
  ],
)
def test_a_record_that_was_touched_is_found(recorded, field, is_of_rounding):
  """A number, a field, a record or a trial of another seed; elsewhere all but what rounding may decide."""
  found = _wrong(recorded, _records(), here=True)
  assert set(found) == ({field} if field else set()) and all(
    tolerance == 'bit-equal' for tolerance, _ in found.values()
  )
  assert set(_wrong(recorded, _records(), here=False)) == (set() if is_of_rounding else set(found))


def test_a_given_process_is_compared_by_its_digest():
  """Equal arrays may have two names; other arrays of one name differ."""
  of_process = lambda reference: [_record(distribution=reference)]
  assert not _wrong(of_process('a-0123'), of_process('b-0123'), here=True)
  assert set(_wrong(of_process('a-0123'), of_process('a-4567'), here=True)) == {'distribution'}


@pytest.mark.parametrize(
  ('model', 'field', 'value', 'near', 'far'),
  [
    ('bert', 'bayes_floor', 1.5, 1.4e-5, 1.6e-5),
    ('exact', 'kl_at_mask', 0.1, 0.9e-5, 1.1e-5),
    ('bert', 'kl_at_mask', 0.01, 0.019, 0.021),
    ('bert', 'accuracy', 0.5, -0.09, -0.11),
    ('exact', 'accuracy', 0.5, 0.09, 0.11),
    ('bert', 'seed', 2**60, 0, 1),
    # No number in place of one.
    ('bert', 'accuracy', 1.0, 0.0, None),
  ],
)
def test_elsewhere_a_number_is_within_the_tolerance_of_its_field(model, field, value, near, far):
  """Of 1 or of the larger number what is computed is; what is trained has more room, but for the exact model's own."""
  recorded = [_record(model=model, **{field: value})]
  moved = lambda by: [_record(model=model, **{field: value + by if type(by) in (int, float) else by})]
  assert not _wrong(recorded, moved(near), here=False)
  assert _wrong(recorded, moved(far), here=False)[field][1] == 1
