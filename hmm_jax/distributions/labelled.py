"""Processes of labelled transition matrices: the HMM that inference runs on, and beliefs over the matrices' states.

An edge-emitting process (an epsilon-machine, a hidden Markov chain of Mealy type) is given by T [V, S, S] with
T[x, i, j] = P[token x, next state j | state i], so that P[x_1 ... x_n] = pi T[x_1] ... T[x_n] 1.
"""

from collections.abc import Callable
import functools
from typing import Any, NamedTuple

import jax
from jax import Array
import numpy as np
from numpy.typing import ArrayLike

from hmm_jax._support import arguments, float64 as float64_lib
from hmm_jax._support.display import shown
from hmm_jax._support.float64 import float64, positive_or_one
from hmm_jax.distributions.hmm import Distribution, HMM, text_likelihoods
from hmm_jax.distributions.memory_hmm import to_hmm
from hmm_jax.inference.posterior import forward_backward, Posterior

# A process as functions of it take it: a distribution, or T [V, S, S].
ProcessLike = Distribution | ArrayLike


@shown
class Process(NamedTuple):
  """The HMM of labelled transition matrices T [V, S, S], which it keeps.

  Whatever takes an `HMM` takes it as one of H states; `beliefs`, `mixed_states` and `entropies` speak of the S states
  of T. S_t is the state of T before token t, H_t the state of the HMM that emits token t. `sample` and the exact model
  speak of H_t: with states h drawn by `sample`, row t of next_state_probs[h] is the law of S_{t+1}; if row t of b is
  that of H_t given some tokens, row t of b @ next_state_probs is that of S_{t+1} given the same.

  Attributes:
    initial_probs: [H], P[H_1].
    transition_matrix: [H, H], entry (i, j) = P[H_{t+1} = j | H_t = i].
    emission_matrix: [H, V], entry (i, v) = P[X_t = v | H_t = i].
    transition_matrices: T [V, S, S], T[x, i, j] = P[X_t = x, S_{t+1} = j | S_t = i], of sum 1 over x and j.
    start_probs: pi [S], P[S_1].
    emitting_probs: [S, H], P[H_t = h | S_t = s].
    next_state_probs: [H, S], P[S_{t+1} = s | H_t = h].

  >>> even = from_transition_matrices([[[0.5, 0], [0, 0]], [[0, 0.5], [1, 0]]])
  >>> even.num_states, even.start_probs.round(3).tolist()
  (3, [0.667, 0.333])
  >>> even.next_state_probs.tolist()  # here H_t, a token and the state that it leads to, decides it
  [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
  """

  initial_probs: Array | np.ndarray
  transition_matrix: Array | np.ndarray
  emission_matrix: Array | np.ndarray
  transition_matrices: Array | np.ndarray
  start_probs: Array | np.ndarray
  emitting_probs: Array | np.ndarray
  next_state_probs: Array | np.ndarray

  @property
  def hmm(self) -> HMM:
    """The HMM without the matrices."""
    return HMM(self.initial_probs, self.transition_matrix, self.emission_matrix)

  @property
  def joint_initial_probs(self) -> Array | np.ndarray:
    return self.initial_probs

  @property
  def joint_emission_matrix(self) -> Array | np.ndarray:
    return self.emission_matrix

  @property
  def num_states(self) -> int:
    """H."""
    return self.hmm.num_states

  @property
  def num_tokens(self) -> int:
    return self.hmm.num_tokens

  def starting_from(self, joint_initial_probs: Array | np.ndarray) -> Any:
    """The `hmm` with another law [H] of its first state, which decides no law of S_1."""
    return self.hmm.starting_from(joint_initial_probs)

  def validate(self) -> 'Process':
    """Return it as arrays. Raises ValueError naming the field of the HMM that is wrong."""
    self.hmm.validate()
    return arguments.with_arrays(self)


