"""Downstream tasks: inputs, `task_weights` (the paper's mu), labels from the exact posterior, degeneracy."""

from collections.abc import Callable
import functools
from typing import Any, NamedTuple

import jax
from jax import Array, lax
import jax.numpy as jnp
import numpy as np
import scipy

from hmm_jax._support import arguments, compilation, float64
from hmm_jax._support.blocks import even_size, in_blocks
from hmm_jax.distributions.hmm import Distribution, HMM, text_likelihoods
from hmm_jax.distributions.labelled import beliefs, Process
from hmm_jax.distributions.memory_hmm import cell_posterior, MemoryHMM
from hmm_jax.distributions.sampling import sample_corpus
from hmm_jax.inference.posterior import forward_backward

_MAX_REDRAWS = 1000
# Entries of the likelihood rows in a block of labelled inputs.
LABELLED_ENTRIES = 2**24


# Labels [n] of inputs [n, T] and their `rule_probs` [n, S]: integers from 0 on.
LabelRule = Callable[[np.ndarray, np.ndarray], Any]


class Task(NamedTuple):
  """A draw of `task_weights` and what it labels.

  Attributes:
    task_weights: [C, H], the paper's mu: label = argmax_c task_weights[c] @ P[H_i | X_{-i}] at the hidden token i, in
      the paper the first, or `silent_state_probs` in its place; or [C, M] and the posterior of a memory cell. A
      `LabelRule` stands in its place for labels of your own.
    labels: [n] int32, of the inputs the task was drawn for.
    redraws: how many draws before this one gave every training input the same label.
    margins: [n] float64, the gap between the two best scores of each input, in units of score; inf without scores.

  >>> task = draw_task(jax.random.key(0), np.array([[0.9, 0.1], [0.2, 0.8]]), num_train=2)
  >>> task.task_weights.shape, bool(task.labels[0] == task.labels[1])
  ((2, 2), False)
  """

  task_weights: Array | np.ndarray | LabelRule
  labels: np.ndarray
  redraws: int
  margins: np.ndarray


@arguments.converted
def draw_task(key: Array, state_probs: np.ndarray, num_train: int, **options: Any) -> Task:
  """Draw `task_weights` until the first `num_train` inputs do not all share one label.

  Args:
    key: a PRNG key; draw a uses fold_in(key, a).
    state_probs: [n, H] float64 from `hidden_state_probs` or `silent_state_probs`, or [n, M] a cell of
      `posterior_cell_probs`; training inputs first.
    num_train: how many of them are training inputs.
    **options: `num_nonzero`, `num_classes` and `with_replacement` of `draw_task_weights`.

  Raises:
    ValueError: every one of 1000 draws was degenerate, so the inputs cannot carry such a task.

  >>> task = draw_task(jax.random.key(0), np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), num_train=2, num_nonzero=4)
  >>> bool((task.labels == (np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]) @ task.task_weights.T).argmax(1)).all())
  True
  """
  for redraws in range(_MAX_REDRAWS):
    weights = draw_task_weights(jax.random.fold_in(key, redraws), state_probs.shape[1], **options)
    task = labelled(weights, state_probs)
    if np.ptp(task.labels[:num_train]):
      return task._replace(redraws=redraws)
  raise ValueError(
    f'{_MAX_REDRAWS} consecutive draws of task_weights gave all {num_train} training inputs one label; valid are texts '
    'of more posteriors, such as longer ones'
  )


@compilation.unfused('num_states', 'num_nonzero', 'num_classes', 'with_replacement')
def draw_task_weights(
  key: Array, num_states: int, *, num_nonzero: int = 6, num_classes: int = 2, with_replacement: bool = False
) -> Array:
  """mu [C, H] with `num_nonzero` standard normal entries at uniformly random places, all of them if fewer exist.

  The places are distinct, or drawn with replacement as in the released code.

  >>> int((draw_task_weights(jax.random.key(0), num_states=5) != 0).sum())
  6
  """
  key_places, key_values = jax.random.split(key)
  size = num_classes * num_states
  places = jax.random.choice(key_places, size, (min(num_nonzero, size),), replace=with_replacement)
  values = jax.random.normal(key_values, places.shape)
  return jnp.zeros(size).at[places].set(values).reshape(num_classes, num_states)


