"""The downstream tasks of a trial: inputs, labels from the exact posterior, and where a head ought to look."""

import functools
import math
from typing import NamedTuple

import jax
from jax import lax
import jax.numpy as jnp
import numpy as np

from experiments.settings import Point
from experiments.settings import Settings
from hmm_jax import inference
from hmm_jax import tasks as tasks_lib
from hmm_jax.hmm import Distribution
from hmm_jax.hmm import HMM
from hmm_jax.hmm import sample_corpus
from hmm_jax.hmm import token_likelihoods
from hmm_jax.memory_hmm import MemoryHMM

Array = jax.Array


class Downstream(NamedTuple):
  """What the tasks of a trial share, and the tasks.

  Attributes:
    inputs: [n, T], training, then validation, then test, as `splits` says.
    tasks: each with a label for every input.
    splits: which inputs are whose.
    documents: [m, T], further documents of the same length, for measuring the model.
    concentration: [n_test, T], how far P[H_i | X_{-i}] concentrates at each position of the test inputs, as
      `concentration_name` says.
    concentration_name: 'read_probability', P[J_i = the label's cell | X_{-i}] where there are several cells, or else
      'entropy', of P[H_i | X_{-i}] in nats.
    most_concentration: a value that `concentration` does not pass: 1, or log H.
  """

  inputs: Array
  tasks: list[tasks_lib.Task]
  splits: dict[str, slice]
  documents: Array
  concentration: np.ndarray
  concentration_name: str
  most_concentration: float

  def labels(self, tasks: list[int]) -> Array:
    """Labels [K, n] of these tasks."""
    return jnp.stack([self.tasks[task].labels for task in tasks])


def draw(settings: Settings, point: Point, distribution: HMM | MemoryHMM, key: Array, key_tasks: Array) -> Downstream:
  """The inputs and the tasks of a trial. A label speaks of H_1, or of the memory cell `memory.label_cell`."""
  d = settings.downstream
  ends = [int(end) for end in np.cumsum([0, d.num_train, d.num_validation, d.num_test])]
  documents = sample_corpus(key, distribution, ends[-1] + settings.measure.num_documents, d.length)
  inputs = tasks_lib.mask_first(documents[: ends[-1]], distribution.num_tokens)
  if isinstance(distribution, MemoryHMM):
    state_probs = tasks_lib.memory_probs(distribution, inputs)[:, settings.memory.label_cell]
  else:
    state_probs = tasks_lib.first_state_probs(distribution, inputs)
  draw_task = functools.partial(
    tasks_lib.draw_task,
    state_probs=state_probs,
    num_train=d.num_train,
    num_nonzero=d.num_nonzero,
    num_classes=d.num_classes,
    with_replacement=d.with_replacement,
  )
  names = ('train', 'validation', 'test')
  splits = {name: slice(start, end) for name, start, end in zip(names, ends, ends[1:])}
  read = point.num_cells > 1
  test = inputs[splits['test']]
  measure = _read_probability if read else _state_entropy
  return Downstream(
    inputs=inputs,
    tasks=[draw_task(jax.random.fold_in(key_tasks, task)) for task in range(settings.tasks_per_trial)],
    splits=splits,
    documents=documents[ends[-1] :],
    concentration=np.asarray(measure(distribution, test, settings.memory.label_cell, settings.measure.batch_size)),
    concentration_name='read_probability' if read else 'entropy',
    most_concentration=1.0 if read else math.log(max(point.num_states, 2)),
  )


def _moving_state_probs(distribution: Distribution, inputs: Array, batch_size: int) -> Array:
  """P[H_i | X_{-i}], [n, T, H], without the part of the state that never moves."""

  def of_one(tokens):
    rows = token_likelihoods(distribution, tokens, tokens != distribution.num_tokens)
    joint = inference.forward_backward(distribution, rows).leave_one_out_probs
    return joint.reshape(tokens.shape + (-1, distribution.transition_matrix.shape[0])).sum(-2)

  return lax.map(of_one, inputs, batch_size=batch_size)


@functools.partial(jax.jit, static_argnames='batch_size')
def _read_probability(distribution: MemoryHMM, inputs: Array, cell: int, batch_size: int) -> Array:
  probs = _moving_state_probs(distribution, inputs, batch_size)
  return jnp.where(distribution.cell_index == cell, probs, 0).sum(-1)


@functools.partial(jax.jit, static_argnames='batch_size')
def _state_entropy(distribution: Distribution, inputs: Array, cell: int, batch_size: int) -> Array:
  del cell
  probs = _moving_state_probs(distribution, inputs, batch_size)
  return -jax.scipy.special.xlogy(probs, probs).sum(-1)
