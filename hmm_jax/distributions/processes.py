"""Processes that the field knows by name, their combinations, and your own from labelled transition matrices.

`from_transition_matrices` makes a `Process` of T [V, S, S]; named functions return one, or an `HMM`, of numpy arrays,
float64 but for the random `ginc`. `NAMED` has them by name. `with_bos`, `product` and `mixture` combine whatever has
words: a `Process`, another distribution, or T itself.
"""

from collections.abc import Callable, Sequence
import functools
import inspect
from typing import Any

import jax
from jax import Array
import numpy as np
from numpy.typing import ArrayLike
import scipy.linalg

from hmm_jax._support import arguments
from hmm_jax._support.float64 import float64
from hmm_jax.distributions.hmm import HMM, mixed_permutations, softmax_of_uniform
from hmm_jax.distributions.labelled import (
  edges,
  from_transition_matrices,
  Process,
  ProcessLike,
  stationary_probs,
)


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


def golden_mean(p: float = 0.5) -> Process:
  """Return the golden mean process: after a 0 token 1 has probability p, and two 1s never follow each other.

  Source: the golden mean shift of Lind and Marcus 1995; `no_consecutive_ones` of github.com/Astera-org/simplexity.

    >>> golden_mean().transition_matrix.tolist(), golden_mean().emission_matrix.tolist()
    ([[0.5, 0.5], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]])
  """
  return from_transition_matrices([[[1 - p, 0], [1, 0]], [[0, p], [0, 0]]])


def even(p: float = 0.5) -> Process:
  """Return the even process: between 0s lie even numbers of 1s, and another pair of them comes with probability p.

  Its three states are: after a pair of 1s, after a 0, after the first 1 of a pair. No Markov chain of finite order has
  its words.

  Source: Weiss 1973, "Subshifts of finite type and sofic systems"; `even_ones` of github.com/Astera-org/simplexity.

    >>> even().transition_matrix.tolist()
    [[0.0, 0.5, 0.5], [0.0, 0.5, 0.5], [1.0, 0.0, 0.0]]
  """
  return from_transition_matrices([[[1 - p, 0], [0, 0]], [[0, p], [1, 0]]])


def zero_one_random(p: float = 0.5) -> Process:
  """Return the process 0, 1, random bit, 0, 1, random bit, ..., begun anywhere; the bit is 1 with probability p.

  Source: Shai et al. 2024, where it is Z1R.

    >>> zero_one_random().emission_matrix.tolist()
    [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]
  """
  return from_transition_matrices([[[0, 1, 0], [0, 0, 0], [1 - p, 0, 0]], [[0, 0, 0], [0, 0, 1], [p, 0, 0]]])


def random_random_xor(first: float = 0.5, second: float = 0.5) -> Process:
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
  0. `component_probs` reads the posterior of the concept.

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
    >>> component_probs(hmm.initial_probs, (9, 9)).round(3).tolist()
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


def with_bos(process: ProcessLike) -> Process:
  """Return the process whose texts begin with a token of their own, V, from a state of its own, S.

  Then [MASK] is V + 1. The next state has the law of the first of `process`.

  Args:
    process: a `Process`, another distribution, or T [V, S, S], which then starts from its stationary law.

  >>> process = with_bos(golden_mean())
  >>> process.num_tokens, process.start_probs.tolist()
  (3, [0.0, 0.0, 1.0])
  """
  T, start = edges(process)
  with_token = np.pad(T, (0, 1))
  with_token[-1, -1, :-1] = start
  return from_transition_matrices(with_token, np.eye(len(start) + 1)[-1])


def product(*processes: ProcessLike) -> Process:
  """Return independent processes side by side: T[(x, y), (i, k), (j, l)] = T_1[x, i, j] T_2[y, k, l], and so on.

  Tokens and states are numbered in C order, the last process fastest: of V_1 V_2 tokens, (x, y) is x V_2 + y, and
  `np.unravel_index(tokens, (V_1, V_2))` gives the text of each. `factor_probs` gives the belief of each.

  Args:
    *processes: each a `Process`, another distribution, or T [V, S, S], which then starts from its stationary law.

  >>> product(golden_mean(), even()).transition_matrices.shape
  (4, 4, 4)
  """
  matrices, starts = zip(*map(edges, processes))
  return from_transition_matrices(functools.reduce(np.kron, matrices), functools.reduce(np.kron, starts))


