"""Posteriors and predictions in exact rational arithmetic, for proofs and for checks that share no code with the rest.

The recursions are those of `hmm_jax.inference` on `fractions.Fraction`, slow and without any rounding. A float is a
rational number, so a drawn HMM has exact posteriors too; its rows are divided by their exact sums.
"""

from fractions import Fraction

import jax
import numpy as np

from hmm_jax.hmm import Distribution
from hmm_jax.hmm import HMM


def exact(array) -> np.ndarray:
  """The array as `Fraction`s, float by float, in an array of objects."""
  array = np.asarray(array)
  return np.array([Fraction(value) for value in array.reshape(-1).tolist()], object).reshape(array.shape)


def exact_hmm(distribution: Distribution) -> HMM:
  """An `HMM` of `Fraction`s over joint states, each row divided by its exact sum."""
  num_moving = np.shape(distribution.transition_matrix)[0]
  num_still = np.shape(distribution.joint_initial_probs)[0] // num_moving
  # A memory's emissions are gathered in JAX, which without this rounds float64 to float32.
  with jax.enable_x64(True):
    emission_matrix = exact(distribution.joint_emission_matrix)
  moves = exact(distribution.transition_matrix)
  nothing = np.full_like(moves, Fraction(0))
  transition_matrix = np.block([[moves if i == j else nothing for j in range(num_still)] for i in range(num_still)])
  rows = (
    exact(distribution.joint_initial_probs),
    transition_matrix,
    emission_matrix,
  )
  return HMM(*(row / row.sum(-1, keepdims=True) for row in rows))


def likelihood_rows(hmm: HMM, tokens) -> list[np.ndarray]:
  """The row [E] of each token; the id V, [MASK], has a row of ones."""
  ones = np.full(hmm.num_states, Fraction(1), object)
  columns = np.asarray(hmm.emission_matrix).T
  return [ones if token == hmm.num_tokens else columns[token] for token in tokens]


def state_probs(hmm: HMM, rows: list[np.ndarray], position: int, leave_out: bool) -> np.ndarray:
  """P[H_t | evidence] [E] at `position`, of all rows or of all others; zeros where the evidence is impossible.

  Args:
    hmm: of `Fraction`s, from `exact_hmm`.
    rows: T rows [E]: `likelihood_rows`, with prompt rows before them.
    position: t.
    leave_out: without the row at t, as in the paper's G (section 3.1); else given all rows.
  """
  forward, transition_matrix = np.asarray(hmm.initial_probs), np.asarray(hmm.transition_matrix)
  for row in rows[:position]:
    forward = (forward * row) @ transition_matrix
  backward = np.full_like(forward, Fraction(1))
  for row in reversed(rows[position + 1 :]):
    backward = transition_matrix @ (backward * row)
  weights = forward * backward if leave_out else forward * backward * rows[position]
  total = weights.sum()
  return weights / total if total else weights * 0


def token_probs(hmm: HMM, rows: list[np.ndarray], position: int) -> np.ndarray:
  """G_t [V] = W P[H_t | x_{-t}] (Proposition 3.4); zeros where x_{-t} is impossible."""
  return state_probs(hmm, rows, position, leave_out=True) @ hmm.emission_matrix