@float64_lib.with_promotion
def from_transition_matrices(
  transition_matrices: ArrayLike | list[Any], initial_probs: ArrayLike | None = None
) -> Process:
  """Return the `Process` whose words have the probabilities pi T[x_1] ... T[x_n] 1.

  If the state before the token decides it, T[x, i, j] = W_ix A_ij, its HMM has the states of T. Otherwise a state of
  the HMM is a pair (token, the state that it led to), of which there are at most S V. Pairs that cannot occur are left
  out. Pairs of one state that are entered in the same proportions are one, so that T[x, i, j] = A_ij W_jx has the
  states of T too. States of T that cannot occur are left out; others stay apart even where their futures are equal,
  since a task may speak of them. The order is that of the states of T. `beliefs` are over the states of T, all S of
  them, whichever the HMM has.

  Args:
    transition_matrices: T [V, S, S], T[x, i, j] = P[X_t = x, S_{t+1} = j | S_t = i]; over x and j they sum to 1.
    initial_probs: pi [S], P[S_1], before the first token; the stationary law if None.

  Raises:
    ValueError: a shape, an entry or a sum is wrong, or the stationary law is not unique.

  Example, runs of 1s have an even length:

    >>> even = from_transition_matrices([[[0.5, 0], [0, 0]], [[0, 0.5], [1, 0]]])
    >>> even.emission_matrix
    array([[0., 1.],
           [1., 0.],
           [0., 1.]])
    >>> beliefs(even, np.array([1, 0, 1]), causal=True).round(3).tolist()  # before each token
    [[0.667, 0.333], [0.5, 0.5], [1.0, 0.0]]
  """
  given = np.asarray(arguments.array('transition_matrices', transition_matrices))
  num_tokens, num_states, _ = arguments.check_shape('transition_matrices', given, 'V', 'S', 'S')
  arguments.check_probs('transition_matrices', given, num_tokens, num_states, num_states, over=(0, 2))
  T = float64(given)
  # Relative tolerance for numbers that differ by rounding; 0 equals only 0.
  rounding = 1e-6 if np.array_equal(T, np.float32(T)) else 1e-12
  are_equal = functools.partial(np.isclose, rtol=rounding, atol=0)
  T = T / T.sum((0, 2))[:, None]
  start, possible = _start(T.sum(0), initial_probs)
  possible_T, pi, states = T[:, possible][:, :, possible], start[possible], np.eye(len(possible))[possible]
  A, W = possible_T.sum(0), possible_T.sum(2).T
  if are_equal(possible_T, W.T[:, :, None] * A).all():
    return Process(pi, A, W, T, start, states.T, A @ states)
  hmm, entering, ends = _pairs_as_states(possible_T, pi, are_equal)
  return Process(*hmm, T, start, states.T @ entering.T, states[ends])


@float64_lib.with_promotion
def beliefs(process: ProcessLike, tokens: ArrayLike, *, causal: bool = False) -> np.ndarray:
  """The beliefs [..., T, S] over the states of a process before each token, aligned with the rows of a model.

  Row t is P[S_t | x_{-t}], beside row t of a masked model, or P[S_t | x_{1:t-1}] beside that of a causal one: what is
  known of the state when token t is predicted. S_t is the state of T before token t; of an `HMM` the state that emits
  token t, and of a `MemoryHMM` the joint one, as in `activations` of the exact model. For the belief after the last
  token append a [MASK]. Rows whose evidence is impossible are zeros.

  Args:
    process: a `Process`, another distribution, or T [V, S, S], which then starts from its stationary law.
    tokens: [..., T], [MASK] being V.
    causal: as that of the model that the rows stand beside.

  Returns:
    A numpy array in float64.

  Raises:
    ValueError: a token does not exist, or the matrices are wrong.

  Source: Shai et al. 2024, "Transformers represent belief state geometry in their residual stream".

  A 0 leads the even process to its first state, and half of the 1s after it to its second:

    >>> T = np.array([[[0.5, 0], [0, 0]], [[0, 0.5], [1, 0]]])
    >>> beliefs(T, np.array([0, 1, 1, 2]), causal=True).round(3).tolist()
    [[0.667, 0.333], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
    >>> beliefs(T, np.array([0, 2, 0])).round(3).tolist()  # given all other tokens
    [[0.75, 0.25], [1.0, 0.0], [0.5, 0.5]]
  """
  labelled, tokens = _as_process(process), arguments.array('tokens', tokens)
  arguments.check_ids('tokens', tokens, labelled.num_tokens + 1)
  filtered, predicted, _, leave_one_out, _ = map(np.asarray, _posterior(labelled, tokens))
  past = np.roll(filtered @ labelled.next_state_probs, 1, axis=-2)
  past[..., 0, :] = labelled.start_probs
  if causal:
    return past
  # P[x_{t+1:} | H_t] but for a factor; a state that cannot occur has no future.
  future = leave_one_out / positive_or_one(predicted)
  weights = past * (future @ labelled.emitting_probs.T)
  return weights / positive_or_one(weights.sum(-1, keepdims=True))


