"""Problems (a distribution with a task), and the random rows of small fractions with exact zeros that they use.

Drawn probabilities have denominators of at most 64; derived laws, P[H_1] = A P[H_0] or a stationary one, may have
larger ones. All are float64.
"""

from typing import NamedTuple

import jax
from jax import Array
import numpy as np

from hmm_jax.distributions.hmm import HMM
from hmm_jax.distributions.memory_hmm import MemoryHMM

_LARGEST_DENOMINATOR = 64
# The share of positive entries in a random row.
_DENSITY = 0.5


class StateProblem(NamedTuple):
  """A chain and a task on the posterior of a silent first state.

  Attributes:
    hmm: of the text; its first state follows a silent H_0.
    silent_probs: P[H_0] [H].
    task_weights: mu [C, H].

  >>> from hmm_jax.theory.counterexamples import head_fails_prompt_succeeds
  >>> head_fails_prompt_succeeds().task_weights.tolist()
  [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
  """

  hmm: HMM
  silent_probs: np.ndarray
  task_weights: np.ndarray


class MemoryProblem(NamedTuple):
  """A memory-augmented HMM and a task on the posterior of one cell.

  Attributes:
    hmm: of the text.
    silent_probs: P[H_0] [H], or [M, ..., M, H]; the law of the first state is one step after it.
    task_weights: mu [C, M].
    cell: j*.

  >>> from hmm_jax.theory.counterexamples import head_fails_attention_succeeds
  >>> problem = head_fails_attention_succeeds()
  >>> problem.silent_probs.tolist(), problem.task_weights.tolist(), problem.cell
  ([0.25, 0.5, 0.25], [[1.0, 0.0], [0.0, 1.0]], 0)
  """

  hmm: MemoryHMM
  silent_probs: np.ndarray
  task_weights: np.ndarray
  cell: int


Problem = StateProblem | MemoryProblem


def generator(key: Array) -> np.random.Generator:
  """A numpy generator seeded by a JAX key; rejection sampling runs on the host."""
  return np.random.default_rng(np.asarray(jax.random.bits(key, (4,), 'uint32')).tolist())


def sparse_probs(
  rng: np.random.Generator, num_rows: int, size: int, density: float = _DENSITY, denominator: int | None = None
) -> np.ndarray:
  """Distributions [num_rows, size] of small fractions, each entry positive with probability `density`, and uneven.

  Without a denominator a row has a random one of at most 64; one entry often dominates, as in the paper's draws.
  """
  kept = rng.random((num_rows, size)) < density
  kept[np.arange(num_rows), rng.integers(size, size=num_rows)] = True
  return np.array([composed(rng, row, denominator) for row in kept])


def full_probs(rng: np.random.Generator, size: int) -> np.ndarray:
  """A distribution [size] of small fractions, all positive."""
  return composed(rng, np.ones(size, bool))


def random_weights(rng: np.random.Generator, num_classes: int, places: np.ndarray, size: int) -> np.ndarray:
  """mu [C, size] in eighths, zero in the last row and outside `places`, at each of which the classes differ."""
  weights = np.zeros((num_classes, size))
  for place in places:
    while not weights[:, place].any():
      weights[:-1, place] = rng.integers(-16, 17, num_classes - 1) / 8
  return weights


def composed(rng: np.random.Generator, kept: np.ndarray, denominator: int | None = None) -> np.ndarray:
  """A distribution [size] of small fractions, positive where `kept` is; without a denominator, of a random one."""
  counts, count = np.zeros(len(kept), int), int(np.count_nonzero(kept))
  denominator = max(denominator or int(rng.integers(8, _LARGEST_DENOMINATOR + 1)), count)
  # Often uneven.
  counts[kept] = 1 + rng.multinomial(denominator - count, rng.dirichlet(np.full(count, 0.5)))
  return counts / denominator


def concentrated(kept: np.ndarray, place: int) -> np.ndarray:
  """A distribution [size] in 64ths, small where `kept` is, with the remaining mass at `place`."""
  counts = np.where(kept, 1, 0)
  counts[place] = 0
  counts[place] = _LARGEST_DENOMINATOR - counts.sum()
  return counts / counts.sum()
