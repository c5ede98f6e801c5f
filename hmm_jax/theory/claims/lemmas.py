"""The claims, lemmas and proof steps of appendices A to C of the first text, each as by how much a case violates it.

A claim is a function of a case and a length that yields differences, zero where it holds; `violation` is the largest.
Everything is computed from tables of P[memory, path, text], for all texts of the length at once. Positions count from 0
here, from 1 in the paper; the paper's silent H_0 is the state before the first token of x.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hmm_jax.theory.claims.tables import Case, normalised, Table, table, token_law

Differences = Iterator[np.ndarray]
Claim = Callable[[Case, int], Differences]


def violation(claim: Claim, case: Case, length: int) -> Any:
  """The largest absolute difference that the claim yields, a float or a `Fraction`."""
  return max((np.abs(differences).max() for differences in claim(case, length) if differences.size), default=0)


# What several claims speak of.


def state_law(of: Table, at: int, num_states: int) -> np.ndarray:
  """P[H = h at one place of the path | evidence] [H, texts]."""
  return normalised(of.by(of.states[:, at], num_states))


def indicator(case: Case) -> np.ndarray:
  """The prompt u (C.6) [M, ..., M, H]."""
  u = np.isin(np.indices(case.memory_probs.shape)[case.cell], case.weighed)
  return np.repeat(u[..., None], len(case.silent_probs), axis=-1) * (0 * case.silent_probs + 1)


def prompted_table(case: Case, length: int, prompt: np.ndarray | None = None) -> Table:
  """The paper's X-hat = (z~, x): the prompt at the first state of the chain, tokens after it."""
  return table(case, case.first_probs, length, silent=1, prompt=indicator(case) if prompt is None else prompt)


def outside(case: Case, of: Table, at: int) -> np.ndarray:
  """P[H not in H* | evidence] [texts]."""
  return state_law(of, at, len(case.silent_probs))[case.others].sum(0)


def possible(of: Table) -> np.ndarray:
  return of.text_probs != 0


def over(numerators: np.ndarray, denominators: np.ndarray) -> np.ndarray:
  """Quotients; 0 where the denominator is."""
  return numerators / np.where(denominators == 0, 1, denominators) * (denominators != 0)


def messages(case: Case, embeddings: list[np.ndarray]) -> list[np.ndarray]:
  """tau_i [C, H, n] of (B.1) and (C.3), 0 / 0 being 0, from embeddings [C, H, n] of n inputs."""
  laws = [(case.memory_probs[..., None] * case.first_probs).reshape(-1, len(case.first_probs))[..., None]]
  move = lambda message, matrix: np.moveaxis(np.tensordot(message, matrix, axes=(1, 0)), -1, 1)
  for _ in embeddings[1:]:
    laws.append(move(laws[-1], case.transition_matrix))
  forward, backward = [laws[0]], [laws[-1]]
  for row in embeddings[:-1]:
    forward.append(move(forward[-1] * row, case.transition_matrix))
  for i in range(len(embeddings) - 2, -1, -1):
    then = over(backward[0] * embeddings[i + 1], laws[i + 1])
    backward.insert(0, laws[i] * move(then, case.transition_matrix.T))
  return [over(before * after, law) for before, after, law in zip(forward, backward, laws, strict=True)]


def messages_are_joint_laws(case: Case, length: int, u: np.ndarray, masks: int) -> Differences:
  memory_size, num_states, num_tokens = case.emission_matrix.shape
  of = table(case, case.first_probs, length, 1 + masks, u.reshape(*case.memory_probs.shape, num_states))
  cells = np.indices(case.memory_probs.shape).reshape(case.memory_probs.ndim, -1)
  reads = cells[case.cell_index].T
  tokens = np.indices((num_tokens,) * length).reshape(length, -1)
  emitted = case.emission_matrix[reads, np.arange(num_states)]
  texts = [emitted[..., row] for row in tokens]
  everything = [u[..., None], *[0 * texts[0] + 1] * masks, *texts]
  for i, tau in list(enumerate(messages(case, everything)))[1 + masks :]:
    left = of.without(i - 1 - masks)
    joint = left.by(left.memories * num_states + left.states[:, i], reads.size)
    full = np.broadcast_to(joint, (reads.size, *[num_tokens] * length)).reshape(*reads.shape, -1)
    yield tau - full
    law = normalised((tau[:, :, None, :] * emitted[..., None]).sum((0, 1)))
    G = token_law(of.text_probs, i - 1 - masks)
    yield law - np.broadcast_to(G, (num_tokens, *[num_tokens] * length)).reshape(num_tokens, -1)
