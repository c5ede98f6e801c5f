"""Merged records: what stands beside them, and what is refused."""

import dataclasses
import json
import re
import time

import jax
import pytest
from run_cases import run_command
from settings_cases import settings_of

from experiments.records import environment, files, load, results
from experiments.settings.fields import SettingsError
from experiments.studies import registry


def _benchmark(**changes):
  return settings_of('smoke', 'benchmark', **changes)


def test_records_name_their_schema_and_experiment(tmp_path):
  """Records come back with their schema, experiment, scale and seed, and the settings stand beside them."""
  assert results.config(tmp_path) is None and results.load(tmp_path) == []
  results.write(tmp_path, [(_benchmark(), [{'ratio': 2.0}])])
  (record,) = results.load(tmp_path)
  assert record == dict(schema_version=2, experiment='benchmark', scale='smoke', seed=0, ratio=2.0)
  recorded = results.config(tmp_path)
  assert recorded['memory']['sizes'] == [0] and results.changed([recorded], [_benchmark()]) == []
  assert results.changed([recorded], [_benchmark(seed=1)]) == ['seed 0 (here 1)']


def _ratios(workdir):
  """The ratio of each record, and of which number of rounds it is."""
  return [(record['ratio'], record.get('config.repeats')) for record in results.load(workdir)]


def test_records_of_other_settings_stay(tmp_path):
  """With a column for each field in which settings differ; settings that are merged again replace their own records."""
  for ratio, repeats in ((2.0, 5), (3.0, 6), (4.0, 5)):
    results.write(tmp_path, [(_benchmark(repeats=repeats), [{'ratio': ratio}])])
  assert _ratios(tmp_path) == [(4.0, 5), (3.0, 6)]
  results.write(tmp_path, [(_benchmark(repeats=5, seed=1), [{'ratio': 5.0}])])
  assert _ratios(tmp_path) == [(5.0, 5), (4.0, 5), (3.0, 6)]
  assert [config['seed'] for config in results.configs(tmp_path)] == [1, 0, 0]


def test_settings_that_a_run_has_no_records_of_keep_those_on_file(tmp_path):
  results.write(tmp_path, [(_benchmark(repeats=5), [{'ratio': 2.0}])])
  results.write(tmp_path, [(_benchmark(repeats=6), [{'ratio': 3.0}]), (_benchmark(repeats=5), [])])
  assert _ratios(tmp_path) == [(3.0, 6), (2.0, 5)]


def test_a_run_that_has_begun_leaves_records_to_their_settings(tmp_path):
  """Records get the column when other settings are put beside theirs, and no other run takes them for its own."""
  results.write(tmp_path, [(_benchmark(repeats=5), [{'ratio': 2.0}])])
  for repeats in (6, 5):
    results.begin(tmp_path, [_benchmark(repeats=repeats)])
    assert _ratios(tmp_path) == [(2.0, 5)]
  results.write(tmp_path, [(_benchmark(repeats=6), [{'ratio': 3.0}])])
  assert _ratios(tmp_path) == [(3.0, 6), (2.0, 5)]


def test_many_settings_are_told_apart_within_seconds(tmp_path):
  """Comparing each record with each of 400 settings took eight."""
  rows = [{'ratio': float(number)} for number in range(12)]
  first = _benchmark()
  grid = [dataclasses.replace(first, seed=seed) for seed in range(400)]
  results.write(tmp_path, [(settings, rows) for settings in grid])
  begun = time.process_time()
  parts = results.parts(tmp_path, grid[0])
  assert time.process_time() - begun < 2
  assert [part.settings for part in parts] == grid
  assert [part.rows for part in parts] == [[12 * seed + number for number in range(12)] for seed in range(400)]


