"""The outputs of a construction on sequences beside the exact posterior, in float64."""

from collections.abc import Callable
import functools
from typing import Any, NamedTuple

import numpy as np

from hmm_jax._support.blocks import in_blocks
from hmm_jax.theory import assumptions, padding, scoring
from hmm_jax.theory.padding import PaddedSizes
from hmm_jax.theory.scoring import Predictions
from hmm_jax.theory.theorems import Program

# The most sequences in a block.
BLOCK_SIZE = 1280
# The most entries of the messages over joint states in a block of sequences.
_MOST_ENTRIES = 2**24
# The largest relative error that float64 may explain.
TOLERANCE = 1e-9


class PredictedProblem(NamedTuple):
  """A problem and the exact model's predictions on its sequences.

  Attributes:
    problem: with its task.
    program: the theorem as a program for it.
    predictions: of the sequences, behind the prompt of the program.
    has_mass: [n], True where a recovered state or value has positive probability.
    padded: the sizes that the problem is padded to; None for its own.
  """

  problem: Any
  program: Program
  predictions: Predictions
  has_mass: np.ndarray
  padded: PaddedSizes | None = None


class Comparison(NamedTuple):
  """Comparison of a construction with the exact posterior on n sequences in the region.

  Attributes:
    error: [n], the largest |constructed - r_x posterior|.
    vector_error: [n], `error` over the largest r_x posterior; without mass, where all scores are 0, `error`.
    cosine_error: [n], one minus the cosine of the two; 0 without mass.
    label: [n], the exact one.
    off_label: [n], the construction gives another.
    gap: [n], the difference of the two best exact scores.
  """

  error: np.ndarray
  vector_error: np.ndarray
  cosine_error: np.ndarray
  label: np.ndarray
  off_label: np.ndarray
  gap: np.ndarray


def predicted(problem: Any, program: Program, tokens: np.ndarray, padded: PaddedSizes | None = None) -> Predictions:
  """Predictions of the exact model after the prompt of a program; tokens past the vocabulary are [MASK]s."""
  predict = functools.partial(scoring.predict, problem, program.prompt, program.finding, padded=padded)
  return _in_blocks(predict, problem, tokens)


def has_sure_position(problem: Any, program: Program, tokens: np.ndarray) -> np.ndarray:
  """Mask [n] of sequences [n, T] with a position whose state surely lies in H*; all for a task on states.

  The possible ones among them are those that the program's theorem covers, R (4.3). Impossible ones are not ruled out.
  """
  of_block = functools.partial(scoring.has_sure_position, problem, program.finding)
  return _in_blocks(of_block, problem, tokens)


def _in_blocks(predict: Callable[..., Any], problem: Any, tokens: np.ndarray) -> Any:
  return in_blocks(predict, np.minimum(tokens, problem.hmm.num_tokens), _at_a_time(problem, tokens))


def compared(drawn: PredictedProblem, program: Program, temperature: float = 0.0) -> Comparison:
  """Compare a prompt and a head, right or wrong, with the exact posterior of the sequences.

  `temperature` is that of the attention softmax; the theorems take its limit at 0.
  """
  predictions, has_mass, recovered = drawn.predictions, drawn.has_mass, program.recovered
  if program.prompt is not drawn.program.prompt:
    behind_prompt = predicted(drawn.problem, program, predictions.tokens, drawn.padded)
    predictions = predictions._replace(token_probs=behind_prompt.token_probs)
  head = padding.head(program.head, drawn.padded) if drawn.padded else program.head
  read = lambda block: scoring.read(block, head, temperature)
  constructed = in_blocks(read, predictions, _at_a_time(drawn.problem, predictions.tokens))[:, : len(recovered)]
  posterior, mu = (
    drawn.predictions.posterior[:, recovered],
    assumptions.contrasts(drawn.problem.task_weights)[:, recovered].T,
  )
  expected = drawn.predictions.factor[:, None] * posterior
  error, scale = np.abs(constructed - expected).max(-1), np.where(has_mass, np.abs(expected).max(-1), 1)
  apart = np.linalg.norm(_unit(constructed) - _unit(posterior), axis=-1)
  # Without mass all scores are 0, and the label is the first class: 0 >= 0.
  built = np.where(has_mass[:, None] | (np.abs(constructed).max(-1, keepdims=True) > TOLERANCE), constructed @ mu, 0)
  exact = posterior @ mu
  return Comparison(
    error=error,
    vector_error=error / scale,
    cosine_error=np.where(has_mass, apart**2 / 2, 0),
    label=exact.argmax(-1),
    off_label=exact.argmax(-1) != built.argmax(-1),
    gap=scoring.score_gaps(exact),
  )


def _at_a_time(problem: Any, tokens: np.ndarray) -> int:
  """The block size of sequences [n, T] that bounds the memory of their messages, at most `BLOCK_SIZE`."""
  return max(min(BLOCK_SIZE, _MOST_ENTRIES // (tokens.shape[1] * problem.hmm.joint_initial_probs.size)), 1)


def _unit(vectors: np.ndarray) -> np.ndarray:
  lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
  return np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
