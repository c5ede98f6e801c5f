"""The downstream tasks of a trial: inputs, labels from the exact posterior, and the positions that should matter."""

from collections.abc import Callable
import functools
import itertools
from typing import NamedTuple

import jax
from jax import Array
import numpy as np

from experiments.settings.grid import Settings
from experiments.settings.groups import DownstreamSettings
import hmm_jax
from hmm_jax.distributions.hmm import Distribution
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
    label_probs: from inputs [n, T], in which any token may be masked, to the posterior [n, S] that defines labels.
  """

  inputs: np.ndarray
  tasks: list[tasks_lib.Task]
  splits: dict[str, slice]
  documents: np.ndarray
  label_probs: Callable[[np.ndarray], np.ndarray]

  def labels(self, tasks: list[int]) -> np.ndarray:
    """Labels [K, n] of these tasks."""
    return np.stack([self.tasks[task].labels for task in tasks])


def draw(
  settings: Settings,
  distribution: Distribution,
  key: Array,
  key_tasks: Array,
  rule: tasks_lib.LabelRule | None = None,
) -> Downstream:
  """The inputs and the tasks of a trial.

  A label is about `downstream.label_state`, or about the memory cell `memory.label_cell`. `key` decides the texts;
  mu of task t is drawn by fold_in(key_tasks, t). A `rule` of labels takes the place of mu. Raises ValueError if it,
  or every draw of mu, gives all training inputs one label.
  """
  d, splits = settings.downstream, _splits(settings.downstream)
  texts = tasks_lib.draw_texts(
    key,
    distribution,
    num_inputs=splits['test'].stop,
    num_documents=settings.measure.num_documents,
    length=d.length,
    hidden=d.hidden_position,
  )
  inputs, documents = jax.device_get(texts)
  of_task = tasks_lib.rule_probs if rule else tasks_lib.label_probs
  label_probs: Callable[[np.ndarray], np.ndarray] = functools.partial(
    of_task, distribution, cell=settings.memory.label_cell, hidden=d.hidden_position
  )
  if d.label_state == 'silent' and not isinstance(distribution, hmm_jax.MemoryHMM):
    label_probs = functools.partial(tasks_lib.silent_state_probs, distribution)
  state_probs = label_probs(inputs)
  own = tasks_lib.labelled(rule, state_probs, inputs) if rule else None
  if own:
    tasks_lib.check_classes(own.labels, d.num_train)
  task_settings = dict(num_nonzero=d.num_nonzero, num_classes=d.num_classes, with_replacement=d.with_replacement)
  # Records compare each task with the other of its pair, which need not be asked for.
  keys = [jax.random.fold_in(key_tasks, task) for task in range(-(-settings.tasks_per_trial // 2) * 2)]
  seen = inputs[:, : d.seen_length(prompt_length=0)]
  return Downstream(
    inputs=seen,
    # Drawn by all `num_train` inputs: the tasks are the same at each number of labels.
    tasks=[own or tasks_lib.draw_task(key_task, state_probs, d.num_train, **task_settings) for key_task in keys],
    splits=splits,
    documents=documents[:, : seen.shape[1]],
    label_probs=label_probs,
  )


def _splits(d: DownstreamSettings) -> dict[str, slice]:
  """The places of each split; of training and validation inputs the first `num_labels`, if it is not 0."""
  sizes = {'train': d.num_train, 'validation': d.num_validation, 'test': d.num_test}
  starts = itertools.accumulate(sizes.values(), initial=0)
  used = sizes | {name: min(d.num_labels or sizes[name], sizes[name]) for name in ('train', 'validation')}
  return {name: slice(start, start + used[name]) for name, start in zip(sizes, starts)}
