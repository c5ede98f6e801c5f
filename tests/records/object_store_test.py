"""Work directories in an object store: a bucket in memory, behind the library that reaches real ones."""

import fsspec
import fsspec.implementations.memory
import pytest

from experiments import main
from experiments.records import files, results
from experiments.runtime import locks, storage


class _Bucket(fsspec.implementations.memory.MemoryFileSystem):
  """gs:// in this process only."""

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


@pytest.mark.slow
def test_a_run_in_a_bucket_has_the_records_of_a_local_one(tmp_path, without_optimisation):
  """Bit for bit, and a second run makes again what is corrupt; the figure is beside them, and nothing is locked."""
  command = ['main', '--config=prompt_vs_head:smoke', '--config.models=exact', '--config.methods=head']
  command += ['--config.distribution=mess3', '--config.downstream.num_train=64', '--config.compilation_cache=']
  fsspec.register_implementation('gcs', _Bucket, clobber=True)
  there = storage.located('gs://bucket/run')
  for workdir in (tmp_path, there):
    assert main.main([*command, f'--workdir={workdir}']) == 0
  assert (there / 'figure_3_left.png').exists()
  assert not [name for name in files.tree(there) if locks.NAME in name]
  arrays = next(path for name, path in files.tree(there).items() if name.endswith('.npz'))
  arrays.write_bytes(b'other')
  assert main.main([*command, f'--workdir={there}']) == 0
  assert arrays.with_name(f'{arrays.name}.corrupt').read_bytes() == b'other'
  assert (there / results.FILE_NAME).read_bytes() == (tmp_path / results.FILE_NAME).read_bytes()
