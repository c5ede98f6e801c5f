"""Scores of a construction and the exact posterior, in float64, and the sequences that its theorem covers.

Every construction is linear in mu. With mu the identity on what its theorem recovers (all states, H*, the memory,
supp(mu)) it gives that part of the posterior itself, up to a positive factor r_x that its proof names. Any label
follows from that, ties included.
"""

from collections.abc import Callable
import functools
from typing import Any, NamedTuple

import jax
from jax import Array
import jax.numpy as jnp
import numpy as np

from hmm_jax._support.blocks import in_blocks
from hmm_jax._support.float64 import positive_or_one
from hmm_jax.distributions.hmm import emitted_token_probs, HMM, is_seen, text_likelihoods
from hmm_jax.distributions.memory_hmm import memory_forward_backward, MemoryHMM
from hmm_jax.inference.posterior import forward_backward
from hmm_jax.models.model import prepend
from hmm_jax.theory.assumptions import Finding
from hmm_jax.theory.problem import MemoryProblem, Problem, StateProblem
from hmm_jax.theory.recovery import recoverable_positions
from hmm_jax.tuning.heads import attention_scores, AttentionHead, LinearHead

# The most sequences in a block, and the most entries of its largest array.
BLOCK_SIZE = 256
_MOST_ENTRIES = 2**24
# Scores up to this are compared as they are, since rounding of G (1e-16) times a head's weights is a part of them.
_SMALL = 1e-4
# Attention takes scores up to this apart for ties (`argmax_weights`), here masses on H*.
_TIE = np.finfo(np.float64).eps ** (2 / 3)


class Answers(NamedTuple):
  """The exact answers on n sequences.

  Attributes:
    tokens: [n, T], [MASK] (id V) after the end.
    posterior: [n, S], P[H_0 | x] of all states, or P[M_j* | x] of all values.
    states: with a memory P[H_i | x_{-i}] [n, T, H], 0 past the end; without one [n, 0, H].
    loglik: [n], log P[X_{1:T} = x]; -inf where it is impossible.
  """

  tokens: np.ndarray
  posterior: np.ndarray
  states: np.ndarray
  loglik: np.ndarray


class Predictions(NamedTuple):
  """Predictions of the exact model on n sequences after a prompt, for any head to read.

  Attributes:
    token_probs: [n, L, V], G at the [MASK], or at all positions, the prompt first; 0 where a text has ended.
    tokens: [n, T], [MASK] (id V) after the end.
    factor: [n], the r_x of the theorem's proof.
  """

  token_probs: np.ndarray
  tokens: np.ndarray
  factor: np.ndarray


def answer(problem: Problem, tokens: np.ndarray) -> Answers:
  """The exact answers on tokens [n, T]."""
  of_problem: Any = _state_answers if isinstance(problem, StateProblem) else _cell_answers
  return in_blocks(functools.partial(of_problem, problem), tokens, _block_size(problem, tokens))


def in_region(problem: Problem, finding: Finding, answers: Answers) -> np.ndarray:
  """Mask [n] of possible sequences that a theorem covers, whose finding has H*.

  With a memory they are those of R (4.3): the state of some position surely lies in H*.
  """
  is_possible = answers.loglik > -np.inf
  if isinstance(problem, StateProblem):
    return is_possible
  return is_possible & recoverable_positions(problem.hmm, answers.states, finding).any(-1)


def predict(problem: Problem, prompt: np.ndarray, finding: Finding, answers: Answers) -> Predictions:
  """Predictions of the exact model on these sequences behind a theorem's prompt [P, E].

  A task on states sees (MASK, x). There r_x = P[X_{1:T} = x] / P[X_{2:T+1} = x] by Claim A.1, and behind a prompt the
  divisor is the probability of the fake token together with x (Lemma B.2). A task on a cell sees x. There, by Lemmas
  C.4 and C.13, r_x is the mean of P[X_i = x_i | x_{-i}, prompt] over the attended positions, and behind a prompt u =
  c P[H_0] / P[H_1] on supp(mu) that times c P[x] / P[prompt, x].
  """
  size = _block_size(problem, answers.tokens)
  if isinstance(problem, StateProblem):
    return in_blocks(functools.partial(_state_predictions, problem, prompt), answers, size)
  return in_blocks(functools.partial(_memory_predictions, problem, prompt, finding), answers, size)


