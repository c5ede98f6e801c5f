"""The constructions of the theorems in `Fraction`s, for one text at a time, to decide near ties and proofs.

It shares no code with `hmm_jax.theory.recovery` and follows the same appendices: exact left inverses, exact
projections off V-bar, an exact argmax with exact ties. Scores are relative to the last class, whose score is 0.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
import itertools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hmm_jax._support.rational.algebra import (
  as_fractions,
  as_integers,
  fraction_rows,
  left_inverse,
  rank,
  row_reduced,
)
from hmm_jax.theory.problem import MemoryProblem, StateProblem

Scores = tuple[np.ndarray, np.ndarray]
Posterior = Callable[[Sequence[int]], np.ndarray]


class IntegerChain(NamedTuple):
  """A chain of H states for each of C constant memory configurations; a plain `HMM` has one.

  Attributes:
    start: integers [C, H], proportional to P[M, H_1].
    moves: integers [H, H], proportional to P[next = j | now = i].
    emissions: `Fraction`s [M, H, V], the paper's W.
    reads: [C, H], the value that each state reads in each configuration.
    likelihoods: integers [V + 1, C, H], of each token and last of [MASK], up to a common factor.
    configurations: [C, N], what each cell holds.
  """

  start: np.ndarray
  moves: np.ndarray
  emissions: np.ndarray
  reads: np.ndarray
  likelihoods: np.ndarray
  configurations: np.ndarray


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
    return token_probs(self.chain, self.chain.start * following(self.chain, tokens))

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
    joints = leave_one_out(self.chain, self.chain.likelihoods[list(tokens)])
    return bool(self.posterior(tokens).any()) and any(not joint[:, others].any() for joint in joints)

  def predicted(self, tokens: Sequence[int]) -> list[np.ndarray]:
    """G_i [V] at the prompt, if there is one, and at each token."""
    prompt = [] if self.prompt is None else [as_integers(self.prompt)[0]]
    joints = leave_one_out(self.chain, [*prompt, *self.chain.likelihoods[list(tokens)]])
    return [token_probs(self.chain, joint) for joint in joints]

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
  """A function from a text to P[H_0 | X_{1:T} = x] [H], or P[M_j* | x] [M]; zeros for impossible texts."""
  if isinstance(problem, StateProblem):
    silent = integer_chain(problem.hmm.starting_from(fraction_rows(problem.silent_probs)))
    return lambda tokens: normalised((silent.start * following(silent, tokens))[0])
  chain = integer_chain(problem.hmm)

  def cell_posterior(tokens: Sequence[int]) -> np.ndarray:
    joint = chain.start * chain.likelihoods[tokens[0]] * following(chain, tokens[1:])
    return normalised(by_cell(chain, joint, problem.cell))

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
  chain = integer_chain(hmm)._replace(start=as_integers(reached)[0][None])
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
  chain, weights = integer_chain(problem.hmm), _contrasts(problem.task_weights)
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
    prompt_embeddings = by_value_read(chain, u)[None] / Fraction(len(u), memory_size)
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


def off_span(columns: np.ndarray) -> np.ndarray:
  """The orthogonal projection [m, m] off the span of columns [m, n], dependent ones among them."""
  _, pivots = row_reduced(columns)
  basis = columns[:, pivots]
  identity = np.eye(len(columns), dtype=int) * Fraction(1)
  return identity - basis @ left_inverse(basis) if pivots else identity


def split_columns(
  emissions: np.ndarray, reads_cell: np.ndarray, values: np.ndarray, states: Any
) -> tuple[np.ndarray, np.ndarray]:
  """The columns of W of these memory values and H*, [V, n], and those that span the paper's V-bar.

  Args:
    emissions: W [M, H, V].
    reads_cell: [H], the states that read cell j*.
    values: memory values that count.
    states: H*.
  """
  W = np.moveaxis(emissions, -1, 0)
  chosen = np.isin(np.arange(W.shape[1]), values)[:, None] | ~reads_cell
  others = W[:, chosen & ~np.isin(np.arange(W.shape[2]), states)]
  return W[:, values][:, :, states].reshape(len(W), -1), others


def integer_chain(distribution: Any) -> IntegerChain:
  """The chain of an `HMM` or `MemoryHMM` of floats or `Fraction`s, each row divided by its exact sum."""
  emissions, configurations = fraction_rows(distribution.emission_matrix), np.zeros((1, 0), int)
  start = fraction_rows(distribution.initial_probs)
  if hasattr(distribution, 'memory_probs'):
    memory_probs = as_fractions(distribution.memory_probs)
    configurations = np.indices(memory_probs.shape).reshape(memory_probs.ndim, -1).T
    reads = configurations[:, np.asarray(distribution.cell_index)]
    start = memory_probs[..., None] * start
  else:
    emissions, reads = emissions[None], np.zeros((1, emissions.shape[0]), int)
  numerators, denominator = as_integers(emissions[reads, np.arange(reads.shape[1])])
  masked = np.full_like(numerators[..., :1], denominator)
  return IntegerChain(
    start=as_integers(start)[0].reshape(reads.shape),
    moves=as_integers(fraction_rows(distribution.transition_matrix))[0],
    emissions=emissions,
    reads=reads,
    likelihoods=np.moveaxis(np.concatenate([numerators, masked], axis=-1), -1, 0),
    configurations=configurations,
  )


def following(chain: IntegerChain, tokens: Sequence[int]) -> np.ndarray:
  """P[tokens | M, the state before them] [C, H], in integers up to a positive factor."""
  return _backward(chain, chain.likelihoods[list(tokens)])[-1]


def _backward(chain: IntegerChain, rows: Sequence[np.ndarray] | np.ndarray) -> list[np.ndarray]:
  """P[the last k rows | M, the state before them] [C, H] for k = 0, ..., T."""
  messages = [np.ones_like(chain.start)]
  for row in rows[::-1]:
    message = (messages[-1] * row) @ chain.moves.T
    messages.append(message // (np.gcd.reduce(message, axis=None) or 1))
  return messages


def leave_one_out(chain: IntegerChain, rows: Sequence[np.ndarray] | np.ndarray) -> list[np.ndarray]:
  """P[M, H_i, rows but the i-th] [C, H] at each position i, in integers up to a positive factor.

  `rows` are likelihoods [C, H] of what is seen at the T positions, in integers up to a positive factor.
  """
  forward = itertools.accumulate(rows[:-1], lambda message, row: (message * row) @ chain.moves, initial=chain.start)
  return [before * after for before, after in zip(forward, reversed(_backward(chain, rows[1:])), strict=True)]


def by_value_read(chain: IntegerChain, joint: np.ndarray) -> np.ndarray:
  """Sums [C, H] over all configurations that read the same value: [M, H]."""
  return np.array([(joint * (chain.reads == value)).sum(0) for value in range(len(chain.emissions))])


def by_cell(chain: IntegerChain, joint: np.ndarray, cell: int) -> np.ndarray:
  """Sums [C, H] over all states and all other cells: [M]."""
  held = chain.configurations[:, cell]
  return np.array([joint[held == value].sum() for value in range(len(chain.emissions))], object)


def normalised(weights: np.ndarray) -> np.ndarray:
  """Integers of any shape over their sum, as `Fraction`s; zeros if it is 0."""
  return weights * Fraction(1, weights.sum() or 1)


def token_probs(chain: IntegerChain, joint: np.ndarray) -> np.ndarray:
  """G_i = W p (Proposition C.1) [V] from `leave_one_out` at i; zeros if the evidence is impossible."""
  return normalised(np.tensordot(joint, chain.likelihoods[:-1], axes=((0, 1), (1, 2))))
