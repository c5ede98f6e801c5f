"""An HMM in integers: the likelihood of every text, exactly.

Posteriors, ranks and proofs do not depend on scales, so that a table of `Fraction`s is kept without its common
denominator.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hmm_jax._support.rational.algebra import as_integers, fraction_rows


class IntegerChain(NamedTuple):
  """An `HMM` of integers, each array up to a positive factor.

  Attributes:
    start: [H], proportional to P[H_1].
    moves: [H, H], proportional to P[next = j | now = i].
    likelihoods: [V, H], proportional to P[token | state].
  """

  start: np.ndarray
  moves: np.ndarray
  likelihoods: np.ndarray


def integer_chain(hmm: Any) -> IntegerChain:
  """The chain of an `HMM` of floats or `Fraction`s, each row divided by its exact sum."""
  start, moves, emissions = (as_integers(fraction_rows(rows))[0] for rows in hmm)
  return IntegerChain(start, moves, emissions.T)


def following(chain: IntegerChain, tokens: Sequence[int]) -> np.ndarray:
  """P[tokens | the state before them] [H], in integers up to a positive factor."""
  message = np.ones_like(chain.start)
  for token in reversed(tokens):
    message = chain.moves @ (chain.likelihoods[token] * message)
    message //= np.gcd.reduce(message) or 1
  return message