def read(predictions: Predictions, head: Any) -> np.ndarray:
  """Class scores [n, C] of a theorem's head. Attention is at temperature 0, the limit that the theorems take."""
  if isinstance(head, LinearHead):
    return predictions.token_probs[:, 0] @ head.weights + head.bias
  entries = len(head.positions) * len(head.output)
  inputs = predictions.token_probs, predictions.tokens
  return in_blocks(lambda block: _attend(head, *block), inputs, max(min(BLOCK_SIZE, _MOST_ENTRIES // entries), 1))


def relative_errors(scores: np.ndarray, expected: np.ndarray) -> np.ndarray:
  """The largest difference [n] of scores [n, K] from a posterior times r_x [n, K], each over its largest entry.

  So a positive factor is no error, a negative one is 2, and zeros in place of a posterior are 1. Vectors without an
  entry above 1e-4 are divided by that instead.
  """
  return np.abs(_over_largest(scores) - _over_largest(expected)).max(-1)


def _block_size(problem: Problem, tokens: np.ndarray) -> int:
  """The number of sequences whose messages fit into a block."""
  entries = tokens.shape[1] * problem.hmm.joint_initial_probs.size
  return max(min(BLOCK_SIZE, _MOST_ENTRIES // entries), 1)


def _over_largest(vectors: np.ndarray) -> np.ndarray:
  largest = np.abs(vectors).max(-1, keepdims=True)
  return vectors / np.maximum(largest, _SMALL)


def _state_answers(problem: StateProblem, tokens: np.ndarray) -> Answers:
  """`answer` for a task on states, of (MASK, x)."""
  hmm = problem.hmm.starting_from(problem.silent_probs)
  posterior, _, loglik = _at_mask(hmm, np.zeros((0, hmm.num_states)), _after_mask(hmm, tokens))
  return Answers(tokens, posterior, np.zeros((len(tokens), 0, hmm.num_states)), loglik)


def _state_predictions(problem: StateProblem, prompt: np.ndarray, answers: Answers) -> Predictions:
  """`predict` for a task on states: (MASK, x), behind the prompt if there is one."""
  _, token_probs, loglik = _at_mask(problem.hmm, prompt, _after_mask(problem.hmm, answers.tokens))
  return Predictions(token_probs[:, None], answers.tokens, _ratio(answers.loglik, loglik))


def _after_mask(hmm: HMM, tokens: np.ndarray) -> np.ndarray:
  return np.pad(tokens, ((0, 0), (1, 0)), constant_values=hmm.num_tokens)


def _cell_answers(problem: MemoryProblem, tokens: np.ndarray) -> Answers:
  """`answer` for a task on a cell, of x."""
  hmm = problem.hmm
  seen = _of_memory(hmm, np.zeros((0, hmm.joint_initial_probs.size)), tokens)
  return Answers(tokens, seen.cells[:, problem.cell], seen.states, seen.loglik)


def _memory_predictions(problem: MemoryProblem, prompt: np.ndarray, finding: Finding, answers: Answers) -> Predictions:
  """`predict` for a task on a cell: x, behind the prompt if there is one."""
  hmm, tokens, own = problem.hmm, answers.tokens, slice(len(prompt), None)
  behind = _of_memory(hmm, prompt, tokens)
  ties = finding._replace(thresholds=finding.thresholds._replace(support=_TIE))
  attended = recoverable_positions(hmm, behind.states[:, own], ties)
  # P[X_i = x_i | x_{-i}, prompt], 1 for a [MASK].
  after_prompt = np.pad(behind.token_probs[:, own], ((0, 0), (0, 0), (0, 1)), constant_values=1)
  seen = np.take_along_axis(after_prompt, tokens[..., None], axis=-1)[..., 0]
  mean = (seen * attended).sum(-1) / np.maximum(attended.sum(-1), 1)
  factor = mean * _prompt_scale(problem, prompt) * _ratio(answers.loglik, behind.loglik)
  return Predictions(behind.token_probs, tokens, factor)


def _prompt_scale(problem: MemoryProblem, prompt: np.ndarray) -> float:
  """The c of a prompt u = c P[H_0] / P[H_1] on the joint states where it is positive; 1 without a prompt."""
  silent, first = problem.silent_probs, problem.hmm.initial_probs
  # Both laws may depend on the memory, whose axes come before that of the state.
  u = prompt.reshape(len(prompt), *problem.hmm.memory_probs.shape, problem.hmm.num_states)
  return (u * first / positive_or_one(silent)).max(initial=0) or 1.0


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
  """exp(above - below) of log-probabilities, 0 where one is impossible."""
  both = np.isfinite(above) & np.isfinite(below)
  return np.exp(np.subtract(above, below, out=np.full_like(above, -np.inf), where=both))


def _in_x64(function: Callable[..., Any]) -> Callable[..., Any]:
  """Jit `function` with `jax_enable_x64`; its results are numpy arrays."""
  compiled = jax.jit(function)

  def call(*arguments: Any) -> Any:
    with jax.enable_x64(True):
      return jax.device_get(compiled(*arguments))

  return call


@_in_x64
def _at_mask(hmm: HMM, prompt: Array, inputs: Array) -> tuple[Array, Array, Array]:
  """The state's posterior and G at the [MASK] behind the prompt, and the log-evidence."""
  seen = forward_backward(hmm, prepend(prompt, text_likelihoods(hmm, inputs)))
  mask = len(prompt)
  return seen.smoothed_probs[:, mask], emitted_token_probs(hmm, seen.leave_one_out_probs[:, mask]), seen.marginal_loglik


class _Memory(NamedTuple):
  """P[M_j | x] of every cell; G and P[H_i | all others] by position, prompt first, 0 past the end; the log-evidence."""

  cells: Any
  token_probs: Any
  states: Any
  loglik: Any


@_in_x64
def _of_memory(hmm: MemoryHMM, prompt: Array, tokens: Array) -> _Memory:
  inside = is_seen(tokens, hmm.num_tokens)
  seen = memory_forward_backward(hmm, prepend(prompt, text_likelihoods(hmm, tokens)))
  within = jnp.pad(inside, ((0, 0), (len(prompt), 0)), constant_values=True)[..., None]
  token_probs = jnp.where(within, emitted_token_probs(hmm, seen.joint.leave_one_out_probs), 0)
  states = jnp.where(within, seen.leave_one_out_probs, 0)
  return _Memory(seen.cell_probs, token_probs, states, seen.marginal_loglik)


@_in_x64
def _attend(head: AttentionHead, token_probs: Array, tokens: Array) -> Array:
  return attention_scores(head, token_probs, tokens, argmax=True)
