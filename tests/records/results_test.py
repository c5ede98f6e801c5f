"""Merged records: which stay, which are made again, and what is refused."""

import dataclasses
import json

import pytest
from run_cases import QUIET, run_command
from settings_cases import settings_of

from experiments.records import files, results
from experiments.runtime.progress import Reporter
from experiments.settings.fields import SettingsError
from experiments.studies import registry


def _benchmark(**changes):
  return settings_of('smoke', 'benchmark', **changes)


def _write(workdir, ratio, **changes):
  """Merge a record of a benchmark."""
  results.write(workdir, [(_benchmark(**changes), [{'ratio': ratio}])], QUIET)


def _ratios(workdir):
  """The ratio of each record, and of which number of rounds it is."""
  return [(record['ratio'], record.get('config.repeats')) for record in results.load(workdir)]


def _change(workdir, damage):
  path = workdir / 'config.json'
  path.write_text(json.dumps(json.loads(path.read_text()) | damage))


def test_records_name_their_schema_and_experiment(tmp_path):
  """Records come back with their schema, experiment, scale and seed, and the settings stand beside them."""
  assert results.configs(tmp_path) == [] and results.load(tmp_path) == []
  _write(tmp_path, 2.0)
  (record,) = results.load(tmp_path)
  assert record == dict(schema_version=2, experiment='benchmark', scale='smoke', seed=0, ratio=2.0)
  assert registry.from_record(results.configs(tmp_path)[0]) == _benchmark()
  said = results.other_settings(tmp_path, [_benchmark(seed=1, time_budget=9.0)])
  assert 'other settings: seed=0;' in said and results.other_settings(tmp_path, [_benchmark()]) is None


def test_records_of_other_settings_stay(tmp_path):
  """With a column for each field in which settings differ; settings that are merged again replace their own records."""
  for ratio, repeats in ((2.0, 5), (3.0, 6), (4.0, 5)):
    _write(tmp_path, ratio, repeats=repeats)
  assert _ratios(tmp_path) == [(4.0, 5), (3.0, 6)]
  _write(tmp_path, 5.0, repeats=5, seed=1)
  assert _ratios(tmp_path) == [(5.0, 5), (4.0, 5), (3.0, 6)]


def test_records_are_of_the_settings_that_were_there(tmp_path):
  """Though others have begun since, and have no records yet, or an empty merge; a study shows those of its settings."""
  _write(tmp_path, 2.0, repeats=5)
  for repeats in (6, 7, 5):
    results.begin(tmp_path, [_benchmark(repeats=repeats)])
  results.write(tmp_path, [(_benchmark(repeats=6), [{'ratio': 3.0}]), (_benchmark(repeats=5), [])], QUIET)
  assert _ratios(tmp_path) == [(3.0, 6), (2.0, 5)]
  shown = [results.asked_for(tmp_path, _benchmark(repeats=repeats)) for repeats in (5, 6, 7)]
  assert [[record['ratio'] for record in records] for records in shown] == [[2.0], [3.0], []]


def test_settings_and_records_of_another_schema_are_refused(tmp_path):
  """Files without a version count as older ones."""
  files.write_whole(tmp_path / results.CONFIG_NAME, '{"schema_version": 3}')
  with pytest.raises(SettingsError, match='schema version of .*config.json'):
    results.configs(tmp_path)[0]
  files.write_json_lines(tmp_path / results.FILE_NAME, [{'schema_version': 2}, {}])
  with pytest.raises(SettingsError, match='schema version of .*results.jsonl'):
    results.load(tmp_path)


