"""Scores that are exactly linear in G on what a chain can reach, and the size of the heads that give them.

Here A = transition_matrix.T and W = emission_matrix.T. Of a text x of L tokens after the [MASK],

  P[H_1 = h | x] is proportional to pi_h lambda_h(x), with lambda(x) = A^T W_{x_1} A^T W_{x_2} ... A^T W_{x_L} 1,

pi = P[H_1] and W_v the diagonal matrix of P[v | h]. S_L is the span of lambda(x) over all texts of L tokens: the
posteriors span pi * S_L; a text without probability adds 0 to both. Since the W_v sum to the identity and A^T 1 = 1,
lambda of a text is the sum of those of its continuations by a token: S_L lies in S_{L+1}. Once equal they stay equal,
so S_L is constant from L = H - 1 on, and H - 1 steps suffice.

With a silent state H_0 whose posterior gives the label, P[H_0 = h | x] is proportional to P[H_0 = h] lambda_h(x). A
head b has b^T G(x) = r_x mu^T P[H_0 | x] for all x, with the r_x of the paper's Claim A.1, if and only if

  pi * (W^T b) - P[H_0] * mu is orthogonal to S_L, that is, mu D^-1 is in row(W) + (pi * S_L)-perp, D = P[H_1] / P[H_0].

If the label is of H_1 itself, as in the paper's simulations, P[H_0] is P[H_1] and D the identity. No bias is needed:
the entries of G sum to 1. All of it is decided in exact arithmetic; floats are exact rationals.
"""

import itertools
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hmm_jax._support.rational.algebra import (
  as_fractions,
  as_integers,
  fraction_rows,
  left_inverse,
  modular_pivots,
  PRIME,
  rank,
  row_reduced,
)
from hmm_jax._support.rational.chain import following, integer_chain
from hmm_jax.distributions.hmm import HMM


class Reachable(NamedTuple):
  """S_L, the span of the likelihoods of texts.

  Attributes:
    words: texts, tuples of up to L tokens, whose likelihoods are a basis; the first is empty, with the likelihood 1.
    basis: [d, H] integers, the likelihood of each up to a positive factor; the identity where d = H.
  """

  words: list[tuple[int, ...]]
  basis: np.ndarray


class LinearScore(NamedTuple):
  """The b with mu^T P[H_0 | x] = r_x b^T G(x), if there is one.

  Attributes:
    head: [V, C - 1] `Fraction`s, b of each class but the last, relative to it, of least Euclidean norm; None where no b
      exists for one of them.
    size: the largest of osc(b) / osc(mu), of these classes; osc is the largest minus the smallest entry. An error
      TV of G moves a score by up to TV osc(b). None without a head.
  """

  head: np.ndarray | None
  size: float | None


def reachable(hmm: HMM, length: int) -> Reachable:
  """S_L for texts of `length` tokens, exactly.

  Words are chosen modulo a prime, level by level: those of L + 1 tokens extend the new ones of L. Independence modulo a
  prime implies independence, and H words are a basis. With fewer words, exact arithmetic checks that one more token
  does not leave their span; this is slow where numbers are long.

  Raises:
    ArithmeticError: fewer words than the dimension were found, since the prime divides a determinant.
  """
  chain = integer_chain(hmm)
  moves, likelihoods, num_states = chain.moves % PRIME, chain.likelihoods % PRIME, hmm.num_states
  basis_words = level = list[tuple[tuple[int, ...], np.ndarray]]([((), np.ones(num_states, object))])
  for _ in range(min(length, num_states - 1)):
    if len(basis_words) == num_states:
      break
    candidates = basis_words + [
      ((token, *word), moves @ (row * message) % PRIME)
      for (word, message), (token, row) in itertools.product(level, enumerate(likelihoods))
    ]
    independent = modular_pivots(np.array([message for _, message in candidates]).T)
    level = [candidates[number] for number in independent[len(basis_words) :]]
    basis_words = basis_words + level
  words = [word for word, _ in basis_words]
  if len(words) == num_states:
    return Reachable(words, np.eye(num_states, dtype=int).astype(object))
  basis = np.array([following(chain, word) for word in words], object)
  shorter = [message for word, message in zip(words, basis) if len(word) < length]
  images = [chain.moves @ (row * message) for message in shorter for row in chain.likelihoods]
  if rank(np.array([*basis, *images], object)) > len(basis):
    raise ArithmeticError(f'{len(words)} words of the chain are no basis: the prime {PRIME} divides a determinant')
  return Reachable(words, basis)


def linear_score(hmm: HMM, reach: Reachable, task_weights: ArrayLike, silent_probs: ArrayLike) -> LinearScore:
  """Decide exactly whether the score is linear in G on what `reach` spans, for every class relative to the last one.

  Args:
    hmm: of floats or `Fraction`s, H states and V tokens.
    reach: from `reachable` of the same.
    task_weights: mu [C, H].
    silent_probs: P[H_0] [H]; P[H_1] if the label is of the masked state.
  """
  mu = as_fractions(task_weights)
  relative = (mu[:-1] - mu[-1]).T
  seen = fraction_rows(hmm.initial_probs)[:, None] * fraction_rows(hmm.emission_matrix)
  wanted = fraction_rows(silent_probs)[:, None] * relative
  # Each row of the system is an equation and may have a scale of its own.
  system = np.array([as_integers(row)[0] for row in reach.basis @ np.hstack([seen, wanted])], object)
  num_tokens = seen.shape[1]
  if any(pivot >= num_tokens for pivot in row_reduced(system)[1]):
    return LinearScore(None, None)
  _, independent = row_reduced(system[:, :num_tokens].T)
  head = left_inverse(system[independent, :num_tokens].T).T @ system[independent, num_tokens:]
  # A class with the weights of the last one has a constant score and head.
  sizes, weighed = np.ptp(head, axis=0), np.ptp(relative, axis=0)
  return LinearScore(head, float((sizes[weighed > 0] / weighed[weighed > 0]).max(initial=0)))