@arguments.converted
def hide(tokens: Array | np.ndarray, num_tokens: int, hidden: int = 0) -> Array:
  """The downstream input, int32: the document with [MASK] (id `num_tokens`) at position `hidden`, -1 the last.

  >>> hide(jnp.array([[3, 1, 2]], jnp.uint8), num_tokens=4).tolist()
  [[4, 1, 2]]
  """
  position = arguments.position('hidden', hidden, tokens.shape[-1])
  return jnp.asarray(tokens, jnp.int32).at[..., position].set(num_tokens)


@functools.partial(
  jax.jit, static_argnames=('num_inputs', 'num_documents', 'length', 'hidden'), compiler_options=compilation.ONCE
)
def draw_texts(
  key: Array, distribution: Distribution, num_inputs: int, num_documents: int, length: int, hidden: int = 0
) -> tuple[Array, Array]:
  """Inputs [n, T] whose token at position `hidden` is masked, and whole documents [m, T] after them, int32."""
  documents = sample_corpus(key, distribution, num_inputs + num_documents, length)
  return hide(documents[:num_inputs], distribution.num_tokens, hidden), documents[num_inputs:]


def _in_float64_blocks(posterior: Callable[..., Array]) -> Callable[..., np.ndarray]:
  """Wrap `posterior(hmm, inputs, *options)`: float64, in blocks of inputs that bound the memory of their messages."""

  # Float32 parameters are widened inside of the program; concrete float64 enters as it is.
  widened = lambda hmm, block, *options: posterior(float64.widened(hmm), block, *options)
  compiled = compilation.quick(widened, static_argnums=2)

  @float64.in_float64
  def on_block(hmm: Any, options: Any, block: Array) -> Array:
    return compiled(float64.put(hmm), block, *options)

  @arguments.converted
  @functools.wraps(posterior)
  def in_float64_blocks(hmm: Distribution, inputs: Array | np.ndarray, *options: Any) -> np.ndarray:
    arguments.check_ids('inputs', inputs, hmm.num_tokens + 1)
    size = even_size(len(inputs), inputs.shape[1] * hmm.joint_initial_probs.size, LABELLED_ENTRIES)
    return in_blocks(functools.partial(on_block, hmm, options), inputs, size)

  return in_float64_blocks


@_in_float64_blocks
def hidden_state_probs(hmm: Distribution, inputs: Array, hidden: int = 0) -> Array:
  """P[H_i | X_{-i}] in float64, [n, E], of the joint state, for inputs [n, T] whose token i = `hidden` is [MASK].

  The token is the first by default, and -1 is the last.

  >>> hmm = HMM(np.array([0.5, 0.5]), np.array([[0, 1.0], [1, 0]]), np.eye(2))
  >>> hidden_state_probs(hmm, np.array([[2, 1, 0], [2, 0, 1]])).tolist()
  [[1.0, 0.0], [0.0, 1.0]]
  """
  position = arguments.position('hidden', hidden, inputs.shape[1])
  return forward_backward(hmm, text_likelihoods(hmm, inputs)).leave_one_out_probs[:, position]


@_in_float64_blocks
def silent_state_probs(hmm: HMM, inputs: Array) -> Array:
  """The released code's law for labels: transition_matrix @ P[H_2 | X_{-1}] in float64, [n, H], of inputs [n, T].

  Its `generate_data.py` has no [MASK] yet: the text X_2, ..., X_T is a document of its own, whose first state H_2 has
  the law `initial_probs`. The product stands for the posterior of a silent state before it. It equals
  `hidden_state_probs` if `initial_probs` is uniform and the columns of the transition matrix sum to 1, as in every
  random draw.
  """
  posterior = forward_backward(hmm, text_likelihoods(hmm, inputs[:, 1:]))
  return jnp.matmul(posterior.smoothed_probs[:, 0], hmm.transition_matrix.T, precision=lax.Precision.HIGHEST)


