"""A user's own HMM and task, read from a file without trust.

It is an .npz of arrays or a .json of nested lists with these keys, shapes as in `HMM` and `MemoryHMM`:

  initial_probs, transition_matrix, emission_matrix
  task_weights    mu [C, S], or [S] for the paper's label 1(mu^T P >= 0), class 0 where it is 1
  silent_probs    P[H_0], optional, of the shape of initial_probs, P[H_1]: the label speaks of H_0; without it, of the
                  masked first state. With a memory the label speaks of a cell, and P[H_0] is by default P[H_1]
  memory_probs, cell_index, cell    of a memory-augmented HMM; the label speaks of cell j*, S = M values
"""

import functools
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
from hmm_jax.theory.problems.enumeration import normalised
from hmm_jax.theory.theorems import assumptions

_LONGEST_REASON = 300
_READERS: dict[str, Any] = {
  '.npz': files.read_arrays,
  '.json': functools.partial(files.read_json, encoding='utf-8-sig'),
}


def load(path: str | pathlib.Path) -> Problem:
  """The HMM and the task of a file, float64, rows divided by their sums.

  Raises:
    SettingsError: one sentence that names the key, its value and what would be valid.
  """
  name, path = str(path), pathlib.Path(path)
  read = _READERS.get(path.suffix.lower())
  if read is None or not path.is_file():
    raise SettingsError(f'hmm_file is {name!r}; valid is the path of a file, .npz or .json')
  try:
    return _problem(read(path))
  except Exception as error:
    # What is damaged, truncated or not what its name says may fail in any way, and numpy may quote all of it.
    reason = textwrap.shorten(str(error) or type(error).__name__, _LONGEST_REASON)
    raise SettingsError(
      f'hmm_file is {name!r}, which cannot be read as an HMM with its task ({reason}); valid is a whole file'
    )


def _problem(entries: dict[str, Any]) -> Problem:
  """Raises ValueError, one sentence, at the first key that is wrong."""
  has_memory = 'memory_probs' in entries
  kind: Any = MemoryHMM if has_memory else HMM
  required = [*kind._fields, 'task_weights', *['cell'] * has_memory]
  if set(entries) - {'silent_probs'} != set(required):
    valid = f'{", ".join(required)} for an HMM {"with" if has_memory else "without"} memory_probs, and silent_probs'
    raise ValueError(f'its keys are {", ".join(entries)}; valid are {valid}')
  arrays = {key: _numbers(key, value) for key, value in entries.items()}
  hmm = kind(*(arrays[key] for key in kind._fields)).validate()
  silent_probs = arrays.get('silent_probs', hmm.initial_probs)
  # Where P[H_1] depends on the memory, so does P[H_0], and nowhere else.
  check_probs('silent_probs', silent_probs, hmm.initial_probs.shape)
  hmm, silent_probs = hmm._replace(**{key: normalised(arrays[key]) for key in HMM._fields}), normalised(silent_probs)
  if not has_memory:
    return StateProblem(hmm, silent_probs, _task_weights(arrays['task_weights'], hmm.num_states))
  cell = arrays['cell'].tolist()
  if cell not in range(hmm.num_cells):
    raise ValueError(f'cell is {cell}; valid is an integer from 0 to {hmm.num_cells - 1}')
  hmm = hmm._replace(memory_probs=hmm.memory_probs / hmm.memory_probs.sum(), cell_index=hmm.cell_index.astype(np.int32))
  task_weights = _task_weights(arrays['task_weights'], hmm.memory_size)
  return MemoryProblem(hmm, silent_probs, task_weights, int(cell))


def _numbers(key: str, value: Any) -> np.ndarray:
  """An array of integers or of float64."""
  try:
    array = np.asarray(value)
  except ValueError:
    array = np.array(None)  # Of lists of several lengths.
  if array.dtype.kind not in 'iuf':
    raise ValueError(f'{key} is {reprlib.repr(value)}; valid is an array of numbers')
  return array if array.dtype.kind in 'iu' else array.astype(np.float64)


def _task_weights(weights: np.ndarray, size: int) -> np.ndarray:
  """mu [C, S] float64; a mu [S] is that of class 0 beside a class of zeros."""
  if weights.ndim > 2 or weights.shape[-1:] != (size,):
    raise ValueError(f'task_weights has shape {weights.shape}; valid is [{size}] or [classes, {size}]')
  weights = np.stack([weights, np.zeros(size)]) if weights.ndim == 1 else weights.astype(np.float64)
  assumptions.contrasts(weights)  # Raises where an entry is not finite, or no row differs.
  return weights
