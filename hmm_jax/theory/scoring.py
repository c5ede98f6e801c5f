"""Scores of a construction and the exact posterior, in float64, and the sequences that its theorem covers.

Every construction is linear in mu. With mu the identity on what its theorem recovers (all states, H*, the memory,
supp(mu)) it gives that part of the posterior itself, up to a positive factor r_x that its proof names. Any label
follows from that.
"""

from collections.abc import Callable
import functools
from typing import Any, NamedTuple

import jax
from jax import Array
import jax.numpy as jnp
import numpy as np

from hmm_jax._support.float64 import positive_or_one, widened
from hmm_jax.distributions.hmm import emitted_token_probs, HMM, is_seen, text_likelihoods
from hmm_jax.distributions.memory_hmm import cell_probs, memory_forward_backward, MemoryHMM
from hmm_jax.inference.posterior import forward_backward, last_filtered
from hmm_jax.models.model import prepend
from hmm_jax.theory import padding
from hmm_jax.theory.assumptions import Finding
from hmm_jax.theory.padding import PaddedSizes
from hmm_jax.theory.problem import MemoryProblem, Problem, StateProblem
from hmm_jax.theory.recovery import recoverable_positions
from hmm_jax.tuning.heads import attention_scores, AttentionHead, LinearHead


class Predictions(NamedTuple):
  """Predictions of the exact model on n sequences after a prompt, for any head to read, and the exact answers.

  Attributes:
    posterior: [n, S], P[H_0 | x] of all states, or P[M_j* | x] of all values.
    token_probs: [n, L, V], G at the [MASK], or at all positions, the prompt first; 0 where a text has ended.
    tokens: [n, T], [MASK] (id V) after the end.
    factor: [n], the r_x of the theorem's proof.
    possible: [n], sequences of positive probability.
  """

  posterior: np.ndarray
  token_probs: np.ndarray
  tokens: np.ndarray
  factor: np.ndarray
  possible: np.ndarray


def predict(
  problem: Problem, prompt: np.ndarray, finding: Finding, tokens: np.ndarray, padded: PaddedSizes | None = None
) -> Predictions:
  """Predictions of the exact model on tokens [n, T] behind a theorem's prompt [P, E].

  A task on states sees (MASK, x). There r_x = P[X_{1:T} = x] / P[X_{2:T+1} = x] by Claim A.1, and behind a prompt the
  divisor is the probability of the fake token together with x (Lemma B.2). A task on a cell sees x. There, by Lemmas
  C.4 and C.13, r_x is the mean of P[X_i = x_i | x_{-i}, prompt] over the attended positions, and behind a prompt u =
  c P[H_0] / P[H_1] on supp(mu) that times c P[x] / P[prompt, x].

  `finding` has H*, the states that a task on a cell attends to.
  """
  if isinstance(problem, StateProblem):
    return _state_predictions(problem, prompt, tokens, padded)
  return _memory_predictions(problem, prompt, finding, tokens, padded)


def read(predictions: Predictions, head: Any, temperature: float = 0.0) -> np.ndarray:
  """Class scores [n, C] of a theorem's head. The theorems take the limit 0 of the softmax's `temperature`."""
  if isinstance(head, LinearHead):
    return predictions.token_probs[:, 0, : len(head.weights)] @ head.weights + head.bias
  if temperature:
    head, temperature = head._replace(query=head.query / temperature), 1.0
  return _attend(head, predictions.token_probs, predictions.tokens, temperature)


def has_sure_position(problem: Problem, finding: Finding, tokens: np.ndarray) -> np.ndarray:
  """Mask [n] of sequences [n, T] with a position whose state surely lies in H*; the possible ones are R (4.3).

  A task on states needs none: all are True.
  """
  if isinstance(problem, StateProblem):
    return np.ones(len(tokens), bool)
  no_prompt = np.zeros((0, problem.hmm.joint_initial_probs.size))
  _, states, _ = _memory_behind(problem.hmm, no_prompt, tokens)
  return np.asarray(recoverable_positions(problem.hmm, states, finding).any(-1))


def score_gaps(scores: np.ndarray) -> np.ndarray:
  """The best of the scores [n, C] minus the next, [n]."""
  best = np.sort(scores, axis=-1)
  return best[:, -1] - best[:, -2]


def _state_predictions(
  problem: StateProblem, prompt: np.ndarray, tokens: np.ndarray, padded: PaddedSizes | None
) -> Predictions:
  """`predict` for a task on states: (MASK, x), behind the prompt if there is one."""
  hmm, prompt, tokens = _zero_padded(problem, prompt, tokens, padded)
  silent_probs = padding.zero_pad(problem.silent_probs, hmm.num_states)
  inputs = np.pad(tokens, ((0, 0), (1, 0)), constant_values=hmm.num_tokens)
  posterior, token_probs, label_loglik, model_loglik = _state_posteriors(hmm, silent_probs, prompt, inputs)
  possible = label_loglik > -np.inf
  posterior, factor = posterior[:, : problem.hmm.num_states], _ratio(label_loglik, model_loglik)
  return Predictions(posterior, token_probs[:, None], tokens, factor, possible)


