"""Proposition 3.4 and the claims, lemmas and theorems of appendices A and B; see `hmm_jax.theory.claims.lemmas`."""

import numpy as np

from hmm_jax.theory.claims.lemmas import Differences, messages_are_joint_laws, outside, over, possible, state_law
from hmm_jax.theory.claims.tables import apply, Case, left_inverse, normalised, table, token_law


def prompt_states(case: Case) -> np.ndarray:
  """B of Assumption 3.5: the states that move into H* alone."""
  return np.flatnonzero(~(case.transition_matrix[:, case.others] != 0).any(1))


def starting_prompt(case: Case) -> np.ndarray:
  """u of Theorem 3.6, the indicator of B, [1, H]."""
  return (np.isin(np.arange(len(case.silent_probs)), prompt_states(case)) * (0 * case.silent_probs + 1))[None]


def proposition_3_4(case: Case, length: int) -> Differences:
  """P[X_i | x_-i] = W P[M_J, H_i | x_-i]; with a memory, Proposition C.1."""
  of = table(case, case.first_probs, length)
  memory_size, num_states, num_tokens = case.emission_matrix.shape
  W = case.emission_matrix.reshape(-1, num_tokens).T
  for i in range(length):
    left = of.without(i)
    read = normalised(left.by(left.reads[:, i] * num_states + left.states[:, i], memory_size * num_states))
    yield token_law(of.text_probs, i) - apply(W, read)


def claim_a_1(case: Case, length: int) -> Differences:
  """P[H_i | X_{i+1:T+i} = x] = r_x D P[H_0 | X_{1:T} = x], D = diag(P[H_i] / P[H_0]); i = 1, 2."""
  num_states, now = len(case.silent_probs), table(case, case.silent_probs, length, silent=1)
  law = case.silent_probs
  for i in (1, 2):
    law = law @ case.transition_matrix
    then = table(case, case.silent_probs, length, silent=1 + i)
    D = over(law, case.silent_probs).reshape(-1, *[1] * length)
    r = over(now.text_probs, then.text_probs)
    yield (state_law(then, i, num_states) - r * D * state_law(now, 0, num_states))[:, possible(now)]


def equation_a_1(case: Case, length: int) -> Differences:
  """b^T G_1(x') = mu^T P[H_0 | x] / r_x with b = mu D^-1 W^+, so that Theorem 3.3 is right."""
  now, masked = table(case, case.silent_probs, length, silent=1), table(case, case.first_probs, 1 + length)
  b = case.task_weights * over(case.silent_probs, case.first_probs) @ left_inverse(case.emission_matrix[0].T)
  then = masked.text_probs.sum(0)
  scores = apply(b, token_law(masked.text_probs, 0)[:, 0])
  exact = apply(case.task_weights, state_law(now, 0, len(case.silent_probs)))
  # Where (MASK, x) is impossible the head says 0.
  yield (scores - np.where(then == 0, exact, exact * over(now.text_probs, then)))[possible(now)]


def lemma_b_1(case: Case, length: int) -> Differences:
  """tau_i(u, [MASK], x) = P[H_i, X-hat_-i = (z~, [MASK], x)_-i] and G-bar_i is the law of X-hat_i, for any u."""
  size = len(case.silent_probs)
  shades = (0 * case.silent_probs + 1) * np.arange(1, size + 1) / size
  for u in (starting_prompt(case), shades[None]):
    yield from messages_are_joint_laws(case, length, u, masks=1)


def lemma_b_2(case: Case, length: int) -> Differences:
  """P[H_2 | z~, x] = r_x D (P[z~, H_2] * P[H_0 | x]), D = diag(1 / P[H_0]), and its support lies in H*."""
  num_states, now = len(case.silent_probs), table(case, case.silent_probs, length, silent=1)
  u = starting_prompt(case)
  of = table(case, case.first_probs, length, silent=2, prompt=u)
  joint = ((u[0] * case.first_probs) @ case.transition_matrix).reshape(-1, *[1] * length)
  D = over(0 * case.silent_probs + 1, case.silent_probs).reshape(-1, *[1] * length)
  r = over(now.text_probs, of.text_probs)
  both = possible(now) & possible(of)
  yield (state_law(of, 1, num_states) - r * D * joint * state_law(now, 0, num_states))[:, both]
  yield outside(case, of, 1)


def reached_states(case: Case, length: int) -> Differences:
  """supp(A (u * P[H_1])) = H*, "by definition of B" in the proof of Theorem 3.6."""
  reached = (starting_prompt(case)[0] * case.first_probs) @ case.transition_matrix != 0
  yield (reached != np.isin(np.arange(len(reached)), case.states)) * (0 * case.first_probs + 1)


def theorem_3_6(case: Case, length: int) -> Differences:
  """b^T G_2 = r_x mu^T P[H_0 | x], and both are 0 where prompt and text contradict each other."""
  states, u = list(case.states), starting_prompt(case)
  reached = (u[0] * case.first_probs) @ case.transition_matrix
  now = table(case, case.silent_probs, length, silent=1)
  of = table(case, case.first_probs, 1 + length, silent=1, prompt=u)
  scale = case.task_weights[states] * over(case.silent_probs[states], reached[states])
  scores = apply(scale @ left_inverse(case.emission_matrix[0].T[:, states]), token_law(of.text_probs, 0)[:, 0])
  exact = apply(case.task_weights, state_law(now, 0, len(case.silent_probs)))
  then = of.text_probs.sum(0)
  yield (scores - np.where(then == 0, exact, exact * over(now.text_probs, then)))[possible(now)]
