"""The constructions of the theorems in `Fraction`s, for one text at a time, to decide near ties and proofs.

It shares no code with `hmm_jax.theory.recovery` and follows the same appendices: exact left inverses, exact
projections off V-bar, an exact argmax with exact ties. Scores are relative to the last class, whose score is 0.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hmm_jax._support.rational import chain as chain_lib
from hmm_jax._support.rational.algebra import (
  as_fractions,
  as_integers,
  fraction_rows,
  left_inverse,
  off_span,
  rank,
  split_columns,
)
from hmm_jax._support.rational.chain import IntegerChain
from hmm_jax.theory.problem import MemoryProblem, StateProblem

Scores = tuple[np.ndarray, np.ndarray]
Posterior = Callable[[Sequence[int]], np.ndarray]


class LinearConstruction(NamedTuple):
  """Theorems 3.3 and 3.6 in `Fraction`s.

  Attributes:
    chain: from the state of the [MASK], after the prompt if there is one; the text follows it.
    posterior: P[H_0 | X_{1:T} = x] [H] of a text; zeros if it is impossible.
    weights: mu relative to the last class, [C, H].
    prompt: u [H], or None.
    head: b [C, V].
    states: H*; all states in Theorem 3.3.
  """

  chain: IntegerChain
  posterior: Posterior
  weights: np.ndarray
  prompt: np.ndarray | None
  head: np.ndarray
  states: np.ndarray

  def predicted(self, tokens: Sequence[int]) -> np.ndarray:
    """G at the [MASK], [V]: G_1(x'), after a prompt G_2."""
    return chain_lib.token_probs(self.chain, self.chain.start * chain_lib.following(self.chain, tokens))

  def scores(self, tokens: Sequence[int]) -> Scores:
    """mu P[H_0 | x] and b G, [C] each, of the text x; tokens V are [MASK]s."""
    return self.weights @ self.posterior(tokens), self.head @ self.predicted(tokens)


class AttentionConstruction(NamedTuple):
  """Theorems 4.3, 4.6 and C.6 in `Fraction`s.

  Attributes:
    chain: of the text.
    posterior: P[M_j* | x] [M] of a text; zeros if it is impossible.
    weights: mu relative to the last class, [C, M].
    prompt: u [configurations, H], or None.
    prompt_bias: beta at the prompt.
    attention: q^T Theta^(K) [V].
    recover: Theta^(V) [M, H, V], zero but at M* and H*.
    token_embeddings: e(x_i) [V + 1, M, H], ones for a [MASK].
    prompt_embeddings: phi(u) [1, M, H], without a prompt none.
    states: H*.
  """

  chain: IntegerChain
  posterior: Posterior
  weights: np.ndarray
  prompt: np.ndarray | None
  prompt_bias: Fraction
  attention: np.ndarray
  recover: np.ndarray
  token_embeddings: np.ndarray
  prompt_embeddings: np.ndarray
  states: np.ndarray

  def in_region(self, tokens: Sequence[int]) -> bool:
    """True where x is in R (4.3): some position's state surely lies in H*."""
    others = np.setdiff1d(np.arange(self.recover.shape[1]), self.states)
    joints = chain_lib.leave_one_out(self.chain, self.chain.likelihoods[list(tokens)])
    return bool(self.posterior(tokens).any()) and any(not joint[:, others].any() for joint in joints)

  def predicted(self, tokens: Sequence[int]) -> list[np.ndarray]:
    """G_i [V] at the prompt, if there is one, and at each token."""
    prompt = [] if self.prompt is None else [as_integers(self.prompt)[0]]
    joints = chain_lib.leave_one_out(self.chain, [*prompt, *self.chain.likelihoods[list(tokens)]])
    return [chain_lib.token_probs(self.chain, joint) for joint in joints]

  def logits(self, predicted: list[np.ndarray]) -> list[Fraction]:
    """q^T (Theta^(K) G_i + beta_i) at each position."""
    logits = [self.attention @ G for G in predicted]
    return logits if self.prompt is None else [logits[0] + self.prompt_bias, *logits[1:]]

  def scores(self, tokens: Sequence[int]) -> Scores:
    """mu P[M_j* | x] and the mean of b^T ((Theta^(V) G_i) * e_i) over all positions of the largest logit, [C] each."""
    predicted = self.predicted(tokens)
    logits, embeddings = self.logits(predicted), [*self.prompt_embeddings, *self.token_embeddings[list(tokens)]]
    values = [
      self.weights @ ((self.recover @ G) * embedding).sum(1)
      for G, embedding, logit in zip(predicted, embeddings, logits, strict=True)
      if logit == max(logits)
    ]
    return self.weights @ self.posterior(tokens), sum(values) / len(values)


def exact_posterior(problem: Any) -> Posterior:
  """A function from a text to P[H_0 | X_{1:T} = x] [H], or P[M_j* | x] [M]; zeros for impossible texts.

  >>> from hmm_jax.theory.gap import weak_prompt_bias
  >>> print(*exact_posterior(weak_prompt_bias())([2, 2, 2]))
  4/965 1/965 192/193
  """
  if isinstance(problem, StateProblem):
    silent = chain_lib.integer_chain(problem.hmm.starting_from(fraction_rows(problem.silent_probs)))
    return lambda tokens: chain_lib.normalised((silent.start * chain_lib.following(silent, tokens))[0])
  chain = chain_lib.integer_chain(problem.hmm)

  def cell_posterior(tokens: Sequence[int]) -> np.ndarray:
    joint = chain.start * chain.likelihoods[tokens[0]] * chain_lib.following(chain, tokens[1:])
    return chain_lib.normalised(chain_lib.by_cell(chain, joint, problem.cell))

  return cell_posterior


def exact_construction(
  problem: Any, theorem: str, prompt_bias: Fraction | None = None
) -> LinearConstruction | AttentionConstruction:
  """The construction of a theorem's proof.

  Args:
    problem: a `StateProblem` or a `MemoryProblem`, of `Fraction`s, or of floats, whose rows are divided by their sums.
    theorem: '3.3', '3.6', '4.3', '4.6' or 'C.6'.
    prompt_bias: beta at the prompt, of 4.6 and C.6 (the paper's is -2); None for one that always suffices.

  Raises:
    ValueError: what the theorem assumes of the columns of W fails.

  >>> from hmm_jax.theory.gap import weak_prompt_bias
  >>> built = exact_construction(weak_prompt_bias(), '4.6', prompt_bias=Fraction(-2))
  >>> built.states.tolist()
  [0]
  """
  if isinstance(problem, StateProblem):
    return _linear_construction(problem, theorem)
  return _attention_construction(problem, theorem != '4.3', prompt_bias)


def _contrasts(task_weights: ArrayLike) -> np.ndarray:
  weights = as_fractions(task_weights)
  return weights - weights[-1]


def _linear_construction(problem: StateProblem, theorem: str) -> LinearConstruction:
  """The head of Theorem 3.3, by (A.1), or the prompt and the head of the proof of Theorem 3.6."""
  hmm, weights, silent = problem.hmm, _contrasts(problem.task_weights), fraction_rows(problem.silent_probs)
  first, A_transposed, W_transposed = map(fraction_rows, hmm)
  A, W = A_transposed.T, W_transposed.T
  states, u = np.arange(len(silent)), None
  if theorem == '3.6':
    states, starts = _essential_states(A, W, weights)
    u = as_fractions(np.isin(np.arange(len(silent)), starts))
  reached = first if u is None else A @ (u * first)
  scale = silent[states] / reached[states]
  B = scale[:, None] * left_inverse(W[:, states])
  chain = chain_lib.integer_chain(hmm)._replace(start=as_integers(reached)[0][None])
  return LinearConstruction(chain, exact_posterior(problem), weights, u, weights[:, states] @ B, states)


def _essential_states(A: np.ndarray, W: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """H* and B of Assumption 3.5; of several H*, the one with the largest smallest singular value."""
  supports = [frozenset(np.flatnonzero(column).tolist()) for column in A.T]
  unions: set[frozenset] = {frozenset()}
  for support in set(supports):
    unions |= {union | support for union in unions}
  covers = [sorted(union) for union in unions if set(np.flatnonzero(weights.any(0)).tolist()) <= union]
  independent = [cover for cover in covers if rank(W[:, cover]) == len(cover)]
  if not independent:
    raise ValueError('Assumption 3.5 fails: no cover of supp(mu) has independent columns of W')
  smallest = lambda cover: np.linalg.svd(W[:, cover].astype(float), compute_uv=False)[-1]
  states = max(independent, key=smallest)
  return np.array(states), np.array([h for h, support in enumerate(supports) if support <= set(states)])


def _attention_construction(
  problem: MemoryProblem, prompted: bool, prompt_bias: Fraction | None
) -> AttentionConstruction:
  """Lemmas C.2 and C.4; C.9 and C.13 with a prompt, beta being below minus the largest score of any G."""
  chain, weights = chain_lib.integer_chain(problem.hmm), _contrasts(problem.task_weights)
  memory_size = len(chain.emissions)
  values = np.flatnonzero(weights.any(0)) if prompted else np.arange(memory_size)
  states, theta = _recovery(problem, chain.emissions, values)
  recover = 0 * chain.emissions
  recover[np.ix_(values, states)] = theta
  attention = recover.sum((0, 1))
  token_embeddings = np.concatenate([np.moveaxis(chain.emissions, -1, 0), chain.emissions.sum(-1)[None]])
  u, prompt_embeddings = None, token_embeddings[:0]
  if prompted:
    # (C.6), times P[H_0] / P[H_1] and scaled to at most 1: [C, H].
    allowed = np.isin(np.indices(problem.hmm.memory_probs.shape)[problem.cell], values)
    silent, first = fraction_rows(problem.silent_probs), fraction_rows(problem.hmm.initial_probs)
    ratios = silent / np.where(first == 0, 1, first) * (first != 0)
    u = (allowed[..., None] * ratios).reshape(chain.start.shape)
    u = u / (u.max() or 1)
    prompt_embeddings = chain_lib.by_value_read(chain, u)[None] / Fraction(len(u), memory_size)
  bias = -1 - max(attention) if prompt_bias is None else prompt_bias
  of_text = chain, exact_posterior(problem), weights
  return AttentionConstruction(*of_text, u, bias, attention, recover, token_embeddings, prompt_embeddings, states)


def _recovery(problem: MemoryProblem, emissions: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """The largest H* of Assumptions 4.2, 4.5 and C.5, and Theta^(2, h) of Claims C.3 and C.10, [|M*|, |H*|, V]."""
  reads_cell = np.asarray(problem.hmm.cell_index) == problem.cell

  def is_independent(state: Any) -> bool:
    own, others = split_columns(emissions, reads_cell, values, [state])
    return rank(np.hstack([others, own])) == rank(others) + len(values)

  states = np.array([*filter(is_independent, np.flatnonzero(reads_cell))], int)
  if not states.size:
    raise ValueError(f'no state that reads cell {problem.cell} has columns of W independent of all others')
  own, others = split_columns(emissions, reads_cell, values, states)
  # A left inverse that is 0 on V-bar.
  theta = left_inverse(off_span(others) @ own)
  return states, theta.reshape(len(values), len(states), -1)
