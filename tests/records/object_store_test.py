"""Work directories in an object store: a bucket in memory, behind the library that reaches real ones."""

import fsspec
import fsspec.implementations.memory
import pytest

from experiments import main
from experiments.records import environment, files, results
from experiments.runtime import storage


class _Bucket(fsspec.implementations.memory.MemoryFileSystem):
  """gs:// in this process alone."""

  protocol = ('gcs', 'gs')
  store: dict = {}
  pseudo_dirs: list = ['']
  closed = False

  def __init__(self, finalize_on_close=False, **options):
    # So the path library asks for objects that are there once they are closed.
    assert finalize_on_close
    super().__init__(**options)

  @classmethod
  def _strip_protocol(cls, path):
    path = path.removeprefix('gs://').strip('/')
    return f'/{path}' if path else ''

  def _open(self, path, mode='rb', **options):
    if self.closed and mode == 'wb':
      raise ConnectionError('no such bucket')
    return super()._open(path, mode, **options)


@pytest.fixture(scope='module')
def bucket():
  fsspec.register_implementation('gcs', _Bucket, clobber=True)
  return storage.located('gs://bucket')


def test_a_file_of_an_object_store_is_one_object(bucket):
  """It is written whole, without a partial one to rename; replaced, read, extended and removed as a local one is."""
  path = bucket / 'one' / 'rows.jsonl'
  assert files.read_json_lines(path) == []
  files.write_json_lines(path, [{'a': 1}])
  files.append_json_line(path, {'a': 2})
  assert files.read_json_lines(path) == [{'a': 1}, {'a': 2}]
  assert str(path) == 'gs://bucket/one/rows.jsonl' and list(path.parent.iterdir()) == [path]
  files.remove(path)
  assert not path.exists()


def test_in_an_object_store_what_is_corrupt_is_copied(bucket):
  """There are no names to change, and no directories."""
  for step in ('1', '2'):
    files.write_whole(bucket / 'steps' / step / 'state' / 'file', step)
  files.rename_corrupt(bucket / 'steps' / '2')
  assert files.tree(bucket / 'steps').keys() == {'1/state/file', '2.corrupt/state/file'}
  assert files.read_bytes(bucket / 'steps' / '2.corrupt' / 'state' / 'file') == b'2'


def test_a_bucket_that_cannot_be_written_is_refused(bucket, monkeypatch, capsys):
  """With what the store said, whatever its class; a check of a good one leaves nothing behind."""
  storage.check_writable(bucket / 'two')
  assert not (bucket / 'two').exists()
  monkeypatch.setattr(_Bucket, 'closed', True)
  assert main.main(['main', '--config=prompt_vs_head:smoke', f'--workdir={bucket}/two', '--config.models=exact']) == 2
  said = capsys.readouterr().err
  assert "--workdir is 'gs://bucket/two'" in said and 'ConnectionError: no such bucket' in said


def test_a_run_in_a_bucket_has_the_records_of_a_local_one(bucket, tmp_path, without_optimisation):
  """Bit for bit, and a second run finds them; the figure and the table stand beside them."""
  command = ['main', '--config=prompt_vs_head:smoke', '--config.models=exact', '--config.methods=head']
  command += ['--config.num_states=3', '--config.downstream.num_train=64', '--config.compilation_cache=']
  there = bucket / 'run'
  for workdir in (tmp_path, there, there):
    assert main.main([*command, f'--workdir={workdir}']) == 0
  assert (there / results.FILE_NAME).read_bytes() == (tmp_path / results.FILE_NAME).read_bytes()
  names = {path.name for path in tmp_path.iterdir()}
  assert {path.name for path in there.iterdir()} == names and 'figure_3_left.png' in names
  assert len(list((there / environment.FOLDER).iterdir())) == 1