def test_a_failure_leaves_the_records_of_before(tmp_path, monkeypatch):
  """Merging the same settings, or others."""
  results.write(tmp_path, [(_benchmark(), [{'ratio': 2.0}])])
  monkeypatch.setattr(files.os, 'replace', None)
  for repeats in (5, 6):
    with pytest.raises(TypeError):
      results.write(tmp_path, [(_benchmark(repeats=repeats), [{'ratio': 3.0}])])
    assert [record['ratio'] for record in results.load(tmp_path)] == [2.0]


def test_settings_that_cannot_be_read_keep_their_records(tmp_path):
  """They may be of another version."""
  results.write(tmp_path, [(_benchmark(repeats=5), [{'ratio': 2.0}])])
  content = json.loads((tmp_path / 'config.json').read_text())
  (tmp_path / 'config.json').write_text(json.dumps({**content, 'field_of_another_version': 1}))
  results.write(tmp_path, [(_benchmark(repeats=6), [{'ratio': 3.0}])])
  assert _ratios(tmp_path) == [(3.0, 6), (2.0, 5)]


def test_settings_and_records_of_another_schema_are_refused(tmp_path):
  """Files without a version count as older ones."""
  files.write_whole(tmp_path / results.CONFIG_NAME, '{"schema_version": 3}')
  with pytest.raises(SettingsError, match='schema version of .*config.json'):
    results.config(tmp_path)
  files.write_json_lines(tmp_path / results.FILE_NAME, [{'schema_version': 2}, {}])
  with pytest.raises(SettingsError, match='schema version of .*results.jsonl'):
    results.load(tmp_path)


@pytest.mark.parametrize(
  'damage',
  [{'others': None}, {'others': 'x'}, {'others': [1, 2]}, {'others': [{}]}, {'scale': None}, {'experiment': 3}],
)
@pytest.mark.parametrize('mode', ['run', 'status', 'report', 'merge', 'verify'])
def test_damaged_settings_are_refused_in_a_sentence(tmp_path, mode, damage):
  """In every mode, before anything is written."""
  settings = settings_of('smoke', models=('exact',), methods=('head',))
  results.write(tmp_path, [(settings, [{'accuracy': 1.0, 'trial_id': 'x'}])])
  content = json.loads((tmp_path / 'config.json').read_text())
  (tmp_path / 'config.json').write_text(json.dumps(content | damage))
  before = files.tree(tmp_path).keys()
  of_grid = ['--config=prompt_vs_head:smoke', '--config.models=exact', '--config.methods=head'] * (mode != 'verify')
  code, _, error = run_command(*of_grid, f'--mode={mode}', f'--workdir={tmp_path}')
  assert code == 2 and re.fullmatch('error: .*config.json is damaged; valid are .*\n', error), error
  assert files.tree(tmp_path).keys() == before


def test_fits_of_a_trial_stay_until_they_are_made_again(tmp_path):
  """Though other fits of the trial are merged, of these settings or of others."""
  fit = lambda task, **more: dict(trial_id='x', fit_id=str(more), task=task, model='bert', method='head', **more)
  results.write(tmp_path, [(settings_of('smoke'), [fit(0), fit(1)])])
  slow = settings_of('smoke', head__learning_rate=0.02)
  results.write(tmp_path, [(slow, [fit(0, accuracy=1.0)]), (settings_of('smoke'), [fit(1, accuracy=0.5)])])
  found = [(row['head.learning_rate'], row['task'], row.get('accuracy')) for row in results.load(tmp_path)]
  assert found == [(0.02, 0, 1.0), (0.01, 1, 0.5), (0.01, 0, None)]


def test_one_of_several_settings_has_records(tmp_path):
  """They are shown by their own settings, and not by those of a run that was killed."""
  results.write(tmp_path, [(_benchmark(repeats=5), [{'ratio': 2.0}])])
  results.begin(tmp_path, [_benchmark(repeats=6)])
  (part,) = results.parts(tmp_path, _benchmark(repeats=6))
  assert (part.settings.repeats, part.point, part.rows) == (5, {'config.repeats': 5}, [0])