def _memory_predictions(
  problem: MemoryProblem, prompt: np.ndarray, finding: Finding, tokens: np.ndarray, padded: PaddedSizes | None
) -> Predictions:
  """`predict` for a task on a cell: x, behind the prompt if there is one."""
  hmm, padded_prompt, tokens = _zero_padded(problem, prompt, tokens, padded)
  cells, loglik = _memory_of_text(hmm, tokens)
  token_probs, prompted_states, prompted_loglik = _memory_behind(hmm, padded_prompt, tokens)
  own_states = prompted_states[:, len(prompt) :, : problem.hmm.num_states]
  attended = recoverable_positions(problem.hmm, own_states, finding)
  # P[X_i = x_i | x_{-i}, prompt], 1 for a [MASK].
  after_prompt = np.pad(token_probs[:, len(prompt) :], ((0, 0), (0, 0), (0, 1)), constant_values=1)
  seen = np.take_along_axis(after_prompt, tokens[..., None], axis=-1)[..., 0]
  mean = (seen * attended).sum(-1) / np.maximum(attended.sum(-1), 1)
  factor = mean * _prompt_scale(problem, prompt) * _ratio(loglik, prompted_loglik)
  posterior = cells[:, problem.cell, : problem.hmm.memory_size]
  return Predictions(posterior, token_probs, tokens, factor, loglik > -np.inf)


def _zero_padded(problem: Problem, prompt: np.ndarray, tokens: np.ndarray, padded: PaddedSizes | None) -> tuple:
  """The distribution, the prompt and the tokens, padded if sizes are given."""
  hmm = problem.hmm
  if not padded:
    return hmm, prompt, tokens
  tokens = padding.remasked(tokens, hmm.num_tokens, padded)
  return padding.chain(hmm, padded), padding.prompt_of(hmm, prompt, padded), tokens


def _prompt_scale(problem: MemoryProblem, prompt: np.ndarray) -> float:
  """The c of a prompt u = c P[H_0] / P[H_1] on the joint states where it is positive; 1 without a prompt."""
  silent, first = problem.silent_probs, problem.hmm.initial_probs
  # Both laws may depend on the memory, whose axes come before that of the state.
  u = prompt.reshape(len(prompt), *problem.hmm.memory_probs.shape, problem.hmm.num_states)
  scales = (u * first / positive_or_one(silent))[u * silent * first > 0]
  return max(scales, default=1.0)


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
  """exp(above - below) of log-probabilities, 0 where one is impossible."""
  both = np.isfinite(above) & np.isfinite(below)
  return np.where(both, np.exp(np.where(both, above, 0) - np.where(both, below, 0)), 0)


def _in_x64(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
  """Jit `function` with `jax_enable_x64`; its results are numpy arrays."""
  compiled = jax.jit(function, **options)

  def call(*arguments: Any) -> Any:
    with jax.enable_x64(True):
      return jax.tree.map(np.asarray, compiled(*arguments))

  return call


@_in_x64
def _state_posteriors(hmm: HMM, silent_probs: Array, prompt: Array, inputs: Array) -> tuple[Array, Array, Array, Array]:
  """P[H_0 | x], G at the [MASK] behind the prompt, and the log-evidence of text and of prompt with text."""
  hmm, silent_probs, prompt = widened((hmm, silent_probs, prompt))
  rows = text_likelihoods(hmm, inputs)
  labelled = forward_backward(hmm.starting_from(silent_probs), rows)
  seen = forward_backward(hmm, prepend(prompt, rows))
  token_probs = emitted_token_probs(hmm, seen.leave_one_out_probs[:, len(prompt)])
  return labelled.smoothed_probs[:, 0], token_probs, labelled.marginal_loglik, seen.marginal_loglik


@_in_x64
def _memory_of_text(hmm: MemoryHMM, tokens: Array) -> tuple[Array, Array]:
  """P[M_j | x] of every cell, and the log-evidence."""
  hmm = widened(hmm)
  probs, loglik = last_filtered(hmm, text_likelihoods(hmm, tokens))
  return cell_probs(hmm, probs), loglik


@_in_x64
def _memory_behind(hmm: MemoryHMM, prompt: Array, tokens: Array) -> tuple[Array, Array, Array]:
  """G and P[H_i | all others] at each position, prompt first, 0 past the end; and the log-evidence."""
  (hmm, prompt), inside = widened((hmm, prompt)), is_seen(tokens, hmm.num_tokens)
  seen = memory_forward_backward(hmm, prepend(prompt, text_likelihoods(hmm, tokens)))
  within = jnp.pad(inside, ((0, 0), (len(prompt), 0)), constant_values=True)[..., None]
  token_probs = jnp.where(within, emitted_token_probs(hmm, seen.joint.leave_one_out_probs), 0)
  return token_probs, jnp.where(within, seen.leave_one_out_probs, 0), seen.marginal_loglik


@functools.partial(_in_x64, static_argnums=3)
def _attend(head: AttentionHead, token_probs: Array, tokens: Array, temperature: float) -> Array:
  return attention_scores(widened(head), token_probs, tokens, temperature)
