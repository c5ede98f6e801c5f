"""Files that are written whole or not at all."""

import pytest

from experiments.records import files
from experiments.settings.fields import SettingsError


def test_write_whole_keeps_the_old_file_when_the_write_fails(tmp_path, monkeypatch):
  """A failure before the replacement leaves the old content in place."""
  path = tmp_path / 'file'
  files.write_whole(path, 'old')

  def fail(*_):
    raise OSError('disk full')

  monkeypatch.setattr(files.os, 'fsync', fail)
  with pytest.raises(OSError, match='disk full'):
    files.write_whole(path, 'new')
  assert path.read_text() == 'old'


class _Stopped(BaseException):
  pass


@pytest.mark.parametrize('error', [OSError, _Stopped])
def test_no_partial_file_stays(tmp_path, monkeypatch, error):
  """Whatever ends a write, a signal among it."""

  def fail(*_):
    raise error

  monkeypatch.setattr(files.os, 'fsync', fail)
  with pytest.raises(error):
    files.write_whole(tmp_path / 'file', 'new')
  assert not list(tmp_path.iterdir())


def test_json_lines_round_trip_every_bit(tmp_path):
  """Floats come back as they went, and a NaN is refused before anything is written."""
  rows = [{'a': 0.1 + 0.2, 'b': 1e-300}, {'a': 3, 'b': 'x'}]
  files.write_json_lines(tmp_path / 'rows', rows)
  assert files.read_json_lines(tmp_path / 'rows') == rows
  with pytest.raises(ValueError, match='JSON'):
    files.write_json_lines(tmp_path / 'rows', [{'a': float('nan')}])
  assert files.read_json_lines(tmp_path / 'rows') == rows
  assert files.read_json_lines(tmp_path / 'none') == []


def test_a_line_is_added_to_those_that_are_there(tmp_path, monkeypatch):
  """The first line makes the file; a failure while a line is added leaves those before it."""
  path = tmp_path / 'lines'
  files.append_json_line(path, {'a': 1})
  files.append_json_line(path, {'a': 2})
  monkeypatch.setattr(files.os, 'replace', None)
  with pytest.raises(TypeError):
    files.append_json_line(path, {'a': 3})
  assert files.read_json_lines(path) == [{'a': 1}, {'a': 2}]


@pytest.mark.parametrize('content', [b'{"a": 1}\n{"a": ', b'{"a": 1}\n\n', b'\xff\xfe', b'[1, 2]\n'])
def test_a_damaged_file_is_named(tmp_path, content):
  """Lines that are cut off, empty, no text or no object are one sentence with the file's name, not a traceback."""
  path = tmp_path / 'results.jsonl'
  path.write_bytes(content)
  with pytest.raises(SettingsError, match=r"results.jsonl' is damaged; valid is "):
    files.read_json_lines(path)
