"""A user's own HMM and task, read from a file without trust.

It is an .npz of arrays or a .json of nested lists with these keys, shapes as in `HMM` and `MemoryHMM`:

  initial_probs, transition_matrix, emission_matrix
  task_weights    mu [C, S], or [S] for the paper's label 1(mu^T P >= 0), class 0 where it is 1
  silent_probs    P[H_0] [H], optional: the label speaks of H_0; without it, of the masked first state. With a memory
                  the label speaks of a cell, and P[H_0] may depend on the memory; without it, it is P[H_1]
  memory_probs, cell_index, cell    of a memory-augmented HMM; the label speaks of cell j*, S = M values
"""

import collections
import pathlib
import reprlib
import textwrap
from typing import Any

import numpy as np

from experiments.records import files
from experiments.settings.fields import SettingsError
from hmm_jax.hmm import check_probs, HMM
from hmm_jax.memory_hmm import MemoryHMM
from hmm_jax.theory.exact.problem import MemoryProblem, Problem, StateProblem
from hmm_jax.theory.theorems import assumptions

_LARGEST_WEIGHT = 1e100
_LONGEST_REASON = 160


def load(path: str | pathlib.Path) -> Problem:
  """The HMM and the task of a file, float64, rows divided by their sums.

  Raises:
    SettingsError: one sentence that names the key, its value and what would be valid.
  """
  name, path = str(path), pathlib.Path(path)
  suffix = path.suffix.lower()
  read = {'.npz': files.read_arrays, '.json': _read_json}.get(suffix)
  if read is None or not path.is_file():
    raise SettingsError(f'hmm_file is {name!r}; valid is the path of a file, .npz or .json')
  try:
    entries = read(path)
  except Exception as error:
    # What is damaged, truncated or not what its name says may fail in any way, and numpy may quote all of it.
    reason = textwrap.shorten(repr(str(error) or type(error).__name__)[1:-1], _LONGEST_REASON)
    raise SettingsError(f'hmm_file is {name!r}, which cannot be read as {suffix} ({reason}); valid is a whole file')
  try:
    return _problem(entries)
  except ValueError as error:
    raise SettingsError(f'{path}: {error}')


def _read_json(path: pathlib.Path) -> dict[str, Any]:
  content = files.read_json(path, 'utf-8-sig', object_pairs_hook=_once_each)
  if not isinstance(content, dict):
    raise ValueError(f'it holds {reprlib.repr(content)}; valid is an object, nested lists of numbers by key')
  return content


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  for key, count in collections.Counter(key for key, _ in pairs).items():
    if count > 1:
      raise ValueError(f'{key!r} is given {count} times; valid is once')
  return dict(pairs)


def _problem(entries: dict[str, Any]) -> Problem:
  """Raises ValueError, one sentence, at the first key that is wrong."""
  has_memory = 'memory_probs' in entries
  fields = MemoryHMM._fields if has_memory else HMM._fields
  required = (*fields, 'task_weights', *['cell'] * has_memory)
  kind = 'an HMM with a memory' if has_memory else 'an HMM without memory_probs'
  for key in entries:
    if key not in (*required, 'silent_probs'):
      raise ValueError(f'{key!r} is no key of {kind}; valid are {", ".join(required)}, silent_probs')
  for key in required:
    if key not in entries:
      raise ValueError(f'{key} is missing; {kind} has {", ".join(required)}')
  arrays = {key: _numbers(key, value) for key, value in entries.items()}
  hmm: Any = (MemoryHMM if has_memory else HMM)(**{key: arrays[key] for key in fields}).validate()
  silent_probs = arrays.get('silent_probs', hmm.initial_probs)
  by_memory = hmm.memory_probs.shape if has_memory and silent_probs.ndim > 1 else ()
  check_probs('silent_probs', silent_probs, (*by_memory, hmm.num_states))
  hmm = hmm._replace(**{key: _normalised(arrays[key]) for key in HMM._fields})
  if not has_memory:
    task_weights = _task_weights(arrays['task_weights'], hmm.num_states, 'hidden state')
    return StateProblem(hmm, _normalised(silent_probs), task_weights, drawn=0)
  cell = arrays['cell']
  if cell.shape or cell.dtype.kind not in 'iu' or not 0 <= cell < hmm.num_cells:
    raise ValueError(f'cell is {cell.tolist()}; valid is an integer from 0 to {hmm.num_cells - 1}')
  hmm = hmm._replace(
    memory_probs=hmm.memory_probs / hmm.memory_probs.sum(), cell_index=arrays['cell_index'].astype(np.int32)
  )
  task_weights = _task_weights(arrays['task_weights'], hmm.memory_size, 'value of the memory')
  return MemoryProblem(hmm, _normalised(silent_probs), task_weights, int(cell), drawn=0)


def _numbers(key: str, value: Any) -> np.ndarray:
  """An array of integers or of float64."""
  try:
    array = np.asarray(value)
  except ValueError:
    array = np.empty((), object)
  if array.dtype.kind not in 'iuf':
    raise ValueError(f'{key} is {reprlib.repr(value)}; valid is an array of numbers')
  return array if array.dtype.kind in 'iu' else array.astype(np.float64)


def _normalised(rows: np.ndarray) -> np.ndarray:
  return rows / rows.sum(-1, keepdims=True)


def _task_weights(weights: np.ndarray, size: int, what: str) -> np.ndarray:
  """mu [C, S] float64; a mu [S] is that of class 0 beside a class of zeros."""
  if weights.ndim not in (1, 2) or weights.shape[-1] != size:
    valid = f'[{size}] or [classes, {size}], a weight for each {what}'
    raise ValueError(f'task_weights has shape {weights.shape}; valid is {valid}')
  weights = weights.astype(np.float64)
  wrong = weights[~(np.abs(weights) <= _LARGEST_WEIGHT)]
  if wrong.size:
    valid = f'numbers from {-_LARGEST_WEIGHT:g} to {_LARGEST_WEIGHT:g}'
    raise ValueError(f'task_weights has the entry {wrong[0]:g}; valid are {valid}')
  weights = np.stack([weights, np.zeros(size)]) if weights.ndim == 1 else weights
  assumptions.contrasts(weights)  # Raises where its rows do not differ.
  return weights
