"""Work directories in an object store: a bucket in memory."""

from bucket_cases import bucket
import pytest

from experiments import main
from experiments.records import files, results
from experiments.runtime import locks


@pytest.mark.slow
def test_a_run_in_a_bucket_has_the_records_of_a_local_one(tmp_path):
  """Bit for bit, and a second run makes again what is corrupt; the figure is beside them, and nothing is locked."""
  command = ['main', '--config=prompt_vs_head:smoke', '--config.models=exact', '--config.methods=head']
  command += ['--config.distribution=mess3', '--config.compilation_cache=']
  there = bucket()
  for workdir in (tmp_path, there):
    assert main.main([*command, f'--workdir={workdir}']) == 0
  assert (there / 'figure_3_left.png').exists()
  assert not [name for name in files.tree(there) if locks.NAME in name]
  arrays = next(path for name, path in files.tree(there).items() if name.endswith('.npz'))
  arrays.write_bytes(b'other')
  assert main.main([*command, f'--workdir={there}']) == 0
  assert arrays.with_name(f'{arrays.name}.corrupt').read_bytes() == b'other'
  assert (there / results.FILE_NAME).read_bytes() == (tmp_path / results.FILE_NAME).read_bytes()