@float64_lib.in_float64
def _posterior(process: Distribution, tokens: Any) -> Posterior:
  return forward_backward(process, text_likelihoods(process, tokens))


def _as_process(process: ProcessLike) -> Process:
  """The process in float64: of an HMM T[x, i, j] = W_ix A_ij, of a memory that of `to_hmm`."""
  if not hasattr(process, 'transition_matrix'):
    T = arguments.array('process', process)
    arguments.check_shape('process', T, 'V', 'S', 'S')
    return from_transition_matrices(T)
  distribution: Any = arguments.distribution(process)
  if not isinstance(distribution, Process):
    initial_probs, A, W = jax.tree.map(float64, to_hmm(distribution))
    return from_transition_matrices(W.T[:, :, None] * A, initial_probs)
  return jax.tree.map(float64, distribution)


def edges(process: ProcessLike) -> tuple[Any, Any]:
  """T [V, S, S] and P[S_1] [S] in float64."""
  labelled = _as_process(process)
  return labelled.transition_matrices, labelled.start_probs


def _start(A: np.ndarray, initial_probs: ArrayLike | None) -> tuple[np.ndarray, np.ndarray]:
  """The law of the first state [S], stationary if None, and the states that can occur [S], bool."""
  if initial_probs is not None:
    pi = float64(arguments.array('initial_probs', initial_probs))
    arguments.check_probs('initial_probs', pi, len(A))
  elif _recurrent(A).any():
    pi = stationary_probs(A)
  else:
    raise ValueError(
      'transition_matrices have several stationary laws; valid is one, or give initial_probs [S], such as their '
      'weighted mean (`processes.mixture`)'
    )
  return pi, reachable(A, pi > 0)


def _pairs_as_states(
  T: np.ndarray, pi: np.ndarray, are_equal: Callable[..., Any]
) -> tuple[HMM, np.ndarray, np.ndarray]:
  """The HMM of pairs (token, the state that it led to), P[pair | state before it] [H, S], and the states led to [H].

  Pairs that are entered in equal proportions are one state.
  """
  ends, tokens = np.argwhere(T.any(1).T).T
  entering_PxS = T[tokens, :, ends]
  totals = entering_PxS.sum(1)
  proportions = entering_PxS / totals[:, None]
  # The pair that stands for each state, and the state of each pair.
  first, group = list[int](), np.zeros(len(ends), int)
  for pair in np.lexsort((*proportions.T[::-1], ends)):
    is_same = are_equal(proportions[first], proportions[pair]).all(1) & (ends[first] == ends[pair])
    if not is_same.any():
      first.append(pair)
      is_same = np.append(is_same, True)
    group[pair] = is_same.argmax()
  entering_HxS, emission_matrix = np.zeros((len(first), len(pi))), np.zeros((len(first), len(T)))
  np.add.at(entering_HxS, group, entering_PxS)
  np.add.at(emission_matrix, (group, tokens), totals)
  emission_matrix /= emission_matrix.sum(1, keepdims=True)
  return HMM(entering_HxS @ pi, entering_HxS.T[ends[first]], emission_matrix), entering_HxS, ends[first]


def reachable(transition_matrix: np.ndarray, states: np.ndarray) -> np.ndarray:
  """The states, [H] bool, that occur if documents begin in these, [H] bool."""
  latest = states
  while latest.any():
    latest = transition_matrix[latest].any(0) & ~states
    states = states | latest
  return states


def stationary_probs(transition_matrix: ArrayLike) -> np.ndarray:
  """The law pi [H] with pi = pi @ transition_matrix and sum 1; the one of least norm if it is not unique."""
  A = float64(arguments.array('transition_matrix', transition_matrix)).T
  system = np.vstack([A - np.eye(len(A)), np.ones(len(A))])
  solution = np.linalg.lstsq(system, np.append(np.zeros(len(A)), 1.0))[0]
  recurrent = _recurrent(A.T)
  # Rounding may leave transient states a small positive probability.
  probs = np.where(recurrent if recurrent.any() else True, np.maximum(solution, 0), 0)
  return probs / probs.sum()


def _recurrent(transition_matrix: np.ndarray) -> np.ndarray:
  """States reachable from every state, [H] bool: the support of the stationary law; all False if it is not unique."""
  return np.all([reachable(transition_matrix, start) for start in np.eye(len(transition_matrix), dtype=bool)], axis=0)