@pytest.mark.parametrize(
  'damage', [{'others': 3}, {'others': [1]}, {'others': [{}]}, {'experiment': 3}, {'hmm': None}, {'x': {}}]
)
@pytest.mark.parametrize('mode', ['run', 'status', 'report', 'verify'])
def test_damaged_settings_are_refused_in_a_sentence(tmp_path, mode, damage):
  """In every mode, before anything is written."""
  settings = settings_of('smoke', models=('exact',), methods=('head',))
  results.write(tmp_path, [(settings, [{'accuracy': 1.0, 'trial_id': 'x'}])], QUIET)
  _change(tmp_path, damage)
  before = files.tree(tmp_path).keys()
  of_grid = ['--config=prompt_vs_head:smoke', '--config.models=exact', '--config.methods=head'] * (mode != 'verify')
  code, _, error = run_command(*of_grid, f'--mode={mode}', f'--workdir={tmp_path}')
  assert code == 2 and error.count('\n') == 1
  assert files.tree(tmp_path).keys() == before


def test_fits_of_a_trial_stay_until_they_are_made_again(tmp_path):
  """Though other fits of the trial are merged, of these settings or of others."""
  fit = lambda task, **more: dict(trial_id='x', fit_id=str(more), task=task, model='bert', method='head', **more)
  results.write(tmp_path, [(settings_of('smoke'), [fit(0), fit(1)])], QUIET)
  slow = settings_of('smoke', head__learning_rate=0.02)
  results.write(tmp_path, [(slow, [fit(0, accuracy=1.0)]), (settings_of('smoke'), [fit(1, accuracy=0.5)])], QUIET)
  found = [(row['head.learning_rate'], row['task'], row.get('accuracy')) for row in results.load(tmp_path)]
  assert found == [(0.02, 0, 1.0), (0.01, 1, 0.5), (0.01, 0, None)]


def test_what_is_gone_stays_on_file_and_is_not_shown(tmp_path):
  """Settings with a field's one value of old are those without it; with another value they are refused."""
  settings = settings_of('smoke')
  results.write(tmp_path, [(settings, [dict(trial_id='x', task=0, method='joint'), dict(trial_id='x', task=1)])], QUIET)
  masks = dataclasses.asdict(settings.masks)
  _change(tmp_path, {'masks': masks | {'joint': 2}, 'methods': [*settings.methods, 'joint']})
  assert registry.from_record(results.configs(tmp_path)[0]) == settings
  results.write(tmp_path, [(settings, [dict(trial_id='x', task=2)])], QUIET)
  assert [row['task'] for row in results.load(tmp_path)] == [2, 1]
  assert '"method": "joint"' in (tmp_path / 'results.jsonl').read_text()
  # Which decides no record.
  _change(tmp_path, {'masks': masks, 'fast_compilation': True})
  assert registry.from_record(results.configs(tmp_path)[0]) == settings
  _change(tmp_path, {'masks': masks | {'joint': 3}})
  with pytest.raises(SettingsError, match='masks.joint is 3'):
    results.begin(tmp_path, [settings])


def test_corrupt_records_are_set_aside_and_said(tmp_path, capsys):
  """A merge makes them again."""
  (tmp_path / results.FILE_NAME).write_text('{')
  results.write(tmp_path, [(settings_of('smoke'), [dict(trial_id='x', task=0)])], Reporter())
  assert f'{results.FILE_NAME}.corrupt' in capsys.readouterr().out
  assert [row['task'] for row in results.load(tmp_path)] == [0]


def test_records_of_no_trial_of_the_settings_are_not_verified(tmp_path):
  """The folder is refused, not --trials, which nobody gave."""
  settings = settings_of('smoke', models=('exact',), methods=('head',))
  results.write(tmp_path, [(settings, [{'accuracy': 1.0, 'trial_id': 'x'}])], QUIET)
  results.begin(tmp_path, [settings])
  code, _, error = run_command('--mode=verify', f'--workdir={tmp_path}')
  assert code == 2 and '--workdir is' in error


def test_a_plan_on_record_stays(tmp_path):
  """Though a later run of the same settings has another one: what was expected was written down first."""
  settings = settings_of('smoke')
  assert settings.plan
  results.write(tmp_path, [(settings, [dict(trial_id='x', task=0)])], QUIET)
  later = dataclasses.replace(settings, plan=settings.plan[:1])
  results.begin(tmp_path, [later])
  assert results.planned(tmp_path, later).plan == settings.plan