def test_what_is_gone_stays_on_file_and_is_not_shown(tmp_path):
  """Settings with a field's one value of old are those without it; with another value they are refused."""
  settings = settings_of('smoke')
  results.write(tmp_path, [(settings, [dict(trial_id='x', task=0, method='joint'), dict(trial_id='x', task=1)])])
  content = json.loads((tmp_path / 'config.json').read_text())
  content['masks']['joint'], content['methods'] = 2, [*content['methods'], 'joint']
  (tmp_path / 'config.json').write_text(json.dumps(content))
  assert registry.from_record(results.config(tmp_path)) == settings
  results.write(tmp_path, [(settings, [dict(trial_id='x', task=2)])])
  assert [row['task'] for row in results.load(tmp_path)] == [2, 1]
  assert '"method": "joint"' in (tmp_path / 'results.jsonl').read_text()
  content['masks']['joint'] = 3
  (tmp_path / 'config.json').write_text(json.dumps(content))
  with pytest.raises(SettingsError, match='^masks.joint'):
    registry.from_record(results.config(tmp_path))


def test_records_of_several_settings_are_numbered_as_they_are_loaded(tmp_path):
  results.write(tmp_path, [(_benchmark(repeats=5), [{'ratio': 2.0, 'method': 'joint'}, {'ratio': 3.0}])])
  results.begin(tmp_path, [_benchmark(repeats=6)])
  (part,) = results.parts(tmp_path, _benchmark(repeats=6))
  assert (part.rows, _ratios(tmp_path)) == ([0], [(3.0, 5)])


@pytest.mark.parametrize(
  'damage',
  [{'hmm': None}, {'seed': [[1]]}, {'seed': [{}]}, {'seed': float('nan')}, {'pretrain': 1e999}, {'x': {}}],
  ids=str,
)
def test_settings_with_damaged_fields_keep_their_records(tmp_path, damage):
  """They may hold any JSON; and a fit that is made again stands once."""
  settings = settings_of('smoke')
  rows = [dict(trial_id='x', fit_id='y', task=task, model='bert', method='head') for task in (0, 1)]
  results.write(tmp_path, [(settings, rows)])
  content = json.loads((tmp_path / 'config.json').read_text())
  (tmp_path / 'config.json').write_text(json.dumps(content | damage))
  results.write(tmp_path, [(settings, [rows[1] | {'accuracy': 1.0}])])
  assert [(row['task'], row.get('accuracy')) for row in results.load(tmp_path)] == [(1, 1.0), (0, None)]


def test_records_are_a_frame_with_their_environment(tmp_path):
  """A row for each record in order; of a field that both have the record's own counts."""
  there = environment.environment(jax.devices())
  made = environment.keep(tmp_path, there)
  results.write(
    tmp_path, [(_benchmark(), [{'value': value, 'cpu': 'own', 'environment': made} for value in (2.0, 1.0)])]
  )
  records = load(str(tmp_path), environment=True)
  assert list(records['value']) == [2.0, 1.0] and set(records['cpu']) == {'own'}
  assert set(records['commit']) == {there['commit']}


def test_a_missing_folder_is_refused(tmp_path):
  assert load(tmp_path).empty
  with pytest.raises(SettingsError, match='^workdir is .*none'):
    load(tmp_path / 'none')


def test_records_of_a_kind_are_a_frame_without_the_columns_of_others(tmp_path):
  results.write(tmp_path, [(_benchmark(), [{'claim': 1}, {'gap': 0.5}])])
  claims = load(tmp_path, having='claim')
  assert list(claims['claim']) == [1] and 'gap' not in claims


def test_a_plan_on_record_stays(tmp_path):
  """Though a later run of the same settings has another one: what was expected was written down first."""
  settings = settings_of('smoke')
  assert settings.plan
  results.write(tmp_path, [(settings, [dict(trial_id='x', task=0)])])
  later = dataclasses.replace(settings, plan=settings.plan[:1])
  results.begin(tmp_path, [later])
  assert results.planned(tmp_path, later).plan == settings.plan