@_in_float64_blocks
def posterior_cell_probs(hmm: MemoryHMM, inputs: Array) -> Array:
  """P[M_j | X_{-i}] of every cell j in float64, [n, N, M], for inputs [n, T] of which a token i is [MASK].

  The prior is `hmm.memory_probs`.

  >>> import hmm_jax as hj
  >>> hmm = hj.random_memory_hmm(jax.random.key(0), memory_size=2, num_states=3, num_tokens=4)
  >>> posterior_cell_probs(hmm, np.array([[4, 1, 2, 3, 0]])).shape
  (1, 1, 2)
  """
  return cell_posterior(hmm, text_likelihoods(hmm, inputs))


def label_probs(distribution: Distribution, inputs: Array | np.ndarray, cell: int = 0, hidden: int = 0) -> np.ndarray:
  """The posterior that labels inputs [n, T]: `hidden_state_probs` [n, H], or a `cell` of `posterior_cell_probs`."""
  if isinstance(distribution, MemoryHMM):
    return posterior_cell_probs(distribution, inputs)[:, cell]
  return hidden_state_probs(distribution, inputs, hidden)


def rule_probs(distribution: Distribution, inputs: Array | np.ndarray, cell: int = 0, hidden: int = 0) -> np.ndarray:
  """The posterior that a `LabelRule` reads: `label_probs`, or of a `Process` row i = `hidden` of `beliefs`, [n, S].

  >>> import hmm_jax as hj
  >>> even = hj.processes.even()
  >>> rule_probs(even, np.array([[0, 1, 2]]), hidden=-1).tolist()  # of the two states of T; `even` has three
  [[0.0, 1.0]]
  """
  if isinstance(distribution, Process):
    return beliefs(distribution, inputs)[:, hidden]
  return label_probs(distribution, inputs, cell, hidden)


def checked_labels(labels: Any, num_inputs: int, num_classes: int = 2**31) -> np.ndarray:
  """Labels of one's own as int32 [n]; raises ValueError unless they are a class, or a truth value, for each input.

  >>> checked_labels([True, False], num_inputs=2).tolist()
  [1, 0]
  """
  labels = np.asarray(arguments.array('labels', labels))
  arguments.check_shape('labels', labels, num_inputs)
  labels = labels + 0 if labels.dtype == bool else labels
  arguments.check_ids('labels', labels, num_classes)
  return labels.astype(np.int32)


def check_classes(labels: np.ndarray, num_train: int) -> None:
  """Raise ValueError if labels of one's own have one class in training.

  >>> check_classes(np.array([0, 1, 1]), num_train=2)
  """
  if not np.ptp(labels[:num_train]):
    raise ValueError(
      f'labels are {labels[0]}, which gives all training inputs one label; valid are two or more classes'
    )


def labelled(task_weights: Any, state_probs: np.ndarray, inputs: Any = None) -> Task:
  """The task of these `task_weights` [C, H] on inputs with these `state_probs` [n, H]; a `LabelRule` reads both.

  Raises ValueError unless a rule returns an integer of at least 0 for each input.
  """
  if callable(task_weights):
    labels = checked_labels(task_weights(np.asarray(inputs), state_probs), len(state_probs))
    return Task(task_weights, labels, 0, np.full(len(labels), np.inf))
  scores = np.asarray(state_probs, np.float64) @ np.asarray(task_weights, np.float64).T
  return Task(task_weights, scores.argmax(-1).astype(np.int32), 0, margins=np.diff(np.sort(scores))[:, -1])


@arguments.converted
def majority_accuracy(train_labels: np.ndarray, test_labels: np.ndarray) -> np.ndarray:
  """The share of test labels equal to the commonest training label; leading axes are batches.

  >>> float(majority_accuracy(np.array([0, 1, 1]), np.array([0, 1, 0, 0])))
  0.25
  """
  commonest = scipy.stats.mode(np.asarray(train_labels), axis=-1, keepdims=True).mode
  return (test_labels == commonest).mean(-1)
