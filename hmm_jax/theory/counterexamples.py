"""Two small distributions in which a linear head fails and the paper's prompt or attention head succeeds.

They can be followed by hand; `docs/findings/theory.md` does so. A text x is seen as x' = (MASK, x), by both heads.

The first is as small as such an HMM can be. With two states, or one token, a linear head is always right. If the
columns of W are independent, by Theorem 3.3; if they are equal, since the text is no evidence and the label is
constant. The second has one state and one token more than it must: two states and three tokens suffice, with longer
texts and larger fractions.
"""

from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from hmm_jax.distributions.hmm import HMM
from hmm_jax.distributions.memory_hmm import MemoryHMM


class Certificate(NamedTuple):
  """A proof that no linear head is right: equal mixtures of G_1(x') of both classes, which no half-space separates.

  Attributes:
    texts: the x, tuples of tokens.
    labels: the class of each.
    weights: a `Fraction` for each, positive; those of each class sum to 1/2. They are the lambda of
      `hmm_jax.tuning.separability`.
  """

  texts: tuple[tuple[int, ...], ...]
  labels: tuple[int, ...]
  weights: tuple[Fraction, ...]


class Counterexample(NamedTuple):
  """A task in which a linear head fails: on the state before the text, or on the value of its one memory cell.

  Attributes:
    hmm: of the text, float64.
    exact_hmm: the same in `Fraction`s, over joint states, number m H + h.
    task_weights: mu [C, H], or [C, M] with a memory.
    states: [H], their names.
    certificate: that no linear head is right, of texts in R (4.3) with a memory.
    silent_probs: P[H_0] [H], the law of the state before the text; None with a memory.
  """

  hmm: HMM | MemoryHMM
  exact_hmm: HMM
  task_weights: np.ndarray
  states: tuple[str, ...]
  certificate: Certificate
  silent_probs: np.ndarray | None = None


def head_fails_prompt_succeeds() -> Counterexample:
  """Irony says "good", as praise does: |H| = 3, |X| = 2, Assumption 3.5 holds, 3.1 does not.

  Was the sentence before the text rather praise or a complaint? Praise and complaints repeat themselves or turn into
  irony, and irony turns into one of them. The prompt of Theorem 3.6 says that irony came before, so that the masked
  sentence is not ironic. The chain starts from its stationary law, so that P[H_0] = P[H_1].

  >>> head_fails_prompt_succeeds().states
  ('praise', 'complaint', 'irony')
  """
  good, bad = range(2)
  exact_hmm = HMM(
    np.full(3, Fraction(1, 3)),
    # Rows and columns are praise, complaint and irony.
    np.array([[1, 0, 1], [0, 1, 1], [1, 1, 0]]) * Fraction(1, 2),
    np.array([[2, 1], [0, 3], [3, 0]]) * Fraction(1, 3),
  )
  certificate = Certificate(
    texts=((good, good), (good, bad), (bad, bad)),
    labels=(0, 0, 1),
    weights=(Fraction(4, 15), Fraction(7, 30), Fraction(1, 2)),
  )
  hmm = _in_floats(exact_hmm)
  # Praise or a complaint?
  task_weights = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
  return Counterexample(hmm, exact_hmm, task_weights, ('praise', 'complaint', 'irony'), certificate, hmm.initial_probs)


def head_fails_attention_succeeds() -> Counterexample:
  """Before "the" there is a verb: N = 1, M = 2, |H| = 3, |X| = 4, and Assumption 4.2 holds with H* = {noun}.

  Is the text about a cow or a toy? Only nouns depend on it: cows are at times called toys, and toys cows. If the text
  starts with "the", the masked token is a verb whatever the memory holds, so that G_1 is no evidence. The noun after
  "the" is, and the attention head reads it there. The chain starts from its stationary law.

  >>> head_fails_attention_succeeds().states
  ('article', 'noun', 'verb')
  """
  the, cow, toy, rolled = np.eye(4, dtype=int) * 4
  often_cow, often_toy = (3 * cow + toy) // 4, (cow + 3 * toy) // 4
  exact = MemoryHMM(
    # A cow or a toy.
    memory_probs=np.array([2, 1]) * Fraction(1, 3),
    # Rows and columns are article, noun and verb.
    initial_probs=np.array([1, 2, 1]) * Fraction(1, 4),
    transition_matrix=np.array([[0, 2, 0], [0, 1, 1], [2, 0, 0]]) * Fraction(1, 2),
    cell_index=np.zeros(3, np.int32),
    emission_matrix=np.array([[the, noun, rolled] for noun in (often_cow, often_toy)]) * Fraction(1, 4),
  )
  over_joint_states = HMM(
    np.outer(exact.memory_probs, exact.initial_probs).reshape(-1),
    np.kron(np.eye(2, dtype=int) * Fraction(1), exact.transition_matrix),
    exact.emission_matrix.reshape(-1, 4),
  )
  # "the cow" and "the toy".
  certificate = Certificate(((0, 1), (0, 2)), labels=(0, 1), weights=(Fraction(1, 2), Fraction(1, 2)))
  return Counterexample(_in_floats(exact), over_joint_states, np.eye(2), ('article', 'noun', 'verb'), certificate)


def _in_floats(hmm: Any) -> Any:
  return hmm._make(rows.astype(np.float64) if rows.dtype == object else rows for rows in hmm)
