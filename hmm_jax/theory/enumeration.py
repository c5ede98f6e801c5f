"""Every sequence up to a length, and all texts of one length with their probabilities, labels and features."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hmm_jax._support.float64 import positive_or_one
from hmm_jax.distributions.hmm import HMM
from hmm_jax.theory import assumptions, scoring
from hmm_jax.theory.problem import StateProblem
from hmm_jax.tuning.tasks import labelled


class Texts(NamedTuple):
  """Texts x of T tokens after a masked first one, likeliest first.

  Attributes:
    tokens: [n, T] int32.
    probs: [n], P[X_{1:T} = x]; over all texts they sum to 1.
    features: [n, V], G_1 of (MASK, x).
    labels: [n], F* of P[H_0 | x]; ties go to the lower class, as in the paper's F* = 1.
    gaps: [n], distance of the label from a tie: the difference of the two best scores in units of |mu| P[H_0 | x], with
      a rounding error of about 1e-15. Infinite where mu weighs no possible state: 0 >= 0 is no near tie.
  """

  tokens: np.ndarray
  probs: np.ndarray
  features: np.ndarray
  labels: np.ndarray
  gaps: np.ndarray


def all_texts(num_tokens: int, length: int) -> np.ndarray:
  """Every text of `length` tokens, [V^T, T] int32, in the order of their digits."""
  return np.indices((num_tokens,) * length, np.int32).reshape(length, -1).T


def all_sequences(num_tokens: int, longest: int, length: int) -> np.ndarray:
  """Every sequence of 1 to `longest` tokens, [n, length] int32, with [MASK] (id V) after the end.

  A [MASK] at the end is no evidence, so that posteriors and predictions at the tokens are those of the shorter
  sequence.
  """
  padded = []
  for size in range(1, longest + 1):
    tokens = all_texts(num_tokens, size)
    padded.append(np.pad(tokens, ((0, 0), (0, length - size)), constant_values=num_tokens))
  return np.concatenate(padded)


def possible_texts(problem: StateProblem, length: int) -> Texts:
  """The texts of `length` tokens with positive probability, likeliest first.

  Rows of the HMM are divided by their sums.
  """
  hmm, mu = HMM(*map(normalised, problem.hmm)), assumptions.contrasts(problem.task_weights)
  of_silent = StateProblem(hmm, normalised(problem.silent_probs), mu)
  answers = scoring.answer(of_silent, all_texts(hmm.num_tokens, length))
  order = np.argsort(-answers.loglik, kind='stable')[: np.isfinite(answers.loglik).sum()]
  tokens, posterior = answers.tokens[order], answers.posterior[order]
  of_first = of_silent._replace(silent_probs=normalised(hmm.initial_probs))
  features = scoring.answer(of_first, tokens).posterior @ hmm.emission_matrix
  task, sizes = labelled(mu, posterior), (posterior @ np.abs(mu).T).max(-1)
  gaps = np.divide(task.margins, sizes, out=np.full(len(sizes), np.inf), where=sizes > 0)
  return Texts(tokens, np.exp(answers.loglik[order]), features, task.labels, gaps)


def normalised(weights: ArrayLike) -> np.ndarray:
  """Rows, on the last axis, divided by their sums in float64; zero rows stay zero."""
  weights = np.asarray(weights, np.float64)
  return weights / positive_or_one(weights.sum(-1, keepdims=True))
