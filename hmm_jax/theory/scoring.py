"""A construction beside the exact label, in float64: the scores of both, and where the theorem speaks."""

import functools
from typing import NamedTuple

import jax
from jax import Array
import jax.numpy as jnp
import numpy as np

from hmm_jax import inference, tuning
from hmm_jax.float64 import as_float64, widened
from hmm_jax.heads import attention_scores, Linear
from hmm_jax.hmm import conditional_token_probs, Distribution, HMM, token_likelihoods
from hmm_jax.memory_hmm import memory_forward_backward
from hmm_jax.model import ExactModel, prepend
from hmm_jax.sampling import sample_corpus
from hmm_jax.theory import assumptions
from hmm_jax.theory.assumptions import Finding
from hmm_jax.theory.recovery import Construction, recoverable_region
from hmm_jax.theory.structured import MemoryProblem, StateProblem


class Evaluation(NamedTuple):
  """Scores of n sequences.

  Attributes:
    exact: [n, C], mu relative to its last class on the exact posterior; its argmax is the label F*.
    constructed: [n, C], of the construction on the exact model.
    possible: [n], sequences of positive probability.
    in_region: [n], those that the theorem speaks of: all possible ones, or those in R (4.3).
  """

  exact: np.ndarray
  constructed: np.ndarray
  possible: np.ndarray
  in_region: np.ndarray


class Count(NamedTuple):
  """How a construction did.

  Attributes:
    sequences: possible ones.
    in_region: those of them that the theorem speaks of; the other counts are among these.
    disagreements: the construction's label is not the exact one.
    outside_margin: those of them whose two best exact scores differ by more than the margin.
    ties: sequences whose two best exact scores differ by no more than the margin.
    smallest_gap: the least difference of the two best exact scores above the margin; infinite without any.
  """

  sequences: int
  in_region: int
  disagreements: int
  outside_margin: int
  ties: int
  smallest_gap: float


def all_sequences(num_tokens: int, max_length: int) -> np.ndarray:
  """Every sequence of 1 to `max_length` tokens, [n, T] int32, with [MASK] (id V) after the end.

  A [MASK] at the end says nothing, so that posteriors and predictions at the tokens are those of the shorter sequence.
  """
  of_length = lambda length: np.indices((num_tokens,) * length, np.int32).reshape(length, -1).T
  padded = [
    np.pad(of_length(length), ((0, 0), (0, max_length - length)), constant_values=num_tokens)
    for length in range(1, max_length + 1)
  ]
  return np.concatenate(padded)


def possible_sequences(distribution: Distribution, max_length: int) -> np.ndarray:
  """The sequences of `all_sequences` that have positive probability, by the supports alone, shortest first."""
  moves = np.asarray(distribution.transition_matrix) > 0
  emits_VxE = np.asarray(distribution.joint_emission_matrix).T > 0
  alive = np.asarray(distribution.joint_initial_probs)[None] > 0
  tokens, found = np.zeros((1, 0), np.int32), []
  for length in range(1, max_length + 1):
    if length > 1:
      alive = (alive.reshape(len(alive), -1, len(moves)) @ moves).reshape(alive.shape)
    extended = alive[:, None] & emits_VxE
    before, token = np.nonzero(extended.any(-1))
    tokens, alive = np.column_stack([tokens[before], token.astype(np.int32)]), extended[before, token]
    found.append(np.pad(tokens, ((0, 0), (0, max_length - length)), constant_values=len(emits_VxE)))
  return np.concatenate(found)


def evaluate_states(problem: StateProblem, construction: Construction, tokens: np.ndarray) -> Evaluation:
  """Theorems 3.3 and 3.6: the input is (MASK, x), the label that of P[H_0 | X_{1:T} = x], for x in tokens [n, T]."""
  hmm, mu = problem.hmm, assumptions.contrasts(problem.task_weights)
  prompt = tuning.Prompt(len(construction['prompt']), None) if 'prompt' in construction else None
  tuner = tuning.Tuner(ExactModel(hmm.num_tokens), Linear(len(mu)), prompt)
  with jax.enable_x64(True):
    one_task = jax.tree.map(lambda leaf: as_float64(leaf)[None], construction)
    results = _state_scores(tuner, widened(hmm), as_float64(problem.silent_probs), one_task, _after_mask(hmm, tokens))
    states, constructed, loglik = jax.tree.map(np.asarray, results)
  possible = loglik > -np.inf
  return Evaluation(states @ mu.T, constructed, possible, possible)


