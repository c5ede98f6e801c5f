"""A user's own HMM and task, read from a file.

A file is an .npz of arrays or a .json of nested lists with these keys, shapes as in `HMM` and `MemoryHMM`:

  initial_probs, transition_matrix, emission_matrix
  task_weights    mu [C, S], or [S] for the paper's label 1(mu^T P >= 0), class 0 where it is 1
  silent_probs    P[H_0] [H], optional: the label speaks of H_0; without it, of the masked first state
  memory_probs, cell_index, cell    of a memory-augmented HMM; the label speaks of cell j*, S = M values
"""

import json
import pathlib
import reprlib
import textwrap
from typing import Any
import zipfile
import zlib

import jax
import numpy as np

from experiments.settings import SettingsError
from hmm_jax.hmm import check_probs
from hmm_jax.hmm import HMM
from hmm_jax.memory_hmm import MemoryHMM
from hmm_jax.theory import assumptions
from hmm_jax.theory.structured import MemoryProblem
from hmm_jax.theory.structured import StateProblem

Problem = StateProblem | MemoryProblem

_STATE_KEYS = ('initial_probs', 'transition_matrix', 'emission_matrix', 'task_weights')
_MEMORY_KEYS = (*_STATE_KEYS, 'memory_probs', 'cell_index', 'cell')
_LARGEST_WEIGHT = 1e100
_LONGEST_REASON = 160
# What reading a file that is damaged, truncated or not what its name says can raise.
_UNREADABLE = (
  OSError,
  ValueError,
  EOFError,
  RuntimeError,
  MemoryError,
  OverflowError,
  zipfile.BadZipFile,
  zlib.error,
)


def load(path: str | pathlib.Path) -> Problem:
  """The HMM and the task of a file, float64, rows divided by their sums.

  Raises:
    SettingsError: one sentence that names the key, its value and what would be valid.
  """
  path = pathlib.Path(path)
  arrays = _read(path)
  try:
    return _problem(arrays)
  except ValueError as error:
    raise SettingsError(f'{path}: {error}')


def _read(path: pathlib.Path) -> dict[str, Any]:
  """The entries of the file by key, as they are."""
  readers = {'.npz': _read_npz, '.json': _read_json}
  if path.suffix.lower() not in readers:
    raise SettingsError(f'hmm_file is {str(path)!r}; valid is the path of an .npz or a .json file')
  if not path.is_file():
    raise SettingsError(f'hmm_file is {str(path)!r}, which is no file; valid is the path of an .npz or a .json file')
  try:
    return readers[path.suffix.lower()](path)
  except _UNREADABLE as error:
    # Of a damaged file numpy may quote all of it.
    reason = textwrap.shorten(repr(str(error) or type(error).__name__)[1:-1], _LONGEST_REASON)
    raise SettingsError(f'hmm_file is {str(path)!r}, which cannot be read as {path.suffix.lower()} ({reason})')


def _read_npz(path: pathlib.Path) -> dict[str, Any]:
  content = np.load(path, allow_pickle=False)
  if not isinstance(content, np.lib.npyio.NpzFile):
    raise ValueError('it holds one array; valid are arrays by name, as np.savez writes them')
  with content:
    return {key: content[key] for key in content.files}


def _read_json(path: pathlib.Path) -> dict[str, Any]:
  content = json.loads(path.read_text('utf-8-sig'), object_pairs_hook=_once_each)
  if not isinstance(content, dict):
    raise ValueError(f'it holds {reprlib.repr(content)}; valid is an object, nested lists of numbers by key')
  return content


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  keys = [key for key, _ in pairs]
  twice = [key for key in keys if keys.count(key) > 1]
  if twice:
    raise ValueError(f'{twice[0]!r} is given {keys.count(twice[0])} times; valid is once')
  return dict(pairs)


def _problem(entries: dict[str, Any]) -> Problem:
  """Raises ValueError, one sentence, at the first key that is wrong."""
  has_memory = 'memory_probs' in entries
  required, optional = (_MEMORY_KEYS, ()) if has_memory else (_STATE_KEYS, ('silent_probs',))
  kind = 'an HMM with a memory' if has_memory else 'an HMM without memory_probs'
  for key in entries:
    if key not in required + optional:
      raise ValueError(f'{key!r} is no key of {kind}; valid are {", ".join(required + optional)}')
  for key in required:
    if key not in entries:
      raise ValueError(f'{key} is missing; {kind} has {", ".join(required)}')
  arrays = {key: _numbers(key, value) for key, value in entries.items()}
  return _memory_problem(arrays) if has_memory else _state_problem(arrays)


def _numbers(key: str, value: Any) -> np.ndarray:
  """An array of integers or of float64."""
  try:
    array = np.asarray(value)
  except ValueError:
    array = np.empty((), object)
  if array.dtype.kind not in 'iuf':
    raise ValueError(f'{key} is {reprlib.repr(value)}; valid is an array of numbers')
  return array if array.dtype.kind in 'iu' else array.astype(np.float64)


def _state_problem(arrays: dict[str, np.ndarray]) -> StateProblem:
  hmm = HMM(*(arrays[key] for key in HMM._fields)).validate()
  silent_probs = arrays.get('silent_probs', hmm.initial_probs)
  check_probs('silent_probs', silent_probs, (hmm.num_states,))
  task_weights = _task_weights(arrays['task_weights'], hmm.num_states, 'hidden state')
  return StateProblem(HMM(*map(_normalised, hmm)), _normalised(silent_probs), task_weights, drawn=0)


def _memory_problem(arrays: dict[str, np.ndarray]) -> MemoryProblem:
  hmm = MemoryHMM(*(arrays[key] for key in MemoryHMM._fields)).validate()
  cell = arrays['cell']
  if cell.shape or cell.dtype.kind not in 'iu' or not 0 <= cell < hmm.num_cells:
    raise ValueError(f'cell is {cell.tolist()}; valid is an integer from 0 to {hmm.num_cells - 1}')
  task_weights = _task_weights(arrays['task_weights'], hmm.memory_size, 'value of the memory')
  exact = MemoryHMM(
    memory_probs=_normalised(hmm.memory_probs.reshape(-1)).reshape(hmm.memory_probs.shape),
    initial_probs=_normalised(hmm.initial_probs),
    transition_matrix=_normalised(hmm.transition_matrix),
    cell_index=hmm.cell_index.astype(np.int32),
    emission_matrix=_normalised(hmm.emission_matrix),
  )
  return MemoryProblem(exact, task_weights, int(cell), drawn=0)


def _normalised(rows: jax.Array | np.ndarray) -> np.ndarray:
  rows = np.asarray(rows, np.float64)
  return rows / rows.sum(-1, keepdims=True)


def _task_weights(weights: np.ndarray, size: int, what: str) -> np.ndarray:
  """mu [C, S] float64; a mu [S] is that of class 0 beside a class of zeros."""
  if weights.ndim not in (1, 2) or weights.shape[-1] != size:
    valid = f'[{size}] or [classes, {size}], a weight for each {what}'
    raise ValueError(f'task_weights has shape {weights.shape}; valid is {valid}')
  weights = np.asarray(weights, np.float64)
  wrong = weights[~(np.abs(weights) <= _LARGEST_WEIGHT)]
  if wrong.size:
    valid = f'numbers from {-_LARGEST_WEIGHT:g} to {_LARGEST_WEIGHT:g}'
    raise ValueError(f'task_weights has the entry {wrong[0]:g}; valid are {valid}')
  weights = np.stack([weights, np.zeros(size)]) if weights.ndim == 1 else weights
  assumptions.contrasts(weights)
  return weights
