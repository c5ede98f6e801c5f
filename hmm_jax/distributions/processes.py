"""Processes that the field knows by name, and processes of your own from labelled transition matrices.

Each function returns an `HMM` of numpy arrays, float64 but for the random `ginc`. `NAMED` has functions without
arguments by name.

An edge-emitting process (an epsilon-machine, a hidden Markov chain of Mealy type) is given by T [V, S, S] with
T[x, i, j] = P[token x, next state j | state i], so that P[x_1 ... x_n] = pi T[x_1] ... T[x_n] 1.
"""

from collections.abc import Callable
import functools
from typing import Any

import jax
from jax import Array
import numpy as np
from numpy.typing import ArrayLike
import scipy.linalg

from hmm_jax._support import arguments
from hmm_jax._support.float64 import float64
from hmm_jax.distributions.hmm import check_probs, HMM, mixed_permutations, softmax_of_uniform


def from_transition_matrices(transition_matrices: ArrayLike | list[Any], initial_probs: ArrayLike | None = None) -> HMM:
  """Return the state-emitting `HMM` whose words have the probabilities pi T[x_1] ... T[x_n] 1.

  If the state before the token decides it, T[x, i, j] = W_ix A_ij, the HMM has the states of T. Otherwise a state of
  the HMM is a pair (token, the state that it led to), of which there are at most S V. Pairs that cannot occur are left
  out. Pairs of one state that are entered in the same proportions are one, so that T[x, i, j] = A_ij W_jx has the
  states of T too. States of T that cannot occur are left out; others stay apart even where their futures are equal,
  since a task may speak of them. The order is that of the states of T; `next_state_probs` says which is which.

  Args:
    transition_matrices: T [V, S, S], T[x, i, j] = P[X_t = x, S_{t+1} = j | S_t = i]; over x and j they sum to 1.
    initial_probs: pi [S], P[S_1], before the first token; the stationary law if None.

  Raises:
    ValueError: a shape, an entry or a sum is wrong, or the stationary law is not unique.

  Example, runs of 1s have an even length:

    >>> from_transition_matrices([[[0.5, 0], [0, 0]], [[0, 0.5], [1, 0]]]).emission_matrix
    array([[0., 1.],
           [1., 0.],
           [0., 1.]])
  """
  hmm, _ = _converted(transition_matrices, initial_probs)
  return hmm


def next_state_probs(transition_matrices: ArrayLike | list[Any], initial_probs: ArrayLike | None = None) -> np.ndarray:
  """Return P[S_{t+1} = j | H_t = h] [H, S]: the state of T after a token, given that of the converted `HMM`.

  `filtered_probs @ next_state_probs(T)` is the belief over the states of T after each token, the states of the
  mixed-state presentation. Arguments and errors are those of `from_transition_matrices`.

  Example, the even process; its pairs (token, next state) are (0, 0), (1, 0) and (1, 1):

    >>> next_state_probs([[[0.5, 0], [0, 0]], [[0, 0.5], [1, 0]]])
    array([[1., 0.],
           [1., 0.],
           [0., 1.]])
  """
  _, probs = _converted(transition_matrices, initial_probs)
  return probs


def _converted(transition_matrices: ArrayLike | list[Any], initial_probs: ArrayLike | None) -> tuple[HMM, np.ndarray]:
  """The HMM of T [V, S, S], and the law [H, S] of the next state of T given its state."""
  given = np.atleast_3d(arguments.array('transition_matrices', transition_matrices))
  check_probs('transition_matrices', given, given.shape[:2] + given.shape[1:2], axis=(0, 2))
  T = float64(given)
  # Relative tolerance for numbers that differ by rounding; 0 equals only 0.
  rounding = 1e-6 if np.array_equal(T, np.float32(T)) else 1e-12
  are_equal = functools.partial(np.isclose, rtol=rounding, atol=0)
  T = T / T.sum((0, 2))[:, None]
  A = T.sum(0)
  pi, possible = _start(A, initial_probs)
  T, pi, states = T[:, possible][:, :, possible], pi[possible], np.eye(len(possible))[possible]
  A, W = T.sum(0), T.sum(2).T
  if are_equal(T, W.T[:, :, None] * A).all():
    return HMM(pi, A, W), A @ states
  hmm, ends = _pairs_as_states(T, pi, are_equal)
  return hmm, states[ends]


def _start(A: np.ndarray, initial_probs: ArrayLike | None) -> tuple[np.ndarray, np.ndarray]:
  """The law of the first state [S], stationary if None, and the states that can occur [S], bool."""
  if initial_probs is not None:
    pi = float64(arguments.array('initial_probs', initial_probs))
    check_probs('initial_probs', pi, A.shape[:1])
    return pi, reachable(A, pi > 0)
  recurrent = _recurrent(A)
  if not recurrent.any():
    raise ValueError(
      'transition_matrices have several stationary laws; valid are matrices with one, or give initial_probs'
    )
  return stationary_probs(A), recurrent


