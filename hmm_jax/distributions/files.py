"""A distribution of text in a file, .json or .npz, read without trust: nothing is unpickled or run.

A file holds the fields of an `HMM`, those of a `MemoryHMM`, or `transition_matrices` T [V, S, S] with or without
`initial_probs`, as `from_transition_matrices` takes them: those of a `Process`, which is loaded. In .json they are
nested lists in an object, beside which `$schema` may stand, which is not read. The schema is
docs/schemas/distribution.json, an example docs/examples/mess3.json.
"""

from collections.abc import Iterator, Mapping
import contextlib
import json
import os
import pathlib
import reprlib
import stat
import textwrap
from typing import Any, BinaryIO
import zipfile

import numpy as np
from numpy.typing import ArrayLike

from hmm_jax._support import arguments, float64
from hmm_jax.distributions.hmm import HMM
from hmm_jax.distributions.labelled import from_transition_matrices, Process
from hmm_jax.distributions.memory_hmm import MemoryHMM

# Bytes of a .json file, whose lists take several times as many, and of the arrays of an .npz file.
MAX_BYTES = 2**27


def load_distribution(path: str | pathlib.Path) -> HMM | MemoryHMM | Process:
  """Return the distribution of a file as numpy arrays: float64, which holds every float32, but for indices.

  Rows are not divided by their sums.

  Raises:
    ValueError: one sentence with what is wrong, a key or the path, and what would be valid.
    OSError: there is no such file, or it cannot be opened.

  >>> import tempfile
  >>> from hmm_jax.distributions import processes
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   save_distribution(f'{folder}/casino.npz', processes.dishonest_casino())
  ...   load_distribution(f'{folder}/casino.npz').num_tokens
  6
  """
  return from_fields(read_fields(path))


def save_distribution(path: str | pathlib.Path, distribution: HMM | MemoryHMM | Process | ArrayLike) -> None:
  """Write an `HMM`, a `MemoryHMM`, a `Process` or its matrices T [V, S, S] to a .json or .npz file.

  Raises:
    ValueError: the name has another ending, or the distribution is not valid; nothing is written then.
    OSError: the file cannot be written.

  Example, where the matrices come back, with the HMM that they are converted to:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...   save_distribution(f'{folder}/even.npz', [[[0.5, 0], [0, 0]], [[0, 0.5], [1, 0]]])
    ...   even = load_distribution(f'{folder}/even.npz')
    >>> even.transition_matrices.shape, even.num_states
    ((2, 2, 2), 3)
  """
  path = _checked(path)
  fields: dict[str, Any] = {key: _numbers(key, array) for key, array in fields_of(distribution).items()}
  from_fields(fields)
  if path.suffix == '.npz':
    np.savez(path, **fields)
  else:
    path.write_text(json.dumps(fields, default=np.ndarray.tolist) + '\n', 'utf-8', newline='\n')


def fields_of(distribution: HMM | MemoryHMM | Process | ArrayLike) -> dict[str, Any]:
  """Return the fields that `from_fields` takes; of a `Process` they are T and the law of its first state."""
  if isinstance(distribution, (HMM, MemoryHMM)):
    return distribution._asdict()
  if isinstance(distribution, Process):
    return {'transition_matrices': distribution.transition_matrices, 'initial_probs': distribution.start_probs}
  return {'transition_matrices': distribution}


def read_fields(path: str | pathlib.Path) -> dict[str, np.ndarray]:
  """Return the arrays of a .json or .npz file by their keys, whatever these are.

  They are float64, but for `cell_index`, which may be integers. A file that declares more than 2^27
  bytes is refused before it is read.

  Raises:
    ValueError: one sentence with the path and the reason.
    OSError: there is no such file, or it cannot be opened.
  """
  path = _checked(path)
  is_archive = path.suffix == '.npz'
  # An archive has headers beside its arrays.
  most_bytes = 2 * MAX_BYTES if is_archive else MAX_BYTES
  with readable(path, 'an intact file of named arrays'), open_regular(path, most_bytes) as file:
    content = read_archive(file, MAX_BYTES) if is_archive else json.loads(file.read().decode('utf-8-sig'))
    return {key: _numbers(key, value) for key, value in content.items() if key != '$schema'}


@contextlib.contextmanager
def readable(path: pathlib.Path, valid: str) -> Iterator[None]:
  """Raise a ValueError of one sentence, with the path and the reason, for whatever the block raises but OSError."""
  try:
    yield
  except OSError:
    raise
  # A damaged file can raise any exception, and numpy may put its content in the message.
  except Exception as error:
    reason = textwrap.shorten(str(error) or type(error).__name__, 300)
    raise ValueError(f'{str(path)!r} cannot be read ({reason}); valid is {valid}')


def from_fields(fields: Mapping[str, np.ndarray]) -> HMM | MemoryHMM | Process:
  """Return the distribution that has these fields, as `read_fields` returns them.

  Raises:
    ValueError: one sentence, at keys that are missing or unknown, or at the first field that is wrong.
  """
  if fields.keys() - {'initial_probs'} == {'transition_matrices'}:
    return from_transition_matrices(**fields)
  kinds: tuple[type[HMM] | type[MemoryHMM], ...] = HMM, MemoryHMM
  for kind in kinds:
    if fields.keys() == set(kind._fields):
      return kind(**fields).validate()
  valid = f'{HMM._fields}, {MemoryHMM._fields}, or transition_matrices with optional initial_probs'
  raise ValueError(f'the keys are {reprlib.repr([*fields])}; valid are {valid}')


def _checked(path: str | pathlib.Path) -> pathlib.Path:
  path = pathlib.Path(os.path.expanduser(path))
  if path.suffix not in ('.json', '.npz'):
    raise ValueError(f'{str(path)!r} ends in {path.suffix!r}; valid are .json and .npz')
  return path


@contextlib.contextmanager
def open_regular(path: str | pathlib.Path, max_bytes: int) -> Iterator[BinaryIO]:
  """Open a local file of at most `max_bytes` for reading.

  Raises ValueError if it is larger or not a regular file: a pipe would block, and a device may never end.
  """
  # Windows has no such flag.
  without_waiting = getattr(os, 'O_NONBLOCK', 0)
  with open(path, 'rb', opener=lambda name, flags: os.open(name, flags | without_waiting)) as file:
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode):
      raise ValueError('it is a pipe or a device; valid is a regular file')
    check_bytes(status.st_size, max_bytes)
    yield file


def read_archive(file: BinaryIO, max_bytes: int) -> dict[str, np.ndarray]:
  """The arrays of an .npz file by their names, none of objects.

  Raises ValueError, before anything is read, if the headers declare more than `max_bytes` (a small archive can expand
  to much); or whatever numpy raises for a damaged archive.
  """
  with zipfile.ZipFile(file) as archive:
    check_bytes(sum(member.file_size for member in archive.infolist()), max_bytes)
  file.seek(0)
  # numpy does not touch memory for data that the file lacks.
  with np.load(file, allow_pickle=False) as arrays:
    return dict(arrays)


def check_bytes(size: int, max_bytes: int) -> None:
  """Raise ValueError if a file has more bytes."""
  if size > max_bytes:
    raise ValueError(f'it has {size:,} bytes; valid are at most {max_bytes:,}')


def _numbers(key: str, value: Any) -> np.ndarray:
  """The array, float64 but for an index. Raises ValueError if it has other things than real numbers."""
  array = np.asarray(arguments.array(key, value))
  return array if key == 'cell_index' else np.where(float64.is_read_as_zero(array), 0, array).astype(np.float64)
