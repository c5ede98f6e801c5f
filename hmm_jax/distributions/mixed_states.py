"""Mixed states of a process, which are the beliefs that its texts lead to, and the entropies that follow from them.

A mixed state is a law over the states of T [V, S, S]; b goes by token x to b T[x] / (b T[x] 1), with probability
b T[x] 1. Texts that lead to the same mixed state are one, so that a process of few takes many tokens.
"""

from collections.abc import Iterator
from typing import NamedTuple
import warnings

import numpy as np
import scipy.linalg
import scipy.special

from hmm_jax._support import arguments
from hmm_jax._support.display import helped, shown
from hmm_jax._support.float64 import with_promotion
from hmm_jax.distributions.labelled import edges, ProcessLike

# Numbers this close are one.
_TOLERANCE = 1e-12


@shown
class MixedStates(NamedTuple):
  """The beliefs that texts of up to `depth` tokens lead to, in increasing order.

  Attributes:
    beliefs: [n, S], P[S_{L+1} | x_{1:L}].
    probs: [depth + 1, n], entry (L, k) = P[the belief after L tokens is k]; each row sums to 1.

  >>> from hmm_jax.distributions.processes import golden_mean
  >>> mixed_states(golden_mean(), depth=1).beliefs.round(3).tolist()
  [[0.0, 1.0], [0.667, 0.333], [1.0, 0.0]]
  """

  beliefs: np.ndarray
  probs: np.ndarray


@with_promotion
def mixed_states(process: ProcessLike, depth: int) -> MixedStates:
  """The mixed-state presentation: the beliefs after texts of 0 to `depth` tokens, each one once, with probabilities.

  Beliefs that differ by less than about 1e-12 are one. There are up to (V^(depth + 1) - 1) / (V - 1), as of mess3, or
  few, however long the texts are.

  Args:
    process: a `Process`, another distribution, or T [V, S, S], which then starts from its stationary law.
    depth: the number of tokens of the longest text.

  Raises:
    ValueError: the depth is no integer of at least 0, or the matrices are wrong.

  Source: Riechers and Crutchfield 2018, "Spectral simplicity of apparent complexity".

  Random-random-xor has 36, of which its 5 states are certain:

    >>> from hmm_jax.distributions.processes import random_random_xor
    >>> found = mixed_states(random_random_xor(), depth=20)
    >>> len(found.beliefs), int((found.beliefs.max(1) == 1).sum())
    (36, 5)
  """
  arguments.check_size('depth', depth, 0)
  T, start = edges(process)
  beliefs, probs = zip(*_levels(T, start[None], np.ones(1), depth))
  by_level = scipy.linalg.block_diag(*probs)
  merged, merged_probs = _merged(np.concatenate(beliefs), by_level.T)
  return MixedStates(merged, merged_probs.T)


@helped
class Entropies(NamedTuple):
  """Entropies of a process, in nats; divide by log 2 for bits. h is the entropy rate, lim H(L) / L.

  Attributes:
    block_entropies: [length + 1], H(L) = H[X_{1:L}], from H(0) = 0 on.
    myopic_entropies: [length], h(L) = H[X_L | X_{1:L-1}] = H(L) - H(L - 1), from h(1) on: the least loss of a causal
      model at each position.
    entropy_rate: [2], bounds low and high of h: H[X_L | X_{1:L-1}, S_1] <= h <= h(L) at L = `length`; both are h if the
      process is unifilar.
    excess_entropy: [2], bounds low and high of E = I[past; future] = sum_L (h(L) - h).
    statistical_complexity: C = H[causal state], of a unifilar process; NaN for another.

  The last three are NaN unless the process starts from a stationary law.

  >>> from hmm_jax.distributions.processes import golden_mean
  >>> entropies(golden_mean(), length=2).myopic_entropies.round(4).tolist()
  [0.6365, 0.4621]
  """

  block_entropies: np.ndarray
  myopic_entropies: np.ndarray
  entropy_rate: np.ndarray
  excess_entropy: np.ndarray
  statistical_complexity: float


