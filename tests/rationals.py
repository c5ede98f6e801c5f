"""Posteriors and predictions in exact rational arithmetic, for checks that share no recursion with the library.

The recursions are those of `hmm_jax.inference.posterior` on `fractions.Fraction`, slow and without any rounding. A
float is a rational number, so a drawn HMM has exact posteriors too; its rows are divided by their exact sums.
"""

from fractions import Fraction

from conftest import joint_hmm
import numpy as np

from hmm_jax._support.rational.algebra import as_fractions
from hmm_jax.distributions.hmm import HMM
from hmm_jax.distributions.memory_hmm import MemoryHMM


def exact_hmm(distribution: HMM | MemoryHMM) -> HMM:
  """An `HMM` of `Fraction`s over joint states (memory, state), each row divided by its exact sum."""
  hmm = joint_hmm(distribution) if isinstance(distribution, MemoryHMM) else distribution
  rows = map(as_fractions, hmm)
  return HMM(*(row / row.sum(-1, keepdims=True) for row in rows))


def likelihood_rows(hmm: HMM, tokens) -> list[np.ndarray]:
  """The row [E] of each token; the id V, [MASK], has a row of ones."""
  ones = np.full(hmm.num_states, Fraction(1), object)
  columns = np.asarray(hmm.emission_matrix).T
  return [ones if token == hmm.num_tokens else columns[token] for token in tokens]


def state_weights(hmm: HMM, rows: list[np.ndarray], position: int) -> np.ndarray:
  """P[H_t, evidence] [E] at `position`.

  Args:
    hmm: of `Fraction`s, from `exact_hmm`.
    rows: T rows [E]: `likelihood_rows`, with prompt rows before them.
    position: t.
  """
  forward, transition_matrix = np.asarray(hmm.initial_probs), np.asarray(hmm.transition_matrix)
  for row in rows[:position]:
    forward = (forward * row) @ transition_matrix
  backward = 1
  for row in reversed(rows[position + 1 :]):
    backward = transition_matrix @ (backward * row)
  return forward * backward * rows[position]


def state_probs(hmm: HMM, rows: list[np.ndarray], position: int, leave_out: bool) -> np.ndarray:
  """P[H_t | evidence] [E]; zeros where the evidence is impossible.

  It is without the row at `position` if `leave_out`, as in the paper's G (section 3.1); else given all rows.
  """
  if leave_out:
    rows = [*rows[:position], 1, *rows[position + 1 :]]
  weights = state_weights(hmm, rows, position)
  total = weights.sum()
  return weights / total if total else weights * 0


def token_probs(hmm: HMM, rows: list[np.ndarray], position: int) -> np.ndarray:
  """G_t [V] = W P[H_t | x_{-t}] (Proposition 3.4); zeros where x_{-t} is impossible."""
  return state_probs(hmm, rows, position, leave_out=True) @ hmm.emission_matrix
