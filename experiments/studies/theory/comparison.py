"""What a construction gives on sequences beside what is true of them, in float64."""

from typing import Any, NamedTuple

import numpy as np

from hmm_jax.blocks import in_blocks
from hmm_jax.theory.exact.problem import Problem
from hmm_jax.theory.theorems import scoring
from hmm_jax.theory.theorems.assumptions import Finding
from hmm_jax.theory.theorems.padding import PaddedSizes
from hmm_jax.theory.theorems.scoring import Predictions
from hmm_jax.theory.theorems.theorems import Program

# Sequences that are evaluated at a time.
BLOCK_SIZE = 1280
# Sequences that a head reads at a time: as many as were drawn, which are always the same number.
_READ_AT_A_TIME = 2**15
# The largest relative error that float64 is trusted with.
TOLERANCE = 1e-9


class BalancedProblem(NamedTuple):
  """A problem with a balanced task, and the sequences in its region.

  Attributes:
    problem: with that task.
    program: the theorem as a program for it.
    predictions: of those sequences, all different.
    has_mass: [n], which leave something that is recovered any probability, by the supports alone.
    enumerated: how many of them are of every sequence up to a length.
    rejected: HMMs that were drawn before: of too small a region, or without a balanced task.
  """

  problem: Any
  program: Program
  predictions: Predictions
  has_mass: np.ndarray
  enumerated: int
  rejected: int


class Comparison(NamedTuple):
  """Of n sequences in the region, how what was constructed stands to what is true.

  Attributes:
    has_mass: [n], the posterior gives something that is recovered probability. Where it does not all scores are 0.
    error: [n], the largest |constructed - r_x posterior|.
    vector_error: [n], that over the largest r_x posterior; without mass the same.
    cosine_error: [n], one minus the cosine of the two; 0 without mass.
    label: [n], the exact one.
    built_label: [n], that of the construction.
    gap: [n], the difference of the two best exact scores.
  """

  has_mass: np.ndarray
  error: np.ndarray
  vector_error: np.ndarray
  cosine_error: np.ndarray
  label: np.ndarray
  built_label: np.ndarray
  gap: np.ndarray


def predicted(
  problem: Problem, prompt: np.ndarray, finding: Finding, tokens: np.ndarray, padded: PaddedSizes
) -> Predictions:
  """What the exact model says behind a prompt; tokens past the vocabulary are [MASK]s."""
  own = np.minimum(tokens, problem.hmm.num_tokens)
  return in_blocks(lambda block: scoring.predict(problem, prompt, finding, block, padded), own, BLOCK_SIZE)


def predicted_behind(
  problem: Problem, prompt: np.ndarray, predictions: Predictions, padded: PaddedSizes
) -> Predictions:
  """The same sequences with another prompt before them."""
  return in_blocks(lambda block: scoring.behind(block, problem, prompt, padded), predictions, BLOCK_SIZE)


def read(predictions: Predictions, head: Any, padded: PaddedSizes, size: int, temperature: float = 0.0) -> np.ndarray:
  """Class scores [n, C] of a theorem's head, of so many sequences at a time."""
  return in_blocks(lambda block: scoring.read(block, head, padded, temperature), predictions, size)


def compared(drawn: BalancedProblem, head: Any, predictions: scoring.Predictions, padded: PaddedSizes) -> Comparison:
  """A head on predictions of its prompt, beside the truth of the sequences that were drawn."""
  recovered = drawn.program.recovered
  constructed = read(predictions, head, padded, min(len(predictions.tokens), _READ_AT_A_TIME))[:, : len(recovered)]
  posterior, factor = drawn.predictions.posterior[:, recovered], drawn.predictions.factor[:, None]
  mu = drawn.problem.task_weights[:, recovered].T
  has_mass, expected = drawn.has_mass, factor * posterior
  error, scale = np.abs(constructed - expected).max(-1), np.where(has_mass, np.abs(expected).max(-1), 1)
  apart = np.linalg.norm(_unit(constructed) - _unit(posterior), axis=-1)
  # Where nothing has mass all scores are 0, and a score of 0 is the first class's: 0 >= 0.
  built = np.where(has_mass[:, None] | (np.abs(constructed).max(-1, keepdims=True) > TOLERANCE), constructed @ mu, 0)
  exact = posterior @ mu
  return Comparison(
    has_mass=has_mass,
    error=error,
    vector_error=error / scale,
    cosine_error=np.where(has_mass, apart**2 / 2, 0),
    label=exact.argmax(-1),
    built_label=built.argmax(-1),
    gap=scoring.score_gaps(exact),
  )


def _unit(vectors: np.ndarray) -> np.ndarray:
  lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
  return np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
