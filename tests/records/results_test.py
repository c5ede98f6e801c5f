"""Merged records: what stands beside them, and what is refused."""

import json

import pytest

from configs import benchmark
from experiments.records import files, folders, results
from experiments.settings.fields import SettingsError
from experiments.studies import registry


def _benchmark(**changes):
  config = benchmark.get_config('smoke')
  config.update(changes)
  return registry.from_config(config)


def test_what_is_written_says_what_it_is_of(tmp_path):
  """Records come back with their schema, experiment, scale and seed; settings and environments stand beside them."""
  results.write(tmp_path, _benchmark(), [{'ratio': 2.0}], [{'commit': 'abc'}])
  (record,) = results.load(tmp_path)
  assert record == dict(schema_version=1, experiment='benchmark', scale='smoke', seed=0, ratio=2.0)
  assert files.read_json_lines(tmp_path / 'environment.jsonl') == [{'commit': 'abc'}]
  assert json.loads((tmp_path / 'config.json').read_text())['inference']['num_states'] == [3]
  folders.check_schema(tmp_path)


@pytest.mark.parametrize('other', ['environment', 'settings'])
def test_no_record_stands_beside_what_it_did_not_come_from(tmp_path, monkeypatch, other):
  """A failure while records are replaced leaves none."""
  results.write(tmp_path, _benchmark(), [{'ratio': 2.0}], [{'commit': 'abc'}])
  monkeypatch.setattr(files.os, 'replace', None)
  commit, settings = ('def', _benchmark()) if other == 'environment' else ('abc', _benchmark(seed=1))
  with pytest.raises(TypeError):
    results.write(tmp_path, settings, [{'ratio': 3.0}], [{'commit': commit}])
  assert not results.load(tmp_path)


def _digit(path):
  """Another last digit, so that JSON stays JSON."""
  content = bytearray(path.read_bytes())
  content[max(index for index, byte in enumerate(content) if chr(byte).isdigit())] ^= 1
  path.write_bytes(bytes(content))


_CHANGES = {
  'digit': (_digit, 'has other bytes than were written'),
  'cut': (lambda path: path.write_bytes(path.read_bytes()[:-9]), 'damaged|bytes'),
  'missing': (lambda path: path.unlink(), 'is missing'),
}


@pytest.mark.parametrize('how', _CHANGES)
@pytest.mark.parametrize('name', ['results.jsonl', 'environment.jsonl', 'config.json'])
def test_records_that_are_not_as_they_were_written_are_refused(name, how, tmp_path):
  """By a report and all else that reads them; a run sets all of it aside, with a word, and loses nothing of it."""
  results.write(tmp_path, _benchmark(), [{'ratio': 2.0}], [{'cpu': 2}])
  assert results.load(tmp_path) and results.set_aside_bad(tmp_path) == []
  change, words = _CHANGES[how]
  change(tmp_path / name)
  left = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
  with pytest.raises(SettingsError, match=words):
    results.load(tmp_path)
  (said,) = results.set_aside_bad(tmp_path)
  assert name in said and str(tmp_path / 'set-aside') in said
  assert {path.name: path.read_bytes() for path in (tmp_path / 'set-aside').iterdir()} == left
  assert results.load(tmp_path) == [] and [path.name for path in tmp_path.iterdir()] == ['set-aside']


def test_records_without_a_manifest_are_read_as_they_are(tmp_path):
  """Of a version before there were any, or of a process that is writing them."""
  results.write(tmp_path, _benchmark(), [{'ratio': 2.0}], [])
  (tmp_path / 'manifest.json').unlink()
  _digit(tmp_path / 'results.jsonl')
  assert results.load(tmp_path)[0]['ratio'] == 2.1


def test_records_that_are_replaced_while_they_are_read_are_no_damage(tmp_path, monkeypatch):
  """The manifest is then another than before."""
  results.write(tmp_path, _benchmark(), [{'ratio': 2.0}], [])
  read, looks = results.manifests.read, []

  def replaced(directory):
    found = read(directory)
    if not looks:
      looks.append(1)
      results.rewrite(tmp_path, _benchmark(), [{'ratio': 3.0}])
    return found

  monkeypatch.setattr(results.manifests, 'read', replaced)
  assert results.load(tmp_path)[0]['ratio'] == 2.0
  assert results.load(tmp_path)[0]['ratio'] == 3.0


@pytest.mark.parametrize('name', ['results.jsonl', 'trials/abc/records.jsonl', 'parts/abc/bert/records.jsonl'])
def test_records_of_another_schema_are_refused(name, tmp_path):
  """One sentence with the workdir and both versions; records from before there were versions count as 0."""
  for version in ({}, {'schema_version': 2}):
    files.append_json_line(tmp_path / name, {'schema_version': 1})
    files.append_json_line(tmp_path / name, version)
    with pytest.raises(SettingsError, match=rf'schema {version.get("schema_version", 0)}; valid is .* schema 1'):
      folders.check_schema(tmp_path)
    if 'abc' in name:
      # As it was written is an old version; as it was not, nobody knows.
      files.write_whole(tmp_path / name.replace('records', 'environment'), '')
      folders.write((tmp_path / name).parent, files.read_json_lines(tmp_path / name), {})
      with pytest.raises(SettingsError, match='schema'):
        folders.check_schema(tmp_path)
      _digit(tmp_path / name)
      folders.check_schema(tmp_path)
      (tmp_path / name).with_name('manifest.json').unlink()
    (tmp_path / name).unlink()
