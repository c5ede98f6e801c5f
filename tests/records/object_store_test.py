"""Work directories in an object store: a bucket in memory, behind the library that reaches real ones."""

import fsspec
import fsspec.implementations.memory
import pytest

from experiments import main
from experiments.records import environment, files, results
from experiments.runtime import locks, storage


class _Bucket(fsspec.implementations.memory.MemoryFileSystem):
  """gs:// in this process alone."""

  protocol = ('gcs', 'gs')
  store: dict = {}
  pseudo_dirs: list = ['']

  def __init__(self, finalize_on_close=False, **options):
    # So the path library asks for objects that are there once they are closed.
    assert finalize_on_close
    super().__init__(**options)

  @classmethod
  def _strip_protocol(cls, path):
    path = path.removeprefix('gs://').strip('/')
    return f'/{path}' if path else ''


@pytest.fixture(scope='module')
def bucket():
  fsspec.register_implementation('gcs', _Bucket, clobber=True)
  return storage.located('gs://bucket')


def test_a_file_of_an_object_store_is_one_object(bucket):
  """It is written whole, without a partial one to rename; extended, copied where it is corrupt, and removed."""
  path = bucket / 'one' / 'rows.jsonl'
  files.append_json_line(path, {'a': 1})
  files.append_json_line(path, {'a': 2})
  assert files.read_json_lines(path) == [{'a': 1}, {'a': 2}] and list(path.parent.iterdir()) == [path]
  files.write_whole(bucket / 'two' / 'file', 'text')
  files.rename_corrupt(bucket / 'two')
  assert files.tree(bucket).keys() == {'one/rows.jsonl', 'two.corrupt/file'}
  files.remove(path)
  storage.check_writable(bucket / 'one')
  assert files.tree(bucket).keys() == {'two.corrupt/file'}


def test_a_run_in_a_bucket_has_the_records_of_a_local_one(bucket, tmp_path, without_optimisation):
  """Bit for bit, and a second run finds them; the figure stands beside them, and nothing is locked."""
  command = ['main', '--config=prompt_vs_head:smoke', '--config.models=exact', '--config.methods=head']
  command += ['--config.num_states=3', '--config.downstream.num_train=64', '--config.compilation_cache=']
  there = bucket / 'run'
  for workdir in (tmp_path, there, there):
    assert main.main([*command, f'--workdir={workdir}']) == 0
  assert (there / results.FILE_NAME).read_bytes() == (tmp_path / results.FILE_NAME).read_bytes()
  names = {path.name for path in tmp_path.iterdir()}
  assert {path.name for path in there.iterdir()} == names and 'figure_3_left.png' in names
  assert len(list((there / environment.FOLDER).iterdir())) == 1
  assert not [name for name in files.tree(there) if locks.NAME in name]