@with_promotion
def entropies(process: ProcessLike, length: int) -> Entropies:
  """The entropies of texts of up to `length` tokens, and bounds of those of endless ones, exact but for rounding.

  They cost a pass over the `mixed_states` of depth `length`. A process is unifilar if state and token decide the next
  state. Bounds are of a stationary process: with U the entropy of S_{L+1} given X_{1:L},

    H(L) - L h_high <= E <= H(L) - L h_low + U - H[S_{L+1} | X_{1:L}, S_1],

  since the past tells the future no more than X_{1:L} and S_{L+1} do, and is told by S_1.

  Args:
    process: a `Process`, another distribution, or T [V, S, S], which then starts from its stationary law.
    length: the number of tokens, at least 1.

  Raises:
    ValueError: the length is no integer of at least 1, or the matrices are wrong.

  Source: Crutchfield and Feldman 2003, "Regularities unseen, randomness observed"; for the bounds of h Cover and Thomas
  2006, "Elements of information theory", theorem 4.5.1.

  The golden mean process has h = 2/3 bits and C = .918 bits:

    >>> from hmm_jax.distributions.processes import golden_mean
    >>> found = entropies(golden_mean(), length=10)
    >>> (found.entropy_rate / np.log(2)).round(4).tolist(), (found.statistical_complexity / np.log(2)).round(4).item()
    ([0.6667, 0.6667], 0.9183)
  """
  arguments.check_size('length', length)
  T, start = edges(process)
  myopic, uncertainty = _walk(T, start[None], np.ones(1), length)
  block = np.append(0, np.cumsum(myopic))
  if not np.allclose(start @ T.sum(0), start, rtol=0, atol=1e-6):
    warnings.warn(
      'the process does not start from its stationary law: only its entropies of texts are known', stacklevel=3
    )
    unknown = np.full(2, np.nan)
    return Entropies(block, myopic, unknown, unknown, np.nan)
  from_states, uncertainty_from_states = _walk(T, np.eye(len(start)), start, length)
  rate, complexity = np.array([from_states[-1], myopic[-1]]), np.nan
  # State and token decide the next state.
  if np.count_nonzero(T[:, start > 0], axis=2).max() == 1:
    rate, complexity = rate[[0, 0]], float(_entropy(_causal_state_probs(T, start)))
  excess = block[-1] - length * rate[::-1]
  excess[1] += uncertainty - uncertainty_from_states
  return Entropies(block, myopic, rate, excess, complexity)


def _walk(T: np.ndarray, beliefs: np.ndarray, probs: np.ndarray, length: int) -> tuple[np.ndarray, float]:
  """The mean entropies [length] of each token given the beliefs before it, and that of the state after all tokens."""
  levels = list(_levels(T, beliefs, probs, length))
  token_probs = T.sum(2).T
  of_tokens = [probs @ _entropy(beliefs @ token_probs) for beliefs, probs in levels[:-1]]
  beliefs, probs = levels[-1]
  return np.array(of_tokens), probs @ _entropy(beliefs)


def _levels(
  T: np.ndarray, beliefs: np.ndarray, probs: np.ndarray, depth: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
  """The beliefs [n, S] after 0, 1, ..., `depth` tokens and their probabilities [n]."""
  yield beliefs, probs
  for _ in range(depth):
    weights = np.einsum('n,ni,vij->nvj', probs, beliefs, T).reshape(-1, T.shape[-1])
    weights = weights[weights.any(1)]
    probs = weights.sum(1)
    beliefs, probs = _merged(weights / probs[:, None], probs)
    yield beliefs, probs


def _merged(beliefs: np.ndarray, probs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Beliefs [n, S] of which each is there once, in increasing order, and sums of their probs [n, ...]."""
  _, first, group = np.unique(_cells(beliefs), axis=0, return_index=True, return_inverse=True)
  sums = np.zeros((len(first), *probs.shape[1:]))
  np.add.at(sums, group.ravel(), probs)
  return beliefs[first], sums


def _cells(x: np.ndarray) -> np.ndarray:
  """The cell of a fine grid that each number is in; simple fractions are at no border of it."""
  return np.floor(x / _TOLERANCE + 1 / np.e)


def _entropy(probs: np.ndarray) -> np.ndarray:
  """Entropies [...] of laws [..., K] in nats."""
  return scipy.special.entr(probs).sum(-1)


def _causal_state_probs(T: np.ndarray, start: np.ndarray) -> np.ndarray:
  """The law of the causal state of a stationary unifilar process: states with equal futures are one.

  Classes are split until the states of one have the same law of the token and lead by it to the same class (Moore
  1956), which takes at most S rounds.
  """
  token_probs, following = T.sum(2).T, T.argmax(2).T
  classes = np.zeros(len(start), int)
  for _ in start:
    next_classes = np.where(token_probs > 0, classes[following], -1)
    _, classes = np.unique(np.hstack([_cells(token_probs), next_classes]), axis=0, return_inverse=True)
    classes = classes.ravel()
  return np.bincount(classes, start)
