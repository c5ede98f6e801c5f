"""The downstream tasks of a trial: inputs, labels from the exact posterior, and the positions that should matter."""

from collections.abc import Callable
import functools
import itertools
import math
from typing import NamedTuple

import jax
from jax import Array
import numpy as np
import scipy.special

from experiments.settings.grid import Point, Settings
import hmm_jax
from hmm_jax._support.blocks import in_blocks
from hmm_jax.distributions.hmm import Distribution
from hmm_jax.models.model import ExactModel, representation
from hmm_jax.tuning import tasks as tasks_lib

# Smaller gaps between class scores count as near ties.
NEAR_TIE = 1e-6


class Downstream(NamedTuple):
  """The tasks of a trial and what they share, in numpy arrays, and how labels arise.

  Attributes:
    inputs: [n, T], the texts as a model without a prompt sees them; training, validation, then test.
    tasks: an even number, each with a label for every input, from the whole text.
    splits: the slice of the inputs by split.
    documents: [m, T], further documents of the same length, for measuring the model.
    concentration: () -> [n_test, T], how far P[H_i | X_{-i}] concentrates at each position of the test inputs, in the
      measure `concentration_name`; computed once, if it is called.
    concentration_name: 'read_probability', P[J_i = the label's cell | X_{-i}] if there are several cells, or else
      'entropy', of P[H_i | X_{-i}] in nats.
    most_concentration: an upper bound of `concentration`: 1, or log H.
    label_probs: from inputs [n, T], in which any token may be masked, to the posterior [n, S] that defines labels.
  """

  inputs: np.ndarray
  tasks: list[tasks_lib.Task]
  splits: dict[str, slice]
  documents: np.ndarray
  concentration: Callable[[], np.ndarray]
  concentration_name: str
  most_concentration: float
  label_probs: Callable[[np.ndarray], np.ndarray]

  def labels(self, tasks: list[int]) -> np.ndarray:
    """Labels [K, n] of these tasks."""
    return np.stack([self.tasks[task].labels for task in tasks])


def draw(settings: Settings, point: Point, distribution: Distribution, key: Array, key_tasks: Array) -> Downstream:
  """The inputs and the tasks of a trial.

  A label is about `downstream.label_state`, or about the memory cell `memory.label_cell`. `key` decides the texts, and
  `key_tasks` with its number mu of a task. Raises ValueError if every draw of mu gives all training inputs one label.
  """
  d, reads_cells = settings.downstream, point.num_cells > 1
  ends = np.cumsum([0, d.num_train, d.num_validation, d.num_test]).tolist()
  sizes = dict(num_inputs=ends[-1], num_documents=settings.measure.num_documents, length=d.length)
  texts = tasks_lib.draw_texts(key, distribution, **sizes, hidden=d.hidden_position)
  inputs, documents = jax.device_get(texts)
  label_probs: Callable[[np.ndarray], np.ndarray] = functools.partial(
    tasks_lib.label_probs, distribution, cell=settings.memory.label_cell, hidden=d.hidden_position
  )
  if d.label_state == 'silent' and not isinstance(distribution, hmm_jax.MemoryHMM):
    label_probs = functools.partial(tasks_lib.silent_state_probs, distribution)
  state_probs = label_probs(inputs)
  task_settings = dict(num_nonzero=d.num_nonzero, num_classes=d.num_classes, with_replacement=d.with_replacement)
  # Records compare each task with the other of its pair, which need not be asked for.
  keys = [jax.random.fold_in(key_tasks, task) for task in range(-(-settings.tasks_per_trial // 2) * 2)]
  splits = {name: slice(*pair) for name, pair in zip(('train', 'validation', 'test'), itertools.pairwise(ends))}
  seen = inputs[:, : d.seen_length(prompt_length=0)]
  concentration = functools.partial(_concentration, settings, point, distribution, seen[splits['test']])
  return Downstream(
    inputs=seen,
    tasks=[tasks_lib.draw_task(key_task, state_probs, d.num_train, **task_settings) for key_task in keys],
    splits=splits,
    documents=documents[:, : seen.shape[1]],
    concentration=functools.cache(concentration),
    concentration_name='read_probability' if reads_cells else 'entropy',
    most_concentration=1.0 if reads_cells else math.log(max(point.num_states, 2)),
    label_probs=label_probs,
  )


def _concentration(settings: Settings, point: Point, distribution: Distribution, inputs: np.ndarray) -> np.ndarray:
  """Concentration of P[H_i | X_{-i}] at each position of inputs [n, T], as `Downstream.concentration` defines it."""
  exact = ExactModel(distribution.num_tokens, settings.bert.causal)
  represent = functools.partial(representation, exact, distribution)
  joint = in_blocks(represent, inputs, settings.measure.batch_size)
  # P[H_i | X_{-i}], [n, T, H], summed over memory configurations.
  state_probs = joint.reshape(*joint.shape[:2], -1, point.num_states).sum(-2)
  if isinstance(distribution, hmm_jax.MemoryHMM) and point.num_cells > 1:
    are_of_cell = np.asarray(distribution.cell_index) == settings.memory.label_cell
    return state_probs[..., are_of_cell].sum(-1)
  return scipy.special.entr(np.float64(state_probs)).sum(-1)
