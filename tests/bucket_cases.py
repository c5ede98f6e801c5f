"""An object store in memory, behind the library that reaches real ones."""

import fsspec
import fsspec.implementations.memory

from experiments.runtime import storage


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


def bucket():
  """A folder of the bucket."""
  fsspec.register_implementation('gcs', _Bucket, clobber=True)
  return storage.located('gs://bucket/run')
