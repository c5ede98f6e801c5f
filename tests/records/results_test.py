"""Merged records: what stands beside them, and what is refused."""

import jax
import pytest
from settings_cases import settings_of

from experiments.records import environment, files, load, results
from experiments.settings.fields import SettingsError


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


def test_no_record_stands_beside_settings_of_others(tmp_path, monkeypatch):
  """A failure while the records of other settings are replaced leaves none; of the same settings, those of before."""
  results.write(tmp_path, [(_benchmark(), [{'ratio': 2.0}])])
  monkeypatch.setattr(files.os, 'replace', None)
  for seed, kept in ((0, [2.0]), (1, [])):
    with pytest.raises(TypeError):
      results.write(tmp_path, [(_benchmark(seed=seed), [{'ratio': 3.0}])])
    assert [record['ratio'] for record in results.load(tmp_path)] == kept


def test_settings_and_records_of_another_schema_are_refused(tmp_path):
  """Files without a version count as older ones."""
  files.write_whole(tmp_path / results.CONFIG_NAME, '{"schema_version": 3}')
  with pytest.raises(SettingsError, match='schema version of .*config.json'):
    results.config(tmp_path)
  files.write_json_lines(tmp_path / results.FILE_NAME, [{'schema_version': 2}, {}])
  with pytest.raises(SettingsError, match='schema version of .*results.jsonl'):
    results.load(tmp_path)


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