def _pairs_as_states(T: np.ndarray, pi: np.ndarray, are_equal: Callable[..., Any]) -> tuple[HMM, np.ndarray]:
  """The HMM of pairs (token, the state that it led to), and these states [H].

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
    group[pair] = is_same.argmax() if is_same.any() else len(first) - 1
  entering_HxS, emission_matrix = np.zeros((len(first), len(pi))), np.zeros((len(first), len(T)))
  np.add.at(entering_HxS, group, entering_PxS)
  np.add.at(emission_matrix, (group, tokens), totals)
  emission_matrix /= emission_matrix.sum(1, keepdims=True)
  return HMM(entering_HxS @ pi, entering_HxS.T[ends[first]], emission_matrix), ends[first]


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


def _spread(size: int, prob: float) -> np.ndarray:
  """Rows [size, size] with `prob` on the diagonal and the rest in equal parts."""
  return np.where(np.eye(size), prob, (1 - prob) / (size - 1))


def mess3(alpha: float = 0.85, x: float = 0.05) -> HMM:
  """Return mess3, whose posteriors over its three states lie on a fractal.

  A = x off the diagonal and 1 - 2x on it. Token j comes from state j with probability alpha, every other with
  (1 - alpha) / 2, and T[v, i, j] = A_ij W_jv.

  Source: Marzen and Crutchfield 2017, "Nearly maximally predictive features and their dimensions"; these parameters are
  those of Shai et al. 2024, "Transformers represent belief state geometry in their residual stream".

    >>> mess3().emission_matrix.round(3)
    array([[0.85 , 0.075, 0.075],
           [0.075, 0.85 , 0.075],
           [0.075, 0.075, 0.85 ]])
  """
  return HMM(np.full(3, 1 / 3), _spread(3, 1 - 2 * x), _spread(3, alpha)).validate()


def golden_mean(p: float = 0.5) -> HMM:
  """Return the golden mean process: after a 0 token 1 has probability p, and two 1s never follow each other.

  Source: the golden mean shift of Lind and Marcus 1995; `no_consecutive_ones` of github.com/Astera-org/simplexity.

    >>> golden_mean().transition_matrix.tolist(), golden_mean().emission_matrix.tolist()
    ([[0.5, 0.5], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]])
  """
  return from_transition_matrices([[[1 - p, 0], [1, 0]], [[0, p], [0, 0]]])


def even(p: float = 0.5) -> HMM:
  """Return the even process: between 0s lie even numbers of 1s, and another pair of them comes with probability p.

  Its three states are: after a pair of 1s, after a 0, after the first 1 of a pair. No Markov chain of finite order has
  its words.

  Source: Weiss 1973, "Subshifts of finite type and sofic systems"; `even_ones` of github.com/Astera-org/simplexity.

    >>> even().transition_matrix.tolist()
    [[0.0, 0.5, 0.5], [0.0, 0.5, 0.5], [1.0, 0.0, 0.0]]
  """
  return from_transition_matrices([[[1 - p, 0], [0, 0]], [[0, p], [1, 0]]])


def zero_one_random(p: float = 0.5) -> HMM:
  """Return the process 0, 1, random bit, 0, 1, random bit, ..., begun anywhere; the bit is 1 with probability p.

  Source: Shai et al. 2024, where it is Z1R.

    >>> zero_one_random().emission_matrix.tolist()
    [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]
  """
  return from_transition_matrices([[[0, 1, 0], [0, 0, 0], [1 - p, 0, 0]], [[0, 0, 0], [0, 0, 1], [p, 0, 0]]])


def random_random_xor(first: float = 0.5, second: float = 0.5) -> HMM:
  """Return the process of two random bits and their exclusive or, again and again, begun anywhere.

  Args:
    first: the probability that the first bit is 0.
    second: the probability that the second is 0.

  The states of T are: before the first bit, after a 0, after a 1, before the exclusive or 0, before 1.

  Source: Riechers and Crutchfield 2018, "Spectral simplicity of apparent complexity"; RRXOR in Shai et al. 2024.

    >>> random_random_xor().num_states
    8
  """
  emits_0 = [[0, first, 0, 0, 0], [0, 0, 0, second, 0], [0, 0, 0, 0, second], [1, 0, 0, 0, 0], [0] * 5]
  emits_1 = [[0, 0, 1 - first, 0, 0], [0, 0, 0, 0, 1 - second], [0, 0, 0, 1 - second, 0], [0] * 5, [1, 0, 0, 0, 0]]
  return from_transition_matrices([emits_0, emits_1])


def dishonest_casino(to_loaded: float = 0.05, to_fair: float = 0.1, six: float = 0.5) -> HMM:
  """Return the occasionally dishonest casino: state 0 throws a fair die, state 1 a loaded one; token v is v + 1 pips.

  Args:
    to_loaded: the probability of changing from the fair die to the loaded one.
    to_fair: the probability of changing back. The first throw has the stationary law.
    six: the probability of a six from the loaded die; other pips are equally likely.

  Source: Durbin, Eddy, Krogh and Mitchison 1998, "Biological sequence analysis", page 54.

    >>> dishonest_casino().emission_matrix[1].tolist()
    [0.1, 0.1, 0.1, 0.1, 0.1, 0.5]
  """
  transition_matrix = np.array([[1 - to_loaded, to_loaded], [to_fair, 1 - to_fair]])
  emission_matrix = np.array([[1 / 6] * 6, [(1 - six) / 5] * 5 + [six]])
  return HMM(stationary_probs(transition_matrix), transition_matrix, emission_matrix).validate()


def left_to_right(num_states: int = 4, stay: float = 0.9, own: float = 0.7) -> HMM:
  """Return a left-to-right (Bakis) model: it begins in state 0, stays or goes on by one, and ends in the last state.

  Args:
    num_states: H, which is also the number of tokens; at least 2.
    stay: the probability of staying in a state before the last, which is never left.
    own: the probability of token h from state h; other tokens are equally likely.

  Source: Rabiner 1989, "A tutorial on hidden Markov models", section IV.B.

    >>> left_to_right(3, stay=0.5).transition_matrix.tolist()
    [[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]]
  """
  arguments.check_size('num_states', num_states, 2)
  emission_matrix = _spread(num_states, own)
  transition_matrix = stay * np.eye(num_states) + (1 - stay) * np.eye(num_states, k=1)
  transition_matrix[-1, -1] = 1
  return HMM(np.eye(num_states)[0], transition_matrix, emission_matrix).validate()


@arguments.converted
def ginc(
  key: Array,
  num_concepts: int = 4,
  num_entities: int = 3,
  num_properties: int = 3,
  num_tokens: int = 10,
  *,
  transition_temperature: float = 0.1,
  initial_temperature: float = 10.0,
  stay: float = 0.9,
) -> HMM:
  """Return a random GINC-style mixture of concepts: one HMM with a block of states for each.

  A document draws a concept and keeps it. State (c, e, k) is concept c, entity e, property k, numbered in that order
  with k fastest, and A = blockdiag_c(E kron P_c): entities move by a matrix E that concepts share, properties by a
  matrix P_c of each concept. Every (e, k) has one token, the same in all concepts, and property 0 the delimiter, token
  0. `concept_probs` reads the posterior of the concept.

  Args:
    key: a PRNG key.
    num_concepts: C; 5 in the released data.
    num_entities: 10 in the released data.
    num_properties: 10 in the released data.
    num_tokens: V, at least 2; 50 in the released data.
    transition_temperature: of the mixing weights of permutations, as in `random_hmm`.
    initial_temperature: of each concept's first law.
    stay: the share of E that is the identity.

  Source: Xie et al. 2022, "An explanation of in-context learning as implicit Bayesian inference", and
  `generate_data.py` of github.com/p-lambda/incontext-learning.

  Two concepts of nine states have probability 1/2 each, words in common, and ways to move of their own:

    >>> hmm = ginc(jax.random.key(0), num_concepts=2)
    >>> concept_probs(hmm.initial_probs, 2).round(3).tolist()
    [0.5, 0.5]
    >>> bool((hmm.emission_matrix[:9] == hmm.emission_matrix[9:]).all())
    True
    >>> A = hmm.transition_matrix
    >>> bool(A[:9, 9:].any() or A[9:, :9].any()), bool(abs(A[:9, :9] - A[9:, 9:]).max() > 0.1)
    (False, True)
  """
  arguments.check_size('num_tokens', num_tokens, 2)
  key_tokens, key_initial, key_entities, *keys = jax.random.split(key, 3 + num_concepts)
  tokens = np.array(jax.random.randint(key_tokens, (num_entities, num_properties), 1, num_tokens))
  tokens[:, 0] = 0

  def moves(key: Array, size: int) -> Array:
    key_weights, key_permutations = jax.random.split(key)
    return mixed_permutations(key_weights, key_permutations, size, None, transition_temperature)

  entities = stay * np.eye(num_entities) + (1 - stay) * moves(key_entities, num_entities)
  blocks = [np.kron(entities, moves(key, num_properties)) for key in keys]
  initial = softmax_of_uniform(key_initial, (num_concepts, tokens.size), initial_temperature) / num_concepts
  emission_matrix = np.tile(np.eye(num_tokens, dtype=np.float32)[tokens.reshape(-1)], (num_concepts, 1))
  return HMM(np.ravel(initial), scipy.linalg.block_diag(*blocks), emission_matrix).validate()


@arguments.converted
def concept_probs(state_probs: Array | np.ndarray, num_concepts: int) -> Array | np.ndarray:
  """The law [..., C] of the concept, from a law [..., H] of the states of `ginc`: sums over blocks.

  >>> concept_probs(np.array([0.5, 0.25, 0.125, 0.125]), 2).tolist()
  [0.75, 0.25]
  """
  return state_probs.reshape(*state_probs.shape[:-1], num_concepts, -1).sum(-1)


NAMED: dict[str, Callable[[], HMM]] = {
  'mess3': mess3,
  'golden_mean': golden_mean,
  'even': even,
  'zero_one_random': zero_one_random,
  'random_random_xor': random_random_xor,
  'dishonest_casino': dishonest_casino,
  'left_to_right': left_to_right,
  'ginc': lambda: ginc(jax.random.key(0)),
}