def factor_probs(state_probs: ArrayLike, num_states: Sequence[int]) -> list[np.ndarray]:
  """The belief [..., S_i] over the states of each factor, from one [..., S] over those of their `product`.

  Factors are independent given the text, so that this is what each factor's own text says of it.

  Args:
    state_probs: [..., S], such as `beliefs` of the product.
    num_states: S_1, S_2, ..., whose product is S.

  >>> [belief.tolist() for belief in factor_probs(np.array([0.5, 0, 0.25, 0.25]), (2, 2))]
  [[0.5, 0.5], [0.75, 0.25]]
  """
  joint = np.reshape(state_probs, (*np.shape(state_probs)[:-1], *num_states))
  axes = set(range(-len(num_states), 0))
  return [joint.sum(tuple(axes - {axis})) for axis in sorted(axes)]


def mixture(processes: Sequence[ProcessLike], weights: ArrayLike) -> Process:
  """Return the process whose texts are of one of several processes each, number c with probability weights[c].

  It is not ergodic: a text says ever more of its process, which `component_probs` reads from a belief. States are those
  of the first process, then those of the second, and so on; the first has its own law in each.

  Args:
    processes: each a `Process`, another distribution, or T [V, S, S], which then starts from its stationary law.
    weights: [C], probabilities.

  Raises:
    ValueError: the processes differ in V, or the weights are no probabilities.

  Example, after a 1 the golden mean process cannot have another:

    >>> import hmm_jax as hj
    >>> process = mixture([golden_mean(), even()], [0.25, 0.75])
    >>> belief = hj.beliefs(process, np.array([1, 1, 2]), causal=True)
    >>> component_probs(belief, (2, 2)).round(3).tolist()
    [[0.25, 0.75], [0.143, 0.857], [0.0, 1.0]]
  """
  matrices, starts = zip(*map(edges, processes))
  weights = float64(weights)
  arguments.check_probs('weights', weights, len(starts))
  num_tokens = [*map(len, matrices)]
  if len(set(num_tokens)) > 1:
    raise ValueError(f'processes have {num_tokens} tokens; valid is one number for all')
  T = [scipy.linalg.block_diag(*of_token) for of_token in zip(*matrices)]
  initial_probs = np.concatenate([weight * start for weight, start in zip(weights, starts)])
  return from_transition_matrices(T, initial_probs)


def component_probs(state_probs: ArrayLike, num_states: Sequence[int]) -> np.ndarray:
  """The belief [..., C] over the processes of a `mixture`, or the concepts of `ginc`, from one [..., S] over states.

  Args:
    state_probs: [..., S], such as `beliefs` of the mixture.
    num_states: S_1, ..., S_C, whose sum is S.

  >>> component_probs(np.array([0.5, 0.25, 0.25]), (1, 2)).tolist()
  [0.5, 0.5]
  """
  first_states = np.cumsum([0, *num_states[:-1]])
  return np.add.reduceat(np.asarray(state_probs), first_states, axis=-1)


NAMED: dict[str, Callable[..., HMM | Process]] = {
  'mess3': mess3,
  'golden_mean': golden_mean,
  'even': even,
  'zero_one_random': zero_one_random,
  'random_random_xor': random_random_xor,
  'dishonest_casino': dishonest_casino,
  'left_to_right': left_to_right,
  'ginc': lambda seed=0: ginc(jax.random.key(seed)),
}


def named(word: str) -> HMM | Process | None:
  """Return the process of `NAMED` that a word names, with parameters behind colons; None if it names none.

  Raises ValueError if a parameter is not of the form NAME=NUMBER, the process has no such one, or the number is not
  possible.

  >>> named('mess3:alpha=0.6:x=0.1').emission_matrix[0].round(3).tolist()
  [0.6, 0.2, 0.2]
  """
  name, *parts = word.split(':')
  if name not in NAMED:
    return None
  process = NAMED[name]
  known, numbers = inspect.signature(process).parameters, dict[str, Any]()
  for part in parts:
    parameter, _, text = part.partition('=')
    try:
      # As its default, an integer or a float.
      numbers[parameter] = type(known[parameter].default)(text)
    except (KeyError, ValueError):
      raise ValueError(f'{name} has {part!r}; valid is NAME=NUMBER, with a name of {", ".join(known)}') from None
  return process(**numbers)
