"""Files that are written whole or not at all."""

import json
import resource

import pytest

from experiments.records import files
from experiments.runtime.storage import StorageError


def test_a_full_disk_keeps_the_old_file(tmp_path):
  """The system refuses to lengthen files; no partial file stays."""
  path, (soft, hard) = tmp_path / 'file', resource.getrlimit(resource.RLIMIT_FSIZE)
  files.write_whole(path, 'old')
  resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
  try:
    with pytest.raises(StorageError):
      files.write_whole(path, 'a new and longer content')
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
  assert path.read_text() == 'old' and [*tmp_path.iterdir()] == [path]


def test_a_sealed_file_is_read_only_with_its_seal(tmp_path):
  """One of another content, or without a seal, is corrupt."""
  path = tmp_path / 'record.json'
  files.write_sealed(path, {'accuracy': 0.5})
  assert files.read_sealed(path) == {'accuracy': 0.5}
  sealed = files.read_json(path)
  for content in (sealed | {'accuracy': 0.75}, {'accuracy': 0.5}):
    path.write_text(json.dumps(content))
    with pytest.raises(files.Corrupt):
      files.read_sealed(path)


def test_a_nan_is_refused_before_writing(tmp_path):
  with pytest.raises(ValueError, match='JSON'):
    files.write_json_lines(tmp_path / 'rows', [{'a': float('nan')}])
  assert not [*tmp_path.iterdir()]


def test_a_partial_file_follows_no_link_and_may_be_lost(tmp_path, monkeypatch):
  """None that is planted under the name of an earlier one; a run that begins removes partial files, live ones too."""
  path, partials = tmp_path / 'file', []
  monkeypatch.setattr(files.os, 'fsync', lambda _: partials.extend(tmp_path.glob('.*')))
  files.write_whole(path, 'first')
  partials[0].symlink_to(tmp_path / 'victim')
  files.write_whole(path, 'second')
  assert {*tmp_path.iterdir()} == {path, partials[0]}
  sweep = map(files.remove_partials, [tmp_path])
  monkeypatch.setattr(files.os, 'fsync', lambda _: next(sweep, None))
  files.write_whole(path, 'third')
  assert path.read_text() == 'third' and [*tmp_path.iterdir()] == [path]
