"""Files of others, read without trust: arrays and JSON, nothing that is run, nothing larger than it may be."""

import json
import math
import pathlib
from typing import Any, IO
import zipfile

import numpy as np

from experiments.records import files

# Bytes of all arrays of a file.
MOST_ARRAYS = 2**30


def arrays(path: pathlib.Path) -> dict[str, np.ndarray]:
  """The arrays of an .npz file by their names, none of objects.

  What the archive and the arrays' headers declare is compared before anything is allocated. Raises ValueError, or what
  a damaged archive raises.
  """
  if not zipfile.is_zipfile(path):
    raise ValueError('it holds one array, or none; valid are arrays by name, as np.savez writes them')
  with zipfile.ZipFile(path) as archive:
    members = archive.infolist()
    declared = sum(member.file_size for member in members)
    if declared > MOST_ARRAYS:
      raise ValueError(f'it declares {declared:,} bytes; valid are at most {MOST_ARRAYS:,}')
    for member in members:
      with archive.open(member) as file:
        _check_header(member, file)
  with np.load(path, allow_pickle=False) as content:
    return dict(content)


def _check_header(member: zipfile.ZipInfo, file: IO[bytes]) -> None:
  """Raises ValueError where the shape that an array declares is not that of its bytes."""
  major, minor = np.lib.format.read_magic(file)
  readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
  if (major, minor) not in readers:
    raise ValueError(f'{member.filename} has version {major}.{minor}; valid are 1.0 and 2.0')
  shape, _, dtype = readers[major, minor](file)
  # Python's numbers do not overflow.
  size, there = math.prod(shape) * dtype.itemsize, member.file_size - file.tell()
  if size != there:
    raise ValueError(f'{member.filename} declares {shape} of {dtype}, {size:,} bytes, and has {there:,}')


def json_value(path: pathlib.Path, encoding: str = 'utf-8', **hooks: Any) -> Any:
  """The value in a JSON file; raises ValueError if it is larger than `files.MOST_JSON` or nested too deep."""
  try:
    return json.loads(files.read_bytes(path).decode(encoding), **hooks)
  except RecursionError:
    raise ValueError('it is nested too deep')
