"""Manifests: the size and the SHA-256 of files, written beside them, and what differs when they are read back.

A manifest says what bytes were written, and so finds what a disk, a copy or a hand has changed; whoever may change the
manifest as well is not found. Its names are compared with those that there are, and open no file.
"""

import functools
import hashlib
import json
import pathlib
from typing import Any

from experiments.records import files, loading
from experiments.runtime import storage

NAME = 'manifest.json'

# The size and the SHA-256 of a file.
Entry = dict[str, Any]

_CHUNK = 2**20
# Bytes of a file whose digest is remembered: smaller ones are soon read, and may be written twice in a clock's tick.
_LARGE = 2**22
_OF = 'of'


def entry(path: pathlib.Path) -> Entry:
  """Of a file; of a large one that this process has read before, unless it was written since, as it was then."""
  if storage.is_object(path) or (stat := path.stat()).st_size < _LARGE:
    return _entry(path)
  return dict(_remembered(path, stat.st_ino, stat.st_size, stat.st_mtime_ns))


@functools.cache
def _remembered(path: pathlib.Path, *_: int) -> Entry:
  return _entry(path)


def _entry(path: pathlib.Path) -> Entry:
  """Read a part at a time."""
  sha256, size = hashlib.sha256(), 0
  with path.open('rb') as file:
    while chunk := file.read(_CHUNK):
      sha256.update(chunk)
      size += len(chunk)
  return {'size': size, 'sha256': sha256.hexdigest()}


def entry_of(data: bytes) -> Entry:
  """Of what a file holds or will hold."""
  return {'size': len(data), 'sha256': hashlib.sha256(data).hexdigest()}


def tree_entries(directory: pathlib.Path) -> dict[str, Entry]:
  """Of every file below a directory but its own manifest, by its path from there."""
  return {name: entry(path) for name, path in files.tree(directory).items() if name != NAME}


def write(directory: pathlib.Path, content: dict[str, Any], of: str = '') -> None:
  """The manifest of a directory; without a last line's end, so that none can be cut and still be read.

  With `of`, the name of what its files are of, a copy of the directory elsewhere is not as it was written.
  """
  content = {**content, _OF: of} if of else content
  files.write_whole(directory / NAME, json.dumps(content, indent=1, sort_keys=True))


def read(directory: pathlib.Path, of: str = '') -> dict[str, Any] | None:
  """The manifest of a directory, None where it has none; raises ValueError where it cannot be read, or is of another
  than `of`."""
  path = directory / NAME
  if not path.exists():
    return None
  try:
    content = loading.json_value(path)
  except (OSError, ValueError) as error:
    raise ValueError(f'{NAME} cannot be read ({type(error).__name__})')
  if not isinstance(content, dict):
    raise ValueError(f'{NAME} is no manifest')
  whose = content.pop(_OF, of)
  if of and whose != of:
    raise ValueError(f'its files are of {whose}')
  return content


def fault(recorded: dict[str, Any], found: dict[str, Entry]) -> str | None:
  """What is wrong with files of which a manifest has been recorded, in words that name the first; None: nothing."""
  for name in sorted({*recorded, *found}):
    there, one = recorded.get(name), found.get(name)
    if there == one:
      continue
    if one is None:
      return f'{name} is missing'
    if there is None:
      return f'{name} was not written with it'
    size = there.get('size') if isinstance(there, dict) else None
    if one['size'] != size:
      return f'{name} has {one["size"]} bytes, {size} were written'
    return f'{name} has other bytes than were written, by their SHA-256'
  return None
