"""A user's own HMM and task: a named process, or a file that is read without trust.

Beside the keys that `hmm_jax.distributions.files` reads a file may have

  task_weights    mu [C, S], or [S] for the paper's label 1(mu^T P >= 0), class 0 where it is 1; without it, drawn
  silent_probs    P[H_0], of the shape of initial_probs, P[H_1]: the label speaks of H_0; without it, of the masked
                  first state. With a memory the label speaks of a cell, and P[H_0] is by default P[H_1]
  cell            j*, the cell of a memory that the label speaks of, by default 0; S = M values
"""

from typing import Any

import jax
import numpy as np

from experiments.own import data
from hmm_jax._support.arguments import check_probs
from hmm_jax.distributions.files import from_fields, read_fields
from hmm_jax.distributions.hmm import HMM
from hmm_jax.distributions.processes import named
from hmm_jax.theory import assumptions
from hmm_jax.theory.enumeration import normalised
from hmm_jax.theory.problem import MemoryProblem, Problem, StateProblem
from hmm_jax.tuning.tasks import draw_task_weights


def load(word: str, seed: int) -> Problem:
  """The HMM and the task of a process or a file, float64, rows divided by their sums; `seed` draws what it lacks.

  Raises:
    SettingsError: one sentence that names the key, its value and what would be valid.
  """
  with data.reading('distribution', word):
    return _problem(word, seed)


def _problem(word: str, seed: int) -> Problem:
  """Check the keys; raise ValueError, one sentence, at the first wrong one."""
  process = named(word)
  fields = data.plain(process)._asdict() if process else read_fields(word)
  task = {key: fields.pop(key) for key in ('task_weights', 'silent_probs') if key in fields}
  cell = fields.pop('cell', 0) if 'memory_probs' in fields else 0
  hmm = data.plain(from_fields(fields))
  hmm = hmm._replace(**{key: normalised(getattr(hmm, key)) for key in HMM._fields})
  silent_probs = task.get('silent_probs', hmm.initial_probs)
  # P[H_0] depends on the memory if and only if P[H_1] does.
  check_probs('silent_probs', silent_probs, *hmm.initial_probs.shape)
  silent_probs = normalised(silent_probs)
  if isinstance(hmm, HMM):
    return StateProblem(hmm, silent_probs, _task_weights(task, hmm.num_states, seed))
  task_weights = _task_weights(task, hmm.memory_size, seed)
  if cell not in range(hmm.num_cells):
    raise ValueError(f'cell is {cell}; valid is an integer from 0 to {hmm.num_cells - 1}')
  hmm = hmm._replace(memory_probs=hmm.memory_probs / hmm.memory_probs.sum())
  return MemoryProblem(hmm, silent_probs, task_weights, int(cell))


def _task_weights(task: dict[str, Any], size: int, seed: int) -> np.ndarray:
  """mu [C, size], given or drawn."""
  given = task.get('task_weights', draw_task_weights(jax.random.key(seed), size))
  task_weights = np.asarray(given, np.float64)
  if task_weights.ndim == 1:
    task_weights = np.stack([task_weights, np.zeros_like(task_weights)])
  if assumptions.contrasts(task_weights).shape[1] != size:
    raise ValueError(f'task_weights has shape {task_weights.shape}; valid is [{size}] or [classes, {size}]')
  return task_weights