def first_predictions(problem: StateProblem, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """What a linear head sees of x in tokens [n, T], and what it should say.

  Returns:
    G_1 [n, V] of (MASK, x), the scores [n, C] of P[H_0 | X_{1:T} = x], and which x are possible [n].
  """
  hmm, mu = problem.hmm, assumptions.contrasts(problem.task_weights)
  labelled, inputs = hmm.starting_from(problem.silent_probs), _after_mask(hmm, tokens)
  with jax.enable_x64(True):
    results = _first_state_probs(widened(hmm), inputs), _first_state_probs(widened(labelled), inputs)
    (states, _), (silent_states, loglik) = jax.tree.map(np.asarray, results)
  return states @ np.asarray(hmm.emission_matrix, np.float64), silent_states @ mu.T, loglik > -np.inf


def evaluate_memory(
  problem: MemoryProblem, construction: Construction, finding: Finding, tokens: np.ndarray
) -> Evaluation:
  """Theorems 4.3, 4.6 and C.6: the input is x, the label that of P[M_j* | x]; `finding` says which states are H*.

  The head attends to the positions of x and its prompt alone, whatever [MASK] follows.
  """
  hmm, mu = problem.hmm, assumptions.contrasts(problem.task_weights)
  with jax.enable_x64(True):
    results = _memory_scores(widened(hmm), widened(construction), tokens)
    cells, constructed, states, loglik = jax.tree.map(np.asarray, results)
  possible = loglik > -np.inf
  in_region = possible & recoverable_region(hmm, states, finding)
  return Evaluation(cells[:, problem.cell] @ mu.T, constructed, possible, in_region)


def score_gaps(scores: np.ndarray) -> np.ndarray:
  """By how much the best of the scores [n, C] is above the next, [n]."""
  best = np.sort(scores, axis=-1)
  return best[:, -1] - best[:, -2]


def sampled(distribution: Distribution, key: Array, count: int, length: int) -> np.ndarray:
  """Texts [count, length] int32 of a distribution with float64 parameters, drawn in float32."""
  as_float32 = jax.tree.map(lambda x: x.astype(np.float32) if x.dtype == np.float64 else x, distribution)
  return np.asarray(sample_corpus(key, as_float32, count, length), np.int32)


def count(evaluation: Evaluation, margin: float) -> Count:
  """Compares the labels of the sequences that the theorem speaks of."""
  exact, constructed = (scores[evaluation.in_region] for scores in (evaluation.exact, evaluation.constructed))
  gaps = score_gaps(exact)
  differs, clear = exact.argmax(-1) != constructed.argmax(-1), gaps > margin
  return Count(
    sequences=int(evaluation.possible.sum()),
    in_region=len(exact),
    disagreements=int(differs.sum()),
    outside_margin=int((differs & clear).sum()),
    ties=int((~clear).sum()),
    smallest_gap=float(gaps[clear].min(initial=np.inf)),
  )


def _after_mask(hmm: HMM, tokens: np.ndarray) -> np.ndarray:
  return np.pad(tokens, ((0, 0), (1, 0)), constant_values=hmm.num_tokens)


@functools.partial(jax.jit, static_argnames='tuner')
def _state_scores(tuner, hmm, silent_probs, trainable, inputs):
  rows = token_likelihoods(hmm, inputs, inputs != hmm.num_tokens)
  posterior = inference.forward_backward(hmm.starting_from(silent_probs), rows)
  scores = tuner.scores(trainable, hmm, tuner.features(hmm, inputs))[0]
  return posterior.smoothed_probs[:, 0], scores, posterior.marginal_loglik


@jax.jit
def _first_state_probs(hmm, inputs):
  posterior = inference.forward_backward(hmm, token_likelihoods(hmm, inputs, inputs != hmm.num_tokens))
  return posterior.leave_one_out_probs[:, 0], posterior.marginal_loglik


@jax.jit
def _memory_scores(hmm, construction, tokens):
  inside = tokens != hmm.num_tokens
  rows = token_likelihoods(hmm, tokens, inside)
  posterior = memory_forward_backward(hmm, rows)
  prompt = construction.get('prompt', jnp.zeros((0, rows.shape[-1])))
  token_probs = conditional_token_probs(hmm, prepend(prompt, rows))
  within = jnp.pad(inside, ((0, 0), (len(prompt), 0)), constant_values=True)[..., None]
  scores = attention_scores(construction['head'], jnp.where(within, token_probs, 0), tokens, temperature=0.0)
  states = jnp.where(inside[..., None], posterior.leave_one_out_probs, 0)
  return posterior.cell_probs, scores, states, posterior.marginal_loglik
