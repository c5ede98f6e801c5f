"""What verifying a folder of records finds, and within which tolerance."""

import io
import json

import jax
import numpy as np
import pytest
import rich.console

from configs import prompt_vs_head
from experiments.pipeline import sweep, verify
from experiments.records import environment, results
from experiments.records.trial_records import Trial
from experiments.runtime.progress import Reporter
from experiments.settings.fields import SettingsError
from experiments.settings.grid import Point
from experiments.studies import registry

QUIET = Reporter(rich.console.Console(quiet=True))


def _record(trial=0, task=0, model='bert', method='head', **fields):
  return {
    'schema_version': results.SCHEMA_VERSION,
    'experiment': 'prompt_vs_head',
    'scale': 'small',
    'seed': 0,
    **Point(4)._asdict(),
    **dict(trial=trial, task=task, model=model, method=method, pretraining_id=f'of trial {trial}'),
    'accuracy': 0.8 + 0.01 * task,
    'kl_at_mask': 0.1,
    'bayes_floor': 1.5,
    'attention_profile': [[0.1, 1.0, 0.5], [None, None, 0.0]],
    'trial_id': f'of trial {trial}',
    'environment': f'of trial {trial}',
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
  """How many values are wrong by field, with its tolerance."""
  rows = verify.compared(recorded, again, {record['environment'] for record in recorded} if here else ())
  return {row.field: (row.tolerance, row.wrong) for row in rows.itertuples() if row.wrong}


def _changed(index, **fields):
  records = _records()
  records[index].update(fields)
  return records


def _without(index, field):
  records = _records()
  del records[index][field]
  return records


def test_a_record_whose_environment_cannot_be_compared_is_a_difference(tmp_path):
  """Where the file of its environment is gone, lacks a field or is another than it was."""
  here = environment.environment(jax.devices())
  record = _record(environment=environment.keep(tmp_path, here))
  path = tmp_path / environment.FOLDER / f'{record["environment"]}.json'
  same = {record['environment']}
  assert verify._same_bits(tmp_path, [record]) == same
  elsewhere = _record(environment=environment.keep(tmp_path, here | {'cpu': 'another'}))
  assert verify._same_bits(tmp_path, [record, elsewhere]) == same
  for change in ({'platform': None}, {'packages': {}}, {'cpu': 'a third'}):
    path.write_text(json.dumps({name: value for name, value in (here | change).items() if value is not None}))
    with pytest.raises(verify.Differs, match='does not say where the record of .* came from'):
      verify._same_bits(tmp_path, [record])
  path.unlink()
  with pytest.raises(verify.Differs):
    verify._same_bits(tmp_path, [record])
  # Of anybody's making.
  with pytest.raises(verify.Differs):
    verify._same_bits(tmp_path, [record | {'environment': ['a', {}]}])


@pytest.mark.parametrize('here', [True, False])
def test_what_is_made_again_is_the_same(here):
  """Equal records are the same within every tolerance."""
  assert not _wrong(_records(), _records(), here)


TAMPERED = [
  (_changed(3, accuracy=0.80001), 'accuracy'),
  (_changed(2, kl_at_mask=_records()[2]['kl_at_mask'] + 1e-12), 'kl_at_mask'),
  (_changed(5, attention_profile=[[0.1, 1.0, 0.5], [0.9, 1.0, 0.0]]), 'attention_profile'),
  (_changed(1, trial_id='of another seed'), 'records'),
  (_changed(1, pretraining_id='of another seed'), 'pretraining_id'),
  (_changed(1, seed=1), 'seed'),
  (_without(4, 'accuracy'), 'accuracy'),
  (_without(0, 'bayes_floor'), 'bayes_floor'),
  (_changed(0, remark='of no tolerance'), 'remark'),
  (_records()[:-1], 'records'),
  (_records() + [_record(9)], 'records'),
  (_records() + _records()[:1], 'records'),
]


@pytest.mark.parametrize(('recorded', 'field'), TAMPERED)
def test_a_record_that_was_touched_is_found_where_it_came_from(recorded, field):
  """A number, a field, a record or a trial of another seed: in the same environment, where all is bit-equal."""
  (found,) = _wrong(recorded, _records(), here=True).items()
  assert found[0] == field and found[1][0] == 'bit-equal'


def test_elsewhere_settings_and_records_are_equal_all_the_same():
  """Whatever the environment, a lost field, record or trial and another seed are differences."""
  for recorded, field in TAMPERED[3:]:
    assert set(_wrong(recorded, _records(), here=False)) == {field}


ELSEWHERE = [
  ('bert', 'bayes_floor', 1.5, 1.4e-5, 1.6e-5),
  ('exact', 'kl_at_mask', 0.1, 0.9e-5, 1.1e-5),
  ('bert', 'kl_at_mask', 0.4, 0.13, 0.14),
  ('bert', 'kl_at_mask', 0.01, 0.019, 0.021),
  ('bert', 'train_loss', 2.0, -0.49, -0.51),
  ('bert', 'accuracy', 0.5, -0.09, -0.11),
  ('exact', 'accuracy', 0.5, 0.09, 0.11),
  ('bert', 'seed', 2**60, 0, 1),
  ('bert', 'of_no_tolerance', 1.0, 0.0, 1e-15),
]


@pytest.mark.parametrize(('model', 'field', 'value', 'near', 'far'), ELSEWHERE)
def test_elsewhere_a_number_is_within_the_tolerance_of_its_field(model, field, value, near, far):
  """Of 1 or of the larger number what is computed is; what is trained has more room, but for the exact model's own."""
  recorded = [_record(model=model, **{field: value})]
  moved = lambda by: [_record(model=model, **{field: value + by})]
  assert not _wrong(recorded, moved(near), here=False)
  assert _wrong(recorded, moved(far), here=False)[field][1] == 1
  if near:
    assert _wrong(recorded, moved(near), here=True)[field] == ('bit-equal', 1)


@pytest.mark.parametrize('value', [None, float('nan'), True, [0.8]])
def test_elsewhere_what_is_no_number_is_a_difference(value):
  """In place of a number, within every tolerance."""
  found = _wrong([_record(accuracy=1.0)], [_record(accuracy=value)], here=False)
  assert found == {'accuracy': ('accuracy', 1)}


def test_elsewhere_what_is_ordered_otherwise_is_not_compared():
  """The attention profile and the choice among starts; they have to be there all the same."""
  of_starts = dict(restart=1, restart_accuracies=[0.1, 0.9])
  recorded, again = [_record(**of_starts)], [_record(restart=0, restart_accuracies=[0.9, 0.1], attention_profile=None)]
  assert not _wrong(recorded, again, here=False)
  assert set(_wrong(recorded, again, here=True)) == {'restart', 'restart_accuracies', 'attention_profile'}
  del again[0]['attention_profile']
  assert _wrong(recorded, again, here=False)['attention_profile'][1] == 1


def test_each_record_is_compared_as_its_own_environment_asks():
  """Of a folder that two environments filled, those from here are bit-equal."""
  again = [record | {'accuracy': record['accuracy'] + 0.05} for record in _records()]
  rows = verify.compared(_records(), again, ['of trial 0']).set_index(['field', 'tolerance']).loc['accuracy']
  assert rows.loc['bit-equal', ['compared', 'wrong']].tolist() == [4, 4]
  assert rows.loc['accuracy', ['compared', 'wrong']].tolist() == [12, 0]
  assert rows.loc['accuracy', 'largest'] == pytest.approx(0.05)


@pytest.fixture
def folder(tmp_path, monkeypatch):
  """A folder with records of three trials, and what is run again of them: each with another accuracy."""
  config = prompt_vs_head.get_config('smoke')
  config.update(models=('exact',), methods=('head',), tasks_per_trial=1, num_trials=2)
  settings = registry.from_config(config)
  here = environment.keep(tmp_path, environment.environment(jax.devices()))
  of_trial = lambda trial: _record(0, model='exact', **trial.point._asdict(), trial_id=trial.id, environment=here)
  recorded = [of_trial(trial) for trial in list(sweep.trials(settings, tmp_path).values())[:3]]
  results.write(tmp_path, settings, recorded)
  run = []

  def fill(grid, numbers, *_):
    run.extend(numbers)
    chosen = [list(grid.values())[number] for number in numbers]
    monkeypatch.setattr(Trial, 'records', lambda trial: [of_trial(trial)] if trial in chosen else [])
    return []

  monkeypatch.setattr(sweep, 'fill', fill)
  return tmp_path, settings, recorded, run


@pytest.mark.parametrize(('text', 'numbers'), [('', [0, 1, 2]), ('2', [2]), ('1-3', [1, 2])])
def test_trials_are_those_on_record(folder, text, numbers):
  """All of them, or those that are named."""
  workdir, _, _, run = folder
  console = rich.console.Console(file=io.StringIO())
  verify.run(workdir, text, '', registry.SETTINGS, lambda settings: None, Reporter(console))
  assert run == numbers and f'{len(numbers)} records of {len(numbers)} trials' in console.file.getvalue()


def test_no_trial_on_record_is_refused_and_a_record_of_none_differs(folder):
  """Whichever trials are named."""
  workdir, settings, recorded, run = folder
  again = lambda text: verify.run(workdir, text, '', registry.SETTINGS, lambda settings: None, QUIET)
  with pytest.raises(SettingsError, match="^--trials is '3'; valid is numbers of trials on record$"):
    again('3')
  results.write(workdir, settings, [*recorded, recorded[0] | {'trial_id': ['of none']}])
  for text in ('', '1'):
    with pytest.raises(verify.Differs, match=r'is not what its settings make: records \(1 of . differ\)$'):
      again(text)
