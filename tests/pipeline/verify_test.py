"""What verifying a folder of records finds, and within which tolerance."""

import io

import jax
import pytest
import rich.console
from settings_cases import settings_of

from experiments.pipeline import sweep, verify
from experiments.records import environment, results
from experiments.records.trial_records import Trial
from experiments.runtime.progress import Reporter
from experiments.settings.fields import SettingsError
from experiments.settings.grid import Point
from experiments.studies import registry


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
    (_changed(1, seed=1), 'seed', False),
    (_changed(4, accuracy=None), 'accuracy', False),
    (_changed(0, remark='of no tolerance'), 'remark', False),
    (_records()[:-1], 'records', False),
    (_records() + [_record(9)], 'records', False),
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


@pytest.mark.parametrize(
  ('model', 'field', 'value', 'near', 'far'),
  [
    ('bert', 'bayes_floor', 1.5, 1.4e-5, 1.6e-5),
    ('exact', 'kl_at_mask', 0.1, 0.9e-5, 1.1e-5),
    ('bert', 'kl_at_mask', 0.4, 0.13, 0.14),
    ('bert', 'kl_at_mask', 0.01, 0.019, 0.021),
    ('bert', 'accuracy', 0.5, -0.09, -0.11),
    ('exact', 'accuracy', 0.5, 0.09, 0.11),
    ('bert', 'seed', 2**60, 0, 1),
    # No numbers, in place of one.
    ('bert', 'accuracy', 1.0, 0.0, None),
    ('bert', 'accuracy', 1.0, 0.0, True),
    ('bert', 'accuracy', 1.0, 0.0, [0.8]),
    ('bert', 'of_no_tolerance', 1.0, 0.0, 1e-15),
  ],
)
def test_elsewhere_a_number_is_within_the_tolerance_of_its_field(model, field, value, near, far):
  """Of 1 or of the larger number what is computed is; what is trained has more room, but for the exact model's own."""
  recorded = [_record(model=model, **{field: value})]
  moved = lambda by: [_record(model=model, **{field: value + by if type(by) in (int, float) else by})]
  assert not _wrong(recorded, moved(near), here=False)
  assert _wrong(recorded, moved(far), here=False)[field][1] == 1


def test_each_record_is_compared_as_its_own_environment_asks():
  """Of a folder that two environments filled, those from here are bit-equal."""
  again = [record | {'accuracy': record['accuracy'] + 0.05} for record in _records()]
  rows = verify.compared(_records(), again, ['of trial 0']).set_index(['field', 'tolerance']).loc['accuracy']
  assert rows[['compared', 'wrong']].values.tolist() == [[4, 4], [4, 0]]
  assert rows.loc['accuracy', 'largest'] == pytest.approx(0.05)


@pytest.fixture
def folder(tmp_path, monkeypatch):
  """A folder with records of three trials, which are run again with the same result; and what verifies trials of it."""
  settings = settings_of('smoke', models=('exact',), methods=('head',), tasks_per_trial=1, num_trials=2)
  here = environment.keep(tmp_path, environment.environment(jax.devices()))
  of_trial = lambda trial: _record(0, model='exact', **trial.point._asdict(), trial_id=trial.id, environment=here)
  recorded = [of_trial(trial) for trial in list(sweep.trials(settings, tmp_path).values())[:3]]
  results.write(tmp_path, settings, recorded)

  def fill(grid, numbers, *_):
    chosen = [list(grid.values())[number] for number in numbers]
    monkeypatch.setattr(Trial, 'records', lambda trial: [of_trial(trial)] if trial in chosen else [])
    return []

  def again(text):
    """What is said of the trials of these numbers."""
    reporter = Reporter(rich.console.Console(file=io.StringIO()))
    verify.run(tmp_path, text, '', registry.SETTINGS, lambda settings: None, reporter)
    return reporter.console.file.getvalue()

  monkeypatch.setattr(sweep, 'fill', fill)
  return tmp_path, settings, recorded, again


def test_trials_are_those_on_record(folder):
  """All of them, or those that are named, of which one is on record; a record of no trial differs in any case.

  So does one whose environment is another file than it was.
  """
  workdir, settings, recorded, again = folder
  for text, number in (('', 3), ('1-3', 2)):
    assert f'{number} records of {number} trials' in again(text)
  with pytest.raises(SettingsError, match="^--trials is '3'; valid is"):
    again('3')
  results.write(workdir, settings, [*recorded, recorded[0] | {'trial_id': ['of none']}])
  for text in ('', '1'):
    with pytest.raises(verify.Differs, match=r'records \(1 of . differ\)$'):
      again(text)
  (path,) = (workdir / environment.FOLDER).iterdir()
  path.write_text('{}')
  with pytest.raises(verify.Differs, match='does not say where the record of .* came from'):
    again('')
