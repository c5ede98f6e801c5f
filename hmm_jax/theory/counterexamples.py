"""Two distributions of small fractions in which a linear head fails and what the paper puts in its place succeeds.

They can be followed by hand; `docs/theory.md` does so. A text x is seen as x' = (MASK, x), by both heads.

The first is as small as such an HMM can be. With two states, or one token, a linear head is always right: if the
columns of W are independent by Theorem 3.3, and if they are equal because the text then says nothing and the label is
constant. The second has one state and one token more than it must: with two states and three tokens, too, a linear
head can fail where the attention head is right, but that takes longer texts and larger fractions.
"""

from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from hmm_jax.hmm import HMM
from hmm_jax.memory_hmm import MemoryHMM


class Certificate(NamedTuple):
  """Why no linear head is right: the mixtures of G_1(x') of the two classes are equal, so no half-space parts them.

  Attributes:
    texts: the x, tuples of tokens.
    labels: the class of each.
    weights: a `Fraction` for each, positive; those of each class sum to 1/2. They are the lambda of
      `hmm_jax.theory.separability`.
  """

  texts: tuple[tuple[int, ...], ...]
  labels: tuple[int, ...]
  weights: tuple[Fraction, ...]


class StateCounterexample(NamedTuple):
  """A task on the state before the text.

  Attributes:
    hmm: of the text, float64.
    exact_hmm: the same in `Fraction`s.
    silent_probs: P[H_0] [H].
    task_weights: mu [C, H].
    states: [H], their names.
    tokens: [V], their names.
    classes: [C], their names.
    certificate: that no linear head is right.
  """

  hmm: HMM
  exact_hmm: HMM
  silent_probs: np.ndarray
  task_weights: np.ndarray
  states: tuple[str, ...]
  tokens: tuple[str, ...]
  classes: tuple[str, ...]
  certificate: Certificate


class MemoryCounterexample(NamedTuple):
  """A task on what the memory holds.

  Attributes:
    hmm: of the text, float64, with one cell.
    exact_hmm: over joint states, number m H + h, in `Fraction`s.
    task_weights: mu [C, M].
    cell: j*.
    values: [M], the names of what the memory may hold.
    states: [H], their names.
    tokens: [V], their names.
    classes: [C], their names.
    certificate: that no linear head is right, of texts in R (4.3).
  """

  hmm: MemoryHMM
  exact_hmm: HMM
  task_weights: np.ndarray
  cell: int
  values: tuple[str, ...]
  states: tuple[str, ...]
  tokens: tuple[str, ...]
  classes: tuple[str, ...]
  certificate: Certificate


def head_fails_prompt_succeeds() -> StateCounterexample:
  """Irony says "good", as praise does: |H| = 3, |X| = 2, Assumption 3.5 holds, 3.1 does not.

  Was the sentence before the text rather praise or a complaint? Praise and complaints repeat themselves or turn into
  irony, and irony turns into one of them. The prompt of Theorem 3.6 says that irony came before, so that the masked
  sentence is none. The chain starts from its stationary law, so that P[H_0] = P[H_1].
  """
  states, tokens = ('praise', 'complaint', 'irony'), ('good', 'bad')
  good, bad = range(2)
  stationary = {'praise': '1/3', 'complaint': '1/3', 'irony': '1/3'}
  transitions = {
    'praise': {'praise': '1/2', 'irony': '1/2'},
    'complaint': {'complaint': '1/2', 'irony': '1/2'},
    'irony': {'praise': '1/2', 'complaint': '1/2'},
  }
  emissions = {'praise': {'good': '2/3', 'bad': '1/3'}, 'complaint': {'bad': '1'}, 'irony': {'good': '1'}}
  exact_hmm = HMM(
    _row(stationary, states),
    np.array([_row(transitions[state], states) for state in states]),
    np.array([_row(emissions[state], tokens) for state in states]),
  )
  return StateCounterexample(
    hmm=HMM(*(array.astype(np.float64) for array in exact_hmm)),
    exact_hmm=exact_hmm,
    silent_probs=np.asarray(exact_hmm.initial_probs, np.float64),
    task_weights=np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]),
    states=states,
    tokens=tokens,
    classes=('praise', 'complaint'),
    certificate=Certificate(
      texts=((good, good), (good, bad), (bad, bad)),
      labels=(0, 0, 1),
      weights=(Fraction(4, 15), Fraction(7, 30), Fraction(1, 2)),
    ),
  )


def head_fails_attention_succeeds() -> MemoryCounterexample:
  """Before "the" there is a verb: N = 1, M = 2, |H| = 3, |X| = 4, and Assumption 4.2 holds with H* = {noun}.

  Is the text about a cow or a toy? Nouns tell, as cows are at times called toys and toys cows; articles and verbs do
  not. Where the text starts with "the", what is masked is a verb, whatever the memory holds, so that G_1 tells nothing.
  The noun after "the" tells, and there the attention head looks. The chain starts from its stationary law.
  """
  values, states, tokens = ('cow', 'toy'), ('article', 'noun', 'verb'), ('the', 'cow', 'toy', 'rolled')
  the, cow, toy, _ = range(4)
  memory_probs = _row({'cow': '2/3', 'toy': '1/3'}, values)
  stationary = _row({'article': '1/4', 'noun': '1/2', 'verb': '1/4'}, states)
  transitions = {'article': {'noun': '1'}, 'noun': {'noun': '1/2', 'verb': '1/2'}, 'verb': {'article': '1'}}
  nouns = {'cow': {'cow': '3/4', 'toy': '1/4'}, 'toy': {'cow': '1/4', 'toy': '3/4'}}
  emissions = [{'article': {'the': '1'}, 'noun': nouns[value], 'verb': {'rolled': '1'}} for value in values]
  transition_matrix = np.array([_row(transitions[state], states) for state in states])
  emission_matrix = np.array([[_row(rows[state], tokens) for state in states] for rows in emissions])
  return MemoryCounterexample(
    hmm=MemoryHMM(
      memory_probs=memory_probs.astype(np.float64),
      initial_probs=stationary.astype(np.float64),
      transition_matrix=transition_matrix.astype(np.float64),
      cell_index=np.zeros(len(states), np.int32),
      emission_matrix=emission_matrix.astype(np.float64),
    ),
    exact_hmm=HMM(
      np.outer(memory_probs, stationary).reshape(-1),
      np.kron(np.array([[Fraction(1), Fraction(0)], [Fraction(0), Fraction(1)]]), transition_matrix),
      emission_matrix.reshape(-1, len(tokens)),
    ),
    task_weights=np.eye(2),
    cell=0,
    values=values,
    states=states,
    tokens=tokens,
    classes=values,
    certificate=Certificate(
      texts=((the, cow), (the, toy)),
      labels=(0, 1),
      weights=(Fraction(1, 2), Fraction(1, 2)),
    ),
  )


def _row(probs: dict[str, str], names: tuple[str, ...]) -> np.ndarray:
  """Probabilities by name, as `Fraction`s in an array of objects."""
  row: list[Any] = [Fraction(probs.get(name, '0')) for name in names]
  return np.array(row, object)
