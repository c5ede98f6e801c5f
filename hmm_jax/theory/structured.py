"""Problems, a distribution with a task, and rows of small fractions with exact zeros to make them of.

Probabilities that are drawn have denominators of at most 64. Laws that follow from them, P[H_1] = A P[H_0] or a
stationary one, have what comes of it. A problem carries its fractions as `exact`, beside float64.
"""

from fractions import Fraction
from typing import Any, NamedTuple

import jax
from jax import Array
import numpy as np

from hmm_jax.hmm import HMM
from hmm_jax.memory_hmm import MemoryHMM

_LARGEST_DENOMINATOR = 64
# What a random row has positive, of its entries.
_DENSITY = 0.5


class StateProblem(NamedTuple):
  """A chain and a task on the posterior of a silent first state.

  Attributes:
    hmm: of the text; its first state follows a silent H_0.
    silent_probs: P[H_0] [H].
    task_weights: mu [C, H].
    drawn: how many proposals were drawn for it.
    exact: the same in `Fraction`s, where they are known; else None.
  """

  hmm: HMM
  silent_probs: np.ndarray
  task_weights: np.ndarray
  drawn: int
  exact: 'StateProblem | None' = None


class MemoryProblem(NamedTuple):
  """A memory-augmented HMM and a task on the posterior of one cell.

  Attributes:
    hmm: of the text.
    silent_probs: P[H_0] [H], or [M, ..., M, H]; the law of the first state is one step after it.
    task_weights: mu [C, M].
    cell: j*.
    drawn: how many proposals were drawn for it.
    exact: the same in `Fraction`s, where they are known; else None.
  """

  hmm: MemoryHMM
  silent_probs: np.ndarray
  task_weights: np.ndarray
  cell: int
  drawn: int
  exact: 'MemoryProblem | None' = None


Problem = StateProblem | MemoryProblem


def generator(key: Array) -> np.random.Generator:
  """A numpy generator that a JAX key decides; drawing by rejection is host work."""
  return np.random.default_rng(np.asarray(jax.random.bits(key, (4,), 'uint32')).tolist())


def in_floats(exact: Any) -> Any:
  """The problem in float64, with the one of `Fraction`s as its `exact`."""
  to_float = lambda leaf: leaf.astype(np.float64) if isinstance(leaf, np.ndarray) and leaf.dtype.kind == 'O' else leaf
  return jax.tree.map(to_float, exact._replace(exact=None))._replace(exact=exact)


def sparse_probs(rng: np.random.Generator, num_rows: int, size: int, density: float = _DENSITY) -> np.ndarray:
  """Distributions [num_rows, size] of `Fraction`s, each entry positive with probability `density`, and uneven.

  A row has a denominator of at most 64; one entry often dominates, as in the paper's draws.
  """
  kept = rng.random((num_rows, size)) < density
  kept[np.arange(num_rows), rng.integers(size, size=num_rows)] = True
  return np.array([composed(rng, row) for row in kept])


def full_probs(rng: np.random.Generator, size: int) -> np.ndarray:
  """A distribution [size] of `Fraction`s, all positive."""
  return composed(rng, np.ones(size, bool))


def random_weights(rng: np.random.Generator, num_classes: int, places: np.ndarray, size: int) -> np.ndarray:
  """mu [C, size] of `Fraction`s, zero but at `places`, where the classes differ, and in the last row."""
  weights = np.full((num_classes, size), Fraction(0), object)
  for place in places:
    while not weights[:, place].any():
      weights[:-1, place] = fractions(rng.integers(-16, 17, num_classes - 1), 8)
  return weights


def composed(rng: np.random.Generator, kept: np.ndarray, denominator: int | None = None) -> np.ndarray:
  """A distribution [size] of `Fraction`s that is positive where `kept` is; without a denominator, of a random one."""
  count = int(kept.sum())
  denominator = max(denominator or int(rng.integers(8, _LARGEST_DENOMINATOR + 1)), count)
  counts = np.zeros(len(kept), int)
  counts[kept] = 1 + rng.multinomial(denominator - count, rng.dirichlet(np.full(count, 0.5)))
  return fractions(counts, denominator)


def concentrated(kept: np.ndarray, place: int) -> np.ndarray:
  """A distribution [size] of `Fraction`s that is small where `kept` is, and has all the rest at one place."""
  counts = np.where(kept, 1, 0)
  counts[place] = 0
  counts[place] = _LARGEST_DENOMINATOR - counts.sum()
  return fractions(counts, int(counts.sum()))


def fractions(numerators: np.ndarray, denominator: int) -> np.ndarray:
  """Integers of any shape over one denominator, as `Fraction`s."""
  flat = [Fraction(int(numerator), denominator) for numerator in np.ravel(numerators)]
  return np.array(flat, object).reshape(np.shape(numerators))


def one_token(token: int, size: int) -> np.ndarray:
  """The distribution [size] of that token alone."""
  return fractions(np.arange(size) == token, 1)
